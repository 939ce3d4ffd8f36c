//! A commit as one etcd transaction, and what its outcome means. No connection here.

use bytes::Bytes;
use model::Key;

use super::rpc::compare::{CompareResult, CompareTarget, TargetUnion};
use super::rpc::request_op::Request;
use super::rpc::response_op::Response;
use super::rpc::{
    Compare, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RequestOp, ResponseOp, TxnRequest,
};
use crate::request::check_precondition;
use crate::{Change, Precondition, Record, Revision, StoreError, Write};

/// A mod revision no record has: a missing one counts as 0, the first one ever written as 2.
const NEVER: i64 = -1;

/// If every precondition holds, all writes happen; otherwise every record is read, so that the first
/// precondition that failed can be named.
pub(super) fn transaction(changes: &[Change]) -> TxnRequest {
    TxnRequest {
        compare: changes.iter().map(comparison).collect(),
        success: changes.iter().filter_map(write).collect(),
        failure: changes.iter().map(|change| operation(Request::Range(read(&change.key)))).collect(),
    }
}

/// The request for one record.
pub(super) fn read(key: &Key) -> RangeRequest {
    RangeRequest { key: key_bytes(key), ..RangeRequest::default() }
}

/// Why the transaction's comparisons failed, from the records that were read instead.
pub(super) fn refusal(changes: &[Change], responses: Vec<ResponseOp>) -> StoreError {
    let found = responses.into_iter().map(first_record);
    for (change, found) in changes.iter().zip(found) {
        let record = found.map(|found| Record {
            key: change.key.clone(),
            value: found.value,
            revision: found.mod_revision.into(),
        });
        if let Err(refusal) = check_precondition(change, record) {
            return refusal;
        }
    }
    StoreError::Other {
        operation: "committing to etcd".to_owned(),
        source: "etcd refused the transaction, though every record is as expected".into(),
    }
}

fn comparison(change: &Change) -> Compare {
    let (target, expected) = match &change.precondition {
        Precondition::Absent => (CompareTarget::Version, TargetUnion::Version(0)),
        Precondition::At(revision) => (CompareTarget::Mod, TargetUnion::ModRevision(expected(revision))),
        // Refused before; it would match nothing.
        Precondition::Uid(_) => (CompareTarget::Mod, TargetUnion::ModRevision(NEVER)),
    };
    Compare {
        result: CompareResult::Equal.into(),
        target: target.into(),
        key: key_bytes(&change.key),
        target_union: Some(expected),
    }
}

/// A revision that etcd cannot have given out matches no record. In particular 0 must not: it would match a
/// record that is absent, and turn an update into a creation.
fn expected(revision: &Revision) -> i64 {
    revision.number().filter(|number| *number > 0).unwrap_or(NEVER)
}

fn write(change: &Change) -> Option<RequestOp> {
    let key = key_bytes(&change.key);
    match &change.write {
        Write::Put(value) => Some(Request::Put(PutRequest { key, value: value.clone(), lease: 0 })),
        Write::Delete => Some(Request::DeleteRange(DeleteRangeRequest { key })),
        Write::Nothing => None,
    }
    .map(operation)
}

pub(super) fn operation(request: Request) -> RequestOp {
    RequestOp { request: Some(request) }
}

fn first_record(response: ResponseOp) -> Option<KeyValue> {
    let Some(Response::Range(range)) = response.response else { return None };
    range.kvs.into_iter().next()
}

fn key_bytes(key: &Key) -> Bytes {
    key.etcd_text().into()
}

#[cfg(test)]
mod tests {
    use model::Kind;

    use super::super::rpc::RangeResponse;
    use super::*;

    fn pool(name: &str) -> Key {
        Key::cluster(Kind::IpPool, name)
    }

    fn found(record: Option<i64>) -> ResponseOp {
        let kvs = record
            .map(|mod_revision| KeyValue { mod_revision, value: "{}".into(), ..KeyValue::default() })
            .into_iter()
            .collect();
        let range = RangeResponse { kvs, ..RangeResponse::default() };
        ResponseOp { response: Some(Response::Range(range)) }
    }

    #[test]
    fn the_first_precondition_that_fails_is_named() {
        let changes = [
            Change::update(pool("a"), "{}", 5.into()),
            Change::create(pool("b"), "{}"),
            Change::delete(pool("c"), 7.into()),
        ];
        let refuse = |records: [Option<i64>; 3]| refusal(&changes, records.map(found).into());
        assert!(matches!(refuse([None, None, None]), StoreError::NotFound { key } if key == pool("a")));
        assert!(matches!(refuse([Some(6), Some(3), None]), StoreError::Conflict { current }
            if current.key == pool("a") && current.revision == 6.into()));
        assert!(matches!(refuse([Some(5), Some(3), None]), StoreError::AlreadyExists { existing }
            if existing.key == pool("b")));
        assert!(matches!(refuse([Some(5), None, None]), StoreError::NotFound { key } if key == pool("c")));
    }

    #[test]
    fn a_revision_that_never_was_matches_nothing() {
        for text in ["0", "-3", "x", "", "007", "99999999999999999999"] {
            assert_eq!(expected(&Revision::new(text)), NEVER, "{text}");
        }
        assert_eq!(expected(&Revision::new("42")), 42);
    }
}
