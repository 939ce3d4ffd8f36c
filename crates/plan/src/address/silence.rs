//! Silence is judged by several looks. A node that comes back with another card is not heard until the others have forgotten the old one.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::probe::{Probe, unanswered};

/// For how many looks in a row each address was not answered to, while another was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Silences {
    looks: BTreeMap<IpAddr, u32>,
}

impl Silences {
    /// How many looks in a row it takes.
    pub const LOOKS: u32 = 4;

    /// Takes in a look, and takes away what is too early to be judged by.
    pub fn judge(&mut self, probes: &mut Vec<Probe>) {
        let silent: Vec<IpAddr> = probes
            .iter()
            .map(|probe| probe.from)
            .filter(|from| unanswered(probes, *from).is_some())
            .collect();
        self.looks.retain(|address, _| silent.contains(address));
        for address in silent {
            let looks = self.looks.entry(address).or_default();
            *looks = looks.saturating_add(1).min(Self::LOOKS);
            if *looks < Self::LOOKS {
                probes.retain(|probe| probe.from != address);
            }
        }
    }

    /// Somebody is not answered to: the next look should not be long in coming, whatever this one has shown.
    pub fn is_any(&self) -> bool {
        !self.looks.is_empty()
    }

    /// Those that are silent, and for how many looks.
    pub fn iter(&self) -> impl Iterator<Item = (IpAddr, u32)> {
        self.looks.iter().map(|(address, looks)| (*address, *looks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probes(answered: &[&str]) -> Vec<Probe> {
        let asked = ["10.0.0.2".parse().unwrap()];
        let probe = |from: &str| Probe {
            from: from.parse().unwrap(),
            asked: asked.into(),
            answered: if answered.contains(&from) { asked.into() } else { Default::default() },
        };
        ["10.0.0.1", "10.9.0.1"].map(probe).to_vec()
    }

    fn is_judged(silences: &mut Silences, answered: &[&str]) -> bool {
        let mut seen = probes(answered);
        silences.judge(&mut seen);
        unanswered(&seen, "10.0.0.1".parse().unwrap()).is_some()
    }

    #[test]
    fn one_look_is_no_verdict_and_an_answer_ends_it() {
        let mut silences = Silences::default();
        for _ in 1..Silences::LOOKS {
            assert!(!is_judged(&mut silences, &["10.9.0.1"]));
            assert!(silences.is_any());
        }
        assert!(is_judged(&mut silences, &["10.9.0.1"]));
        assert!(is_judged(&mut silences, &["10.9.0.1"]), "it stays so");
        assert!(!is_judged(&mut silences, &["10.0.0.1", "10.9.0.1"]));
        assert!(!silences.is_any());
        assert!(!is_judged(&mut silences, &["10.9.0.1"]), "it is counted anew");
        // Nobody answers at all: that says nothing.
        assert!(!is_judged(&mut silences, &[]));
        assert!(!silences.is_any());
    }
}
