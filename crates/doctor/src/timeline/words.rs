//! Episodes in words: one sentence, and the steps behind it.

use std::fmt::Display;

use super::{Episode, Fate, Replaced, RetryLoop, StaleDel};

impl Episode {
    /// A word for its sort.
    pub fn sort(&self) -> &'static str {
        match self {
            Episode::StaleDel(_) => "stale DEL",
            Episode::RetryLoop(_) => "retry loop",
            Episode::Replaced(_) => "replaced pod",
        }
    }

    /// One sentence without a full stop.
    pub fn summary(&self) -> String {
        match self {
            Episode::StaleDel(stale) => stale.summary(),
            Episode::RetryLoop(retries) => retries.summary(),
            Episode::Replaced(replaced) => replaced.summary(),
        }
    }

    /// What happened, step by step, and what the log does not show.
    pub fn steps(&self) -> Vec<String> {
        match self {
            Episode::StaleDel(stale) => stale.steps(),
            Episode::RetryLoop(retries) => vec![format!("the first error was: {}", retries.error)],
            Episode::Replaced(replaced) => replaced.steps(),
        }
    }
}

impl StaleDel {
    pub fn summary(&self) -> String {
        let took = match (self.is_endpoint_deleted, self.fate) {
            (true, Fate::Freed) => "deleted the endpoint and freed the address of",
            (true, _) => "deleted the endpoint of",
            (false, _) => "released what belongs to",
        };
        format!(
            "a late DEL of the old sandbox {} {took} the new sandbox {} of pod {}",
            short(&self.old_sandbox),
            short(&self.new_sandbox),
            self.pod
        )
    }

    pub fn steps(&self) -> Vec<String> {
        let (old, new) = (short(&self.old_sandbox), short(&self.new_sandbox));
        let mut steps = Vec::new();
        if let Some(error) = &self.failed_before {
            steps.push(format!("an earlier DEL of {old} failed ({error}), so it was to be tried again"));
        }
        let addresses = listed(&self.addresses);
        let device = self.device.as_ref().map(|device| format!(", device {device}")).unwrap_or_default();
        steps.push(format!(
            "{}: {new} was added for the same pod name: {addresses}{device}",
            time(self.added_at)
        ));
        steps.push(format!(
            "{}: DEL of {old}, whose records carry the pod's name only",
            time(self.deleted_at)
        ));
        if let Some(handle) = &self.handle {
            steps.push(format!("it released by handle {handle}, which both sandboxes share"));
        }
        if self.is_endpoint_deleted {
            steps.push(format!(
                "it deleted the endpoint, which by then was {new}'s: the pod is cut off since"
            ));
        }
        match self.fate {
            Fate::Freed => steps.push(format!("the handle is gone: {addresses} counts as free while in use")),
            Fate::NotShown => {
                steps.push(format!("the log does not show what became of {addresses} in the address book"))
            }
            Fate::Kept => {}
        }
        steps
    }
}

impl RetryLoop {
    pub fn summary(&self) -> String {
        format!(
            "{} of {} DELs of sandbox {} of pod {} failed, from {} to {}",
            self.failures,
            self.tries,
            short(&self.sandbox),
            self.pod,
            time(self.first_at),
            time(self.last_at)
        )
    }
}

impl Replaced {
    pub fn summary(&self) -> String {
        let within = self.within.map(|within| format!(" within {} s", within.as_secs())).unwrap_or_default();
        format!(
            "pod {} was replaced{within} by one with {} instead of {}, and no DEL of the old one is in the log",
            self.pod, self.new_address, self.old_address
        )
    }

    pub fn steps(&self) -> Vec<String> {
        let mut steps = vec![
            format!(
                "UID {} had {}, UID {} has {}",
                self.old_uid, self.old_address, self.new_uid, self.new_address
            ),
            format!(
                "without a DEL, {} and whatever else the old one had may be left behind",
                self.old_address
            ),
        ];
        if let Some(interface) = &self.interface_missing {
            steps.push(format!("the kubelet missed {interface} in the pod"));
        }
        steps
    }
}

fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

fn time(at: Option<impl Display>) -> String {
    at.map_or_else(|| "at an unknown time".to_owned(), |at| at.to_string().replace('T', " "))
}

fn listed(addresses: &[std::net::IpAddr]) -> String {
    if addresses.is_empty() {
        return "an address that is not shown".to_owned();
    }
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
