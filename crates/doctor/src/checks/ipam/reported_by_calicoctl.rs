//! What `calicoctl ipam check` found, where that is all there is.

use crate::checks::words::counted;
use crate::{Case, Certainty, Check, FindingCode, Look, Need, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    title: "calicoctl reports IPAM problems",
    explanation: "The evidence contains the output of calicoctl ipam check, which found addresses that are \
                  leaked, or used but not allocated. The output is repeated as it is, because the IPAM \
                  records themselves were not collected. calicoctl wrongly reports IPv6 tunnel addresses as \
                  leaked.",
    remedy: "collect the IPAM records themselves (plumb collect) and run plumb doctor again before you \
             release anything",
    needs: &[&[Need::Ipam]],
    certainty: Certainty::Certain,
    ..Check::warning(FindingCode::ReportedByCalicoctl, look)
};

/// Tunnel addresses that calicoctl does not know, and reports as leaked although they are in use.
const MISTAKEN: [&str; 2] = ["type:vxlanV6TunnelAddress", "type:wireguardV6TunnelAddress"];

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let Some(ipam) = case.evidence.ipam.as_ref() else { return };
    // With whole books at hand they speak for themselves.
    if ipam.whole.blocks {
        return;
    }
    let is_mistaken = |text: &str| MISTAKEN.iter().any(|kind| text.contains(kind));
    let problems: Vec<_> = ipam.reported.iter().filter(|problem| !is_mistaken(&problem.seen)).collect();
    if problems.is_empty() {
        return;
    }
    let exhibits = problems.iter().map(|problem| problem.exhibit(problem.seen.clone()));
    let summary = format!("calicoctl ipam check reports {}", counted(problems.len(), "problem"));
    look.found(Subject::Cluster, summary).seen_all(exhibits);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::{Evidence, Origin, Sighted};

    #[test]
    fn fires_for_problems_unless_the_records_are_there() {
        let mut evidence = Evidence { ipam: Some(Default::default()), ..Evidence::default() };
        silent(&CHECK, &evidence);
        let tunnel = "fd00::1 leaked; attrs map[node:c type:vxlanV6TunnelAddress]".to_owned();
        evidence.ipam.as_mut().unwrap().reported.push(Sighted::new(tunnel, Origin::file("check.txt")));
        silent(&CHECK, &evidence);
        let text = "10.0.0.1 leaked";
        let problem = Sighted::new(text.to_owned(), Origin::line("check.txt", 3, text));
        evidence.ipam.as_mut().unwrap().reported.push(problem);
        let finding = only(&CHECK, &evidence);
        assert_eq!((finding.evidence.len(), finding.evidence[0].text.as_str()), (1, text));
        evidence.ipam.as_mut().unwrap().whole.blocks = true;
        silent(&CHECK, &evidence);
    }
}
