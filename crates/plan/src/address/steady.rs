//! Choosing again while the node runs: a card that flaps or is added does not move it.

use ipnet::IpNet;

use super::{Choice, Why};

/// For how many looks in a row another address must be the better one before the node moves to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    pub looks: u32,
}

/// What the node is known by, and what it may become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steady {
    current: Option<IpNet>,
    /// What the last looks agreed on instead, and how many they were.
    other: Option<(IpNet, u32)>,
    patience: Patience,
}

/// What is to be done after a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything is as it was.
    Stay,
    /// Something else would be chosen, but it is too early to tell. With what it is, and how many looks are left.
    Wait { other: Option<IpNet>, looks_left: u32 },
    /// The node is known by another address from now on.
    Move { from: Option<IpNet>, to: IpNet },
}

impl Steady {
    pub fn new(current: Option<IpNet>, patience: Patience) -> Steady {
        Steady { current, other: None, patience }
    }

    pub fn current(&self) -> Option<IpNet> {
        self.current
    }

    /// Takes in what would be chosen now. What the operator has said holds at once, and so does a first address; an
    /// address that is lost is kept: nobody is better off with none, and it may come back.
    pub fn look(&mut self, choice: &Choice) -> Verdict {
        let Some(chosen) = &choice.address else {
            self.other = None;
            let looks_left = self.patience.looks;
            return if self.current.is_some() {
                Verdict::Wait { other: None, looks_left }
            } else {
                Verdict::Stay
            };
        };
        let to = chosen.network;
        if self.current == Some(to) {
            self.other = None;
            return Verdict::Stay;
        }
        let count = match self.other {
            Some((other, count)) if other == to => count + 1,
            _ => 1,
        };
        let is_same_address = self.current.is_some_and(|current| current.addr() == to.addr());
        if chosen.why == Why::Said
            || self.current.is_none()
            || is_same_address
            || count >= self.patience.looks
        {
            self.other = None;
            return Verdict::Move { from: self.current.replace(to), to };
        }
        self.other = Some((to, count));
        Verdict::Wait { other: Some(to), looks_left: self.patience.looks - count }
    }
}
