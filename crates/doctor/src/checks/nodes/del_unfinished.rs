//! No orphans: DELs that were answered and never done.

use jiff::{SignedDuration, Timestamp};

use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Sighted;
use evidence::node::UnfinishedDel;

/// The agent tries again every minute at the latest.
const WAITS_MAX: SignedDuration = SignedDuration::from_mins(10);

pub(in crate::checks) const CHECK: Check = Check {
    title: "DELs are acknowledged but not carried out",
    explanation: "A DEL that cannot be carried out immediately (no agent, no store) is queued on its node \
                  and answered with success, so that the pod can be deleted. The agent carries it out as \
                  soon as it can. A DEL that has been queued for more than 10 minutes is failing repeatedly, \
                  and one that was set aside is no longer retried. In both cases its sandbox's record, \
                  address and device remain.",
    remedy: "check the agent's log on the node for the reason. What is left of a DEL that was set aside is \
             reported and repaired under codes of its own. After that, remove the DEL's *.broken file from \
             the agent's queue directory (/var/lib/plumb/queue)",
    needs: &[&[Need::Setup]],
    certainty: Certainty::Certain,
    ..Check::warning(FindingCode::DelUnfinished, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for node in case.evidence.nodes.values() {
        let all = node.unfinished_dels.as_deref().unwrap_or_default();
        let stuck: Vec<&Sighted<UnfinishedDel>> =
            all.iter().filter(|del| is_stuck(&del.seen, case.evidence.taken_at)).collect();
        if stuck.is_empty() {
            continue;
        }
        let aside = stuck.iter().filter(|del| del.seen.is_set_aside).count();
        let mut words = Vec::new();
        match stuck.len() - aside {
            0 => {}
            1 => words.push("one DEL that has been queued for over 10 minutes".to_owned()),
            more => words.push(format!("{more} DELs that have been queued for over 10 minutes")),
        }
        match aside {
            0 => {}
            1 => words.push("one DEL that failed and was set aside".to_owned()),
            more => words.push(format!("{more} DELs that failed and were set aside")),
        }
        let finding = look.found(&node.name, format!("node {} has {}", node.name, words.join(" and ")));
        finding.known_by("queue");
        finding.seen_all(stuck.iter().take(EXHIBITS_MAX).map(|del| del.exhibit(described(&del.seen))));
    }
}

/// The others look the same.
const EXHIBITS_MAX: usize = 5;

fn described(del: &UnfinishedDel) -> String {
    let whose = del.container_id.as_ref().map_or_else(String::new, |id| format!(" of sandbox {id}"));
    let state = if del.is_set_aside { "set aside" } else { "queued" };
    format!("{}{whose}: {state} since {}", del.file, del.since)
}

fn is_stuck(del: &UnfinishedDel, now: Option<Timestamp>) -> bool {
    del.is_set_aside || now.is_some_and(|now| now.duration_since(del.since) > WAITS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;
    use evidence::{Evidence, Origin};

    fn with(minutes: i64, is_set_aside: bool) -> Evidence {
        let mut evidence = small();
        let since = evidence.taken_at.unwrap() - SignedDuration::from_mins(minutes);
        let container_id = (!is_set_aside).then(|| "c0ffee".to_owned());
        let del = UnfinishedDel { file: "del-1".to_owned(), since, container_id, is_set_aside };
        let origin = Origin::probe("worker-0000", "queue");
        evidence.node_mut("worker-0000").unfinished_dels = Some(vec![Sighted::new(del, origin)]);
        evidence
    }

    #[test]
    fn fires_for_what_waits_long_and_for_what_nobody_tries() {
        let finding = only(&CHECK, &with(11, false));
        assert_eq!(finding.summary, "node worker-0000 has one DEL that has been queued for over 10 minutes");
        assert!(finding.evidence[0].text.starts_with("del-1 of sandbox c0ffee: queued since"));
        assert_eq!(
            only(&CHECK, &with(0, true)).summary,
            "node worker-0000 has one DEL that failed and was set aside"
        );
    }

    #[test]
    fn stays_silent_while_the_agent_is_at_it() {
        silent(&CHECK, &with(9, false));
        silent(&CHECK, &small());
    }
}
