//! Whether the modules that read what strangers wrote may neither index nor slice. An attribute at the top of a file is lost when the file is
//! divided or moved, and nothing says so.

use anyhow::Result;

use super::Verdict;
use crate::workspace;

/// The files whose modules, with all below them, are readers.
const READERS: &[&str] = &[
    "crates/agent/src/node/protocol.rs",
    "crates/agent/src/verbs/netconf/mod.rs",
    "crates/agent/src/verbs/request.rs",
    "crates/controller/src/lib.rs",
    "crates/ctl/src/output/go_template/mod.rs",
    "crates/ctl/src/texts/mod.rs",
    "crates/doctor/src/timeline/mod.rs",
    "crates/evidence/src/lib.rs",
    "crates/gather/src/lib.rs",
    "crates/host/src/between/read.rs",
    "crates/host/src/bird.rs",
    "crates/host/src/cri/mod.rs",
    "crates/host/src/netlink/frame.rs",
    "crates/host/src/netlink/message.rs",
    "crates/host/src/objects.rs",
    "crates/host/src/probe/packet.rs",
    "crates/host/src/survey/read.rs",
    "crates/intake/src/lib.rs",
    "crates/model/src/cidr.rs",
    "crates/model/src/duration.rs",
    "crates/model/src/handle_id.rs",
    "crates/model/src/ipam/mod.rs",
    "crates/model/src/key.rs",
    "crates/model/src/kube/views/mod.rs",
    "crates/model/src/manifest/mod.rs",
    "crates/model/src/resource.rs",
    "crates/model/src/selector/mod.rs",
    "crates/model/src/text/mod.rs",
    "crates/store/src/config.rs",
    "crates/wire/src/lib.rs",
];

/// Tests may index what they made.
const ATTRIBUTE: &str = "#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]";

pub(super) fn check() -> Result<Verdict> {
    let root = workspace::root();
    let faults = READERS.iter().filter_map(|reader| {
        let text = std::fs::read_to_string(root.join(reader)).ok();
        fault(reader, text.as_deref())
    });
    Ok(Verdict::Faults(faults.collect()))
}

fn fault(reader: &str, text: Option<&str>) -> Option<String> {
    match text {
        Some(text) if text.lines().any(|line| line == ATTRIBUTE) => None,
        Some(_) => Some(format!("{reader}: reads what strangers wrote, but lacks {ATTRIBUTE}")),
        None => Some(format!(
            "{reader}: cannot be read; name the file that reads in its place in xtask/src/tidy/readers.rs"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_without_the_attribute_and_those_that_were_moved_are_named() {
        assert_eq!(fault("read.rs", Some(&format!("//! Reads.\n\n{ATTRIBUTE}\n\nmod a;\n"))), None);
        let lacking = fault("read.rs", Some("//! Reads.\n\nmod a;\n")).unwrap();
        assert!(lacking.starts_with("read.rs: reads what strangers wrote, but lacks "), "{lacking}");
        assert!(fault("read.rs", Some(&format!("// {ATTRIBUTE}\n"))).is_some(), "a comment is none");
        assert!(fault("gone.rs", None).unwrap().starts_with("gone.rs: cannot be read"));
    }
}
