//! BGP: the two sides of a session have different passwords.

use super::{sessions, tell};
use crate::{Case, Check, FindingCode, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "BGP session fails to authenticate",
    explanation: "The two sides of a BGP session have different passwords, or only one side has a password. \
                  The kernel drops segments with a wrong signature, so BIRD often sees only a timeout. \
                  Here, BIRD reports an authentication error.",
    remedy: "check that the secret named in BGPPeer.spec.password matches the password on the router, and \
             that calico-node is allowed to read it",
    needs: &[&[Need::Bgp]],
    ..Check::error(FindingCode::BgpPasswordWrong, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for (node, session) in sessions(case).filter(|(_, session)| !session.seen.is_established()) {
        let info = session.seen.info.to_lowercase();
        if ["authentication", "md5", "key was rejected"].iter().any(|word| info.contains(word)) {
            let summary = format!("{node} and {} do not agree on a BGP password", session.seen.peer);
            tell(look, node, session, summary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    #[test]
    fn fires_where_the_session_says_so() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let session = &mut evidence.node_mut("worker-0000").bgp.as_mut().unwrap().sessions[0].seen;
        session.info = "Idle BGP Error: Authentication failure".to_owned();
        assert_eq!(only(&CHECK, &evidence).subject.to_string(), "BGP session worker-0000 to 172.16.0.2");
    }
}
