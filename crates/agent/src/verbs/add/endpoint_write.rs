//! How the endpoint record of an ADD is written: what is there decides, and how the store keeps endpoints.

use book::Addition;
use model::{Resource, is_detached};
use store::{Change, Record};

/// The way to write it.
#[derive(Clone, Debug)]
pub(super) enum EndpointWrite {
    /// The store keeps no record of such an attachment.
    Nothing,
    /// There is no record yet.
    Create,
    /// In place of a record that must still be as it was read.
    Replace(Record, Resource),
    /// Onto the pod of this record, which has no sandbox. Whatever else changes on the pod at the same time does not matter, but it
    /// must be the same pod.
    Attach(Record, Resource),
}

impl EndpointWrite {
    /// Where endpoints are records of their own.
    pub(super) fn of_record(found: Option<(Record, Resource)>) -> EndpointWrite {
        match found {
            Some((record, resource)) => EndpointWrite::Replace(record, resource),
            None => EndpointWrite::Create,
        }
    }

    /// Where they are views of pods.
    pub(super) fn of_view((record, resource): (Record, Resource)) -> EndpointWrite {
        if is_detached(&record.value) && resource.metadata.uid.is_some() {
            EndpointWrite::Attach(record, resource)
        } else {
            EndpointWrite::Replace(record, resource)
        }
    }

    /// The record as it is. Its metadata stay.
    pub(super) fn earlier(&self) -> Option<&Resource> {
        match self {
            EndpointWrite::Nothing | EndpointWrite::Create => None,
            EndpointWrite::Replace(_, resource) | EndpointWrite::Attach(_, resource) => Some(resource),
        }
    }

    /// What has to be there again if the ADD fails: the record of an earlier sandbox of the same pod.
    pub(super) fn into_replaced(self) -> Option<Record> {
        match self {
            EndpointWrite::Replace(record, _) => Some(record).filter(|record| !is_detached(&record.value)),
            EndpointWrite::Nothing | EndpointWrite::Create | EndpointWrite::Attach(..) => None,
        }
    }

    /// How many changes it takes.
    pub(super) fn count(&self) -> usize {
        usize::from(!matches!(self, EndpointWrite::Nothing))
    }

    /// The change, with what the address book needs to take it back.
    pub(super) fn addition(&self, resource: &Resource) -> Option<Addition> {
        let value = resource.encode();
        match self {
            EndpointWrite::Nothing => None,
            EndpointWrite::Create => Some(Addition::create(resource.key(), value)),
            EndpointWrite::Replace(record, _) => Some(Addition::replace(record, value)),
            EndpointWrite::Attach(record, earlier) => {
                Some(Addition::attach(record.key.clone(), value, uid(earlier)))
            }
        }
    }

    /// The change alone.
    pub(super) fn change(&self, resource: &Resource) -> Option<Change> {
        let value = resource.encode();
        match self {
            EndpointWrite::Nothing => None,
            EndpointWrite::Create => Some(Change::create(resource.key(), value)),
            EndpointWrite::Replace(record, _) => {
                Some(Change::update(record.key.clone(), value, record.revision.clone()))
            }
            EndpointWrite::Attach(record, earlier) => {
                Some(Change::update_view(record.key.clone(), value, uid(earlier)))
            }
        }
    }
}

fn uid(of: &Resource) -> String {
    of.metadata.uid.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use model::{Key, Kind};
    use store::{Precondition, Revision};

    use super::*;

    fn found(spec: &str) -> (Record, Resource) {
        let key = Key::namespaced(Kind::WorkloadEndpoint, "shop", "n-k8s-web-eth0");
        let value = format!(
            r#"{{"kind":"WorkloadEndpoint","metadata":{{"name":"n-k8s-web-eth0","namespace":"shop","uid":"u-1"}},"spec":{spec}}}"#
        );
        let record = Record { key: key.clone(), value: value.into(), revision: Revision::new("7") };
        let resource = Resource::decode(&key, Kind::WorkloadEndpoint, &record.value, "7").unwrap();
        (record, resource)
    }

    #[test]
    fn a_pod_without_a_sandbox_is_fenced_by_its_uid_and_one_with_by_its_revision() {
        let detached = EndpointWrite::of_view(found(r#"{"node":"n"}"#));
        let resource = detached.earlier().unwrap().clone();
        let change = detached.change(&resource).unwrap();
        assert_eq!(change.precondition, Precondition::Uid("u-1".to_owned()));
        assert_eq!(detached.into_replaced(), None);
        let attached = EndpointWrite::of_view(found(r#"{"containerID":"c","ipNetworks":["10.0.0.1/32"]}"#));
        let change = attached.change(&resource).unwrap();
        assert_eq!(change.precondition, Precondition::At(Revision::new("7")));
        assert!(attached.into_replaced().is_some(), "a failed ADD restores it");
        assert_eq!(EndpointWrite::Nothing.change(&resource), None);
        assert_eq!((EndpointWrite::Nothing.count(), EndpointWrite::Create.count()), (0, 1));
    }
}
