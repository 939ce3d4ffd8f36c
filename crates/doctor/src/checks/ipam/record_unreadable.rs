//! Books agree: records of address management that cannot be read at all.

use model::Key;

use super::exhibit;
use crate::checks::words::listed;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "IPAM or network record cannot be read",
    explanation: "A block, handle, affinity, endpoint, node or pool record in the store is malformed: it is \
                  not JSON, or has fields of the wrong type. No address can be allocated or released in such \
                  a block, and pods on that node may get no address at all. Anything the record might hold \
                  is treated as in use: nothing that could belong to it is reported as leaked or unused, and \
                  no repair removes it.",
    remedy: "inspect the record. plumb repair ipam --apply rebuilds a block from the current users of its \
             addresses, and a handle or an affinity from the blocks. Restore an endpoint, node or pool from \
             a backup",
    needs: &[&[Need::Ipam]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::RecordUnreadable, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for corrupt in case.evidence.ipam.iter().flat_map(|ipam| &ipam.books.unreadable) {
        let why = corrupt.contradictions.join("; ");
        let finding = look.found(corrupt.key.clone(), format!("{} cannot be read: {why}", corrupt.key));
        finding.seen(exhibit(case, corrupt.key.clone(), why));
        let Key::Block(cidr) = &corrupt.key else { continue };
        let used = case.books_view().and_then(|view| view.unreadable_blocks.get(cidr));
        if let Some(used) = used.filter(|used| !used.is_empty()) {
            finding.because(format!("{} of its addresses are in use: {}", used.len(), listed(used)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::{Origin, sample::small};

    #[test]
    fn fires_for_a_handle_that_is_no_json() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let key = Key::Handle("h".into());
        let origin = Origin::line("dump.txt", 4, "{oops");
        evidence.ipam.as_mut().unwrap().add(key, b"{oops", origin);
        let finding = only(&CHECK, &evidence);
        assert_eq!(finding.subject.to_string(), "handle h");
        assert_eq!(finding.evidence[0].line, Some(4));
    }
}
