//! Several lookups as one etcd transaction that only reads, so that all answers show one moment.

use std::sync::Arc;

use bytes::Bytes;

use super::client::{CallError, Client, Effect};
use super::commit::{operation, read};
use super::failure::Refusal;
use super::list::record;
use super::rpc::request_op::Request;
use super::rpc::response_op::Response;
use super::rpc::{RangeRequest, RequestOp, ResponseOp, TxnRequest, TxnResponse};
use crate::request::interval;
use crate::{Lookup, MAX_CHANGES, Record, StoreError};

const OPERATION: &str = "reading records in etcd";
/// How often a long read starts over because etcd forgot its moment between two parts.
const STARTS_MAX: usize = 3;

/// The answers, in order. etcd takes [`MAX_CHANGES`] operations in one transaction; what goes beyond follows
/// in further ones that read the past: the moment the first one showed.
pub(super) async fn all(client: &Arc<Client>, lookups: &[Lookup]) -> Result<Vec<Vec<Record>>, StoreError> {
    let mut starts = 1;
    loop {
        match at_one_moment(client, lookups).await {
            Ok(answers) => return Ok(answers),
            Err(CallError::Refused { refusal: Refusal::Compacted, .. }) if starts < STARTS_MAX => starts += 1,
            Err(error) => return Err(error.into_store_error(OPERATION)),
        }
    }
}

async fn at_one_moment(client: &Arc<Client>, lookups: &[Lookup]) -> Result<Vec<Vec<Record>>, CallError> {
    let mut answers = Vec::with_capacity(lookups.len());
    let mut moment = 0;
    for part in lookups.chunks(MAX_CHANGES) {
        let answer = client.call(transaction(part, moment), Effect::Reads).await?;
        if moment == 0 {
            moment = answer.header.as_ref().map_or(0, |header| header.revision);
        }
        answers.extend(records(answer, part.len())?);
    }
    Ok(answers)
}

/// `revision` 0 stands for now.
fn transaction(lookups: &[Lookup], revision: i64) -> TxnRequest {
    let operation = |lookup| range_operation(lookup, revision);
    TxnRequest { success: lookups.iter().map(operation).collect(), ..TxnRequest::default() }
}

fn range_operation(lookup: &Lookup, revision: i64) -> RequestOp {
    let range = match lookup {
        Lookup::Record(key) => RangeRequest { revision, ..read(key) },
        Lookup::Range(range) => {
            let (first, end) = interval(range);
            RangeRequest { key: first.into(), range_end: end.into(), limit: 0, revision }
        }
    };
    operation(Request::Range(range))
}

/// One list of records for each operation. A missing answer must not look like a missing record.
fn records(answer: TxnResponse, operations: usize) -> Result<Vec<Vec<Record>>, CallError> {
    let answers: Vec<Vec<Record>> = answer.responses.into_iter().filter_map(range_records).collect();
    if answers.len() != operations {
        let source = format!("etcd answered {} of {operations} questions", answers.len()).into();
        return Err(CallError::Failed(StoreError::Other { operation: OPERATION.to_owned(), source }));
    }
    Ok(answers)
}

/// The values are copied out: they are small and may be kept for long, and must not hold the buffer of the whole
/// answer for that time.
fn range_records(response: ResponseOp) -> Option<Vec<Record>> {
    let Response::Range(range) = response.response?;
    let found = range.kvs.into_iter().filter_map(record);
    Some(found.map(|record| Record { value: Bytes::copy_from_slice(&record.value), ..record }).collect())
}
