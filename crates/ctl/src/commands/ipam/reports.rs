//! Reading reports of checks, ours and calicoctl's, and what several of them agree on.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::Path;

use ipam::ReleaseItem;
use model::HandleId;
use serde::Deserialize;

use super::report::{Allocation, LeakedHandle};
use crate::compat;
use crate::failure::Failure;

/// Far more than the report of the largest cluster has.
const BYTES_MAX: u64 = 512 << 20;

/// A report, as far as it says what to release.
#[derive(Debug, PartialEq)]
pub(super) struct Report {
    pub(super) version: String,
    pub(super) cluster_guid: String,
    /// Of the cluster's own record, which changes with every lock.
    pub(super) cluster_revision: String,
    pub(super) leaks: Leaks,
}

/// What nobody uses.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Leaks {
    pub(super) addresses: BTreeMap<IpAddr, ReleaseItem>,
    pub(super) handles: BTreeMap<HandleId, LeakedHandle>,
}

/// As it is stored. What is not named here is for people.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    version: String,
    #[serde(rename = "clusterGUID")]
    cluster_guid: String,
    cluster_information_revision: String,
    /// By address. calicoctl writes null if there are none.
    allocations: Option<BTreeMap<String, Vec<Allocation>>>,
    #[serde(default)]
    leaked_handles: Option<Vec<LeakedHandle>>,
}

impl Report {
    pub(super) fn read(path: &Path) -> Result<Report, Failure> {
        let unable = |error: &dyn std::error::Error| {
            Failure::new(format!("cannot read the report {}", path.display())).caused_by(error)
        };
        let file = File::open(path)
            .map_err(|error| unable(&error).in_calicoctl(compat::open_error(path, &error)))?;
        let mut text = Vec::new();
        file.take(BYTES_MAX + 1).read_to_end(&mut text).map_err(|error| unable(&error))?;
        if text.len() as u64 > BYTES_MAX {
            return Err(Failure::new(format!("{} is larger than {BYTES_MAX} bytes", path.display())));
        }
        Report::parse(&text).map_err(|problem| {
            Failure::new(format!("{} is not a report of ipam check: {problem}", path.display()))
                .hint("nothing was released; create a new report with plumb ipam check -o FILE")
        })
    }

    fn parse(text: &[u8]) -> Result<Report, String> {
        let document: Document = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let mut leaks = Leaks::default();
        for (address, allocations) in document.allocations.unwrap_or_default() {
            leaks.add(&address, &allocations)?;
        }
        for handle in document.leaked_handles.unwrap_or_default() {
            if handle.id.is_empty() || handle.revision.is_empty() {
                return Err("a leaked handle has no ID or no revision".to_owned());
            }
            leaks.handles.insert(handle.id.clone(), handle);
        }
        Ok(Report {
            version: document.version,
            cluster_guid: document.cluster_guid,
            cluster_revision: document.cluster_information_revision,
            leaks,
        })
    }
}

impl Leaks {
    fn add(&mut self, under: &str, allocations: &[Allocation]) -> Result<(), String> {
        let address: IpAddr = under.parse().map_err(|_| format!("{under:?} is not an address"))?;
        for allocation in allocations {
            if allocation.ip.parse() != Ok(address) {
                return Err(format!("the entry {under} contains an allocation of {:?}", allocation.ip));
            }
            // Who is said to use an address need not be right about its being in use.
            if allocation.in_use || allocation.cooling_down {
                continue;
            }
            let Some(number) = allocation.sequence_number else {
                return Err(format!("the allocation of {address} has no sequence number"));
            };
            let handle = Some(allocation.handle.clone()).filter(|handle| !handle.is_empty());
            let item = ReleaseItem { address, handle, sequence_number: Some(number) };
            if self.addresses.insert(address, item).is_some() {
                return Err(format!(
                    "{address} is listed as leaked more than once; check it, then release it with --ip"
                ));
            }
        }
        Ok(())
    }

    /// What another report says too, of the very same allocations and handles.
    pub(super) fn also_in(mut self, other: &Leaks) -> Leaks {
        self.addresses.retain(|address, item| other.addresses.get(address) == Some(item));
        self.handles.retain(|id, handle| other.handles.get(id) == Some(handle));
        self
    }

    /// What all of the reports say.
    pub(super) fn in_all(reports: &[Report]) -> Leaks {
        let mut rest = reports.iter().map(|report| &report.leaks);
        let first = rest.next().cloned().unwrap_or_default();
        rest.fold(first, Leaks::also_in)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// As calicoctl writes it, cut down.
    fn calicoctls() -> Value {
        json!({"version": "v3.32.1", "clusterGUID": "0f", "datastoreLocked": true,
            "clusterInformationRevision": "8123", "clusterType": "k8s,kdd",
            "allocations": {
                "10.244.7.66": [{"ip": "10.244.7.66", "handle": "k8s-pod-network.0f3a",
                    "sequenceNumber": 1_787_380_400_123_456_794u64, "pod": "web-0", "namespace": "default",
                    "node": "node-a", "creationTimestamp": "x", "inUse": false, "borrowed": true, "owners": null}],
                "10.244.7.67": [{"ip": "10.244.7.67", "sequenceNumber": 5, "inUse": true, "owners": ["Node(a)"]}],
                "10.244.7.68": [{"ip": "10.244.7.68", "sequenceNumber": 6, "inUse": false, "coolingDown": true,
                    "owners": null}],
                "fd00::1": [{"ip": "fd00::1", "sequenceNumber": 7, "inUse": false, "owners": []}]},
            "leakedHandles": [{"ID": "k8s-pod-network.77", "UID": null, "Revision": "8100"}]})
    }

    fn parse(document: &Value) -> Result<Report, String> {
        Report::parse(document.to_string().as_bytes())
    }

    #[test]
    fn calicoctls_reports_are_understood() {
        let leaks = parse(&calicoctls()).unwrap().leaks;
        let items: Vec<&ReleaseItem> = leaks.addresses.values().collect();
        assert_eq!(items.len(), 2, "neither what is in use nor what cools down");
        assert_eq!(items[0].handle, Some("k8s-pod-network.0f3a".into()));
        assert_eq!(items[0].sequence_number, Some(1_787_380_400_123_456_794));
        assert_eq!((items[1].handle.clone(), items[1].sequence_number), (None, Some(7)));
        assert_eq!(leaks.handles["k8s-pod-network.77"].revision, "8100");
    }

    #[test]
    fn a_report_of_nothing_is_one() {
        for allocations in [json!({}), json!(null)] {
            let mut document = calicoctls();
            document["allocations"] = allocations;
            document.as_object_mut().unwrap().remove("leakedHandles");
            assert_eq!(parse(&document).unwrap().leaks, Leaks::default());
        }
    }

    #[test]
    fn what_is_wrong_is_refused_rather_than_guessed() {
        let spoilt = |path: &str, value: Value| {
            let mut document = calicoctls();
            match value {
                Value::Null => {
                    let (parent, field) = path.rsplit_once('/').unwrap();
                    document.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(field);
                }
                value => *document.pointer_mut(path).unwrap() = value,
            }
            parse(&document).unwrap_err()
        };
        let first = "/allocations/10.244.7.66/0";
        assert!(spoilt(&format!("{first}/inUse"), Value::Null).contains("inUse"));
        assert!(spoilt(&format!("{first}/sequenceNumber"), Value::Null).contains("no sequence number"));
        assert!(spoilt(&format!("{first}/sequenceNumber"), json!(-1)).contains("u64"));
        assert!(spoilt(&format!("{first}/sequenceNumber"), json!(1.5)).contains("u64"));
        assert!(spoilt(&format!("{first}/ip"), json!("10.244.7.67")).contains("the entry 10.244.7.66"));
        assert!(spoilt(&format!("{first}/ip"), json!("10.244.7.66/32")).contains("the entry 10.244.7.66"));
        assert!(spoilt("/clusterGUID", Value::Null).contains("clusterGUID"));
        assert!(spoilt("/version", json!(3)).contains("string"));
        assert!(spoilt("/leakedHandles/0/Revision", Value::Null).contains("Revision"));
        assert!(spoilt("/leakedHandles/0/ID", json!("")).contains("no ID"));
        let mut twice = calicoctls();
        let entry = twice["allocations"]["10.244.7.66"][0].clone();
        twice["allocations"]["10.244.7.66"].as_array_mut().unwrap().push(entry);
        assert!(parse(&twice).unwrap_err().contains("leaked more than once"));
        let mut elsewhere = calicoctls();
        elsewhere["allocations"]["somewhere"] = json!([]);
        assert!(parse(&elsewhere).unwrap_err().contains("\"somewhere\" is not an address"));
    }

    #[test]
    fn only_what_all_reports_say_counts() {
        let first = parse(&calicoctls()).unwrap();
        let mut later = calicoctls();
        later["allocations"]["fd00::1"][0]["sequenceNumber"] = json!(8);
        later["leakedHandles"][0]["Revision"] = json!("9000");
        let later = parse(&later).unwrap();
        let both = Leaks::in_all(&[first, later]);
        let addresses: Vec<String> = both.addresses.keys().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.244.7.66"], "the other one was given anew in between");
        assert!(both.handles.is_empty());
    }

    proptest! {
        #[test]
        fn anything_is_read_or_refused(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Report::parse(&text);
        }

        /// A report with one thing replaced by something else is refused, or lies about one address at most: about one
        /// that it knew, and without a way to make up another.
        #[test]
        fn a_spoilt_report_makes_up_no_address(place in 0usize..40, junk in prop_oneof![
            Just(json!(null)), Just(json!([])), Just(json!({})), any::<i64>().prop_map(|n| json!(n)),
            any::<bool>().prop_map(|b| json!(b)), "\\PC{0,8}".prop_map(|s| json!(s)),
        ]) {
            let mut document = calicoctls();
            let honest = parse(&document).unwrap().leaks;
            let mut count = place;
            replace_nth(&mut document, &mut count, &junk);
            if let Ok(report) = parse(&document) {
                let known = calicoctls()["allocations"].clone();
                let is_known = |address: &IpAddr| known.get(address.to_string()).is_some();
                prop_assert!(report.leaks.addresses.keys().all(is_known));
                prop_assert!(report.leaks.addresses.len() <= honest.addresses.len() + 1);
            }
        }

        #[test]
        fn what_is_written_is_read_again(
            ip: u32, handle in "[a-z.]{0,8}".prop_map(HandleId::from), number: u64, in_use: bool, cooling_down: bool,
        ) {
            let ip = IpAddr::V4(ip.into()).to_string();
            let allocation = Allocation {
                ip: ip.clone(), handle: handle.clone(), sequence_number: Some(number), pod: String::new(),
                namespace: String::new(), node: String::new(), kind: String::new(),
                creation_timestamp: String::new(), in_use, borrowed: false, cooling_down, owners: None,
            };
            let document = json!({"version": "v", "clusterGUID": "g", "clusterInformationRevision": "1",
                "allocations": {ip.clone(): [allocation]}});
            let leaks = parse(&document).unwrap().leaks;
            prop_assert_eq!(leaks.addresses.is_empty(), in_use || cooling_down);
            for item in leaks.addresses.values() {
                prop_assert_eq!(item.sequence_number, Some(number));
                prop_assert_eq!(item.handle.clone().unwrap_or_default(), handle.clone());
            }
        }
    }

    /// Walks through a document and replaces the value it comes to after so many others.
    fn replace_nth(value: &mut Value, count: &mut usize, junk: &Value) {
        if *count == 0 {
            *value = junk.clone();
            *count = usize::MAX;
            return;
        }
        *count -= 1;
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| replace_nth(item, count, junk)),
            Value::Object(fields) => fields.values_mut().for_each(|item| replace_nth(item, count, junk)),
            _ => {}
        }
    }
}
