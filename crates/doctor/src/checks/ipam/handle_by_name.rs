//! Identity is the sandbox: handles that carry a pod's name and nothing of its sandbox.

use std::collections::BTreeMap;

use model::{Cidr, HandleId, Key};

use super::exhibit;
use crate::checks::words::{counted, listed};
use crate::{Case, Certainty, Check, FindingCode, Look, Need, Subject};
use evidence::Exhibit;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Handles name a pod instead of a sandbox",
    explanation: "Addresses are allocated under handles of the form NAMESPACE.POD, as Calico's plugin did in \
                  2017. A pod that is recreated under the same name, as in a StatefulSet, shares the handle. \
                  A late DEL of the old sandbox then releases the address of the new one.",
    remedy: "upgrade the CNI plugin to a release whose handles contain the container ID. plumb repair ipam \
             --apply renames the handles of existing pods; recreated pods get new handles",
    needs: &[&[Need::Ipam]],
    certainty: Certainty::Certain,
    ..Check::warning(FindingCode::HandleByName, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let Some(ipam) = case.evidence.ipam.as_ref() else { return };
    for (cidr, block) in case.live_blocks() {
        let handles = block.attributes.iter().filter_map(|attribute| attribute.handle());
        let named: Vec<&HandleId> = handles.filter(|handle| handle.is_by_name()).collect();
        if !named.is_empty() {
            let words = format!("block {cidr} refers to handles {}", listed(&named));
            let exhibits = vec![exhibit(case, Key::Block(cidr), words)];
            tell(look, Subject::Block(cidr), &named, exhibits);
        }
    }
    let mut cut: BTreeMap<Option<Cidr>, (Vec<&HandleId>, Vec<Exhibit>)> = BTreeMap::new();
    for block in &ipam.cut_blocks {
        let (names, exhibits) = cut.entry(block.seen.cidr).or_default();
        for handle in block.seen.handles.iter().filter(|handle| handle.seen.is_by_name()) {
            names.push(&handle.seen);
            exhibits.push(handle.exhibit(format!("handle {}", handle.seen)));
        }
    }
    for (cidr, (names, exhibits)) in cut.into_iter().filter(|(_, (names, _))| !names.is_empty()) {
        tell(look, cidr.map_or(Subject::Cluster, Subject::Block), &names, exhibits);
    }
}

fn tell(look: &mut Look<'_>, subject: Subject, names: &[&HandleId], exhibits: Vec<Exhibit>) {
    let place = match &subject {
        Subject::Block(cidr) => format!("block {cidr}"),
        _ => "a block".to_owned(),
    };
    let summary =
        format!("{place} has {} that name only a pod: {}", counted(names.len(), "handle"), listed(names));
    look.found(subject, summary)
        .known_by("named")
        .because(
            "the next pod of that name shares the handle, and a release by handle releases the addresses of \
             both",
        )
        .seen_all(exhibits);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::books::CutBlock;
    use evidence::sample::small;
    use evidence::{Evidence, Origin, Sighted};

    #[test]
    fn fires_once_for_a_block() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let block = &mut evidence.ipam.as_mut().unwrap().books.blocks.values_mut().next().unwrap().value;
        block.attributes[0].handle_id = Some("default.web-0".into());
        block.attributes[1].handle_id = Some("default.web-1".into());
        let finding = only(&CHECK, &evidence);
        assert_eq!(
            finding.summary,
            "block 10.0.0.0/26 has 2 handles that name only a pod: default.web-0, default.web-1"
        );
    }

    #[test]
    fn fires_for_a_block_that_is_cut() {
        let handle = Sighted::new("default.web-0".into(), Origin::line("block.txt", 24, "\"handle_id\": …"));
        let cut = CutBlock { cidr: "10.0.0.0/26".parse().ok(), handles: vec![handle] };
        let mut evidence = Evidence { ipam: Some(Default::default()), ..Evidence::default() };
        evidence.ipam.as_mut().unwrap().cut_blocks.push(Sighted::new(cut, Origin::file("block.txt")));
        let finding = only(&CHECK, &evidence);
        assert_eq!(
            (finding.subject.to_string().as_str(), finding.evidence[0].line),
            ("block 10.0.0.0/26", Some(24))
        );
    }
}
