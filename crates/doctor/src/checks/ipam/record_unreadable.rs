//! Books agree: records of address management that cannot be read at all.

use super::exhibit;
use crate::{Case, Check, Look, Need, Settles, Severity};

pub(in crate::checks) const CHECK: Check = Check {
    code: "record-unreadable",
    severity: Severity::Error,
    title: "A record of the books that cannot be read",
    explanation: "A block, handle or affinity in the store is not what it should be: no JSON, or with \
                  fields of the wrong kind. Nobody can allocate or release there, and pods on that node may \
                  get no address at all.",
    remedy: "look at the record; plumb repair ipam writes a handle or an affinity anew from the blocks; a block \
             has to be restored from a backup",
    needs: &[&[Need::Ipam]],
    settles: Settles::AtOnce,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for corrupt in case.evidence.ipam.iter().flat_map(|ipam| &ipam.books.unreadable) {
        let why = corrupt.contradictions.join("; ");
        look.found(corrupt.key.clone(), format!("{} cannot be read: {why}", corrupt.key)).seen(exhibit(
            case,
            corrupt.key.clone(),
            why,
        ));
    }
}

#[cfg(test)]
mod tests {
    use model::Key;

    use super::*;
    use crate::checks::testing::{only, silent};
    use crate::{Origin, sample::small};

    #[test]
    fn fires_for_a_handle_that_is_no_json() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let key = Key::Handle("h".to_owned());
        let origin = Origin::line("dump.txt", 4, "{oops");
        evidence.ipam.as_mut().unwrap().add(key, b"{oops", origin);
        let finding = only(&CHECK, &evidence);
        assert_eq!(finding.subject.to_string(), "handle h");
        assert_eq!(finding.evidence[0].line, Some(4));
    }
}
