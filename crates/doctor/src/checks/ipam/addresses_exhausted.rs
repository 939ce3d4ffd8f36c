//! Addresses: no address can be allocated.

use crate::case::Told;
use crate::checks::named::Report;
use crate::checks::words::listed;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "No address can be allocated",
    explanation: "The IPAM plugin reports that it has no address to give: every block that the node may use is full, no \
                  pool is enabled for it, or the range of host-local is used up by leaked addresses. Pods stay in \
                  ContainerCreating.",
    remedy: "run plumb ipam show --show-blocks and plumb ipam check to tell a full pool from leaked addresses; then \
             release what leaked, or add an IPPool",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::AddressesExhausted, look)
};

const REPORT: Report = Report { least: 2, passes: true, ..Report::of(Trouble::AddressesExhausted) };

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let off: Vec<String> = case
        .pools()
        .iter()
        .filter(|(pool, _)| !pool.is_enabled())
        .map(|(pool, _)| format!("{} ({})", pool.name, pool.cidr))
        .collect();
    let has_pools = case.pools().iter().any(|(pool, _)| pool.is_enabled());
    let is_without_pool = |told: &Told| told.message.contains("no configured Calico pools");
    let is_certain = !has_pools && case.told_of(Trouble::AddressesExhausted).iter().any(is_without_pool);
    let report = Report { least: if is_certain && !off.is_empty() { 1 } else { REPORT.least }, ..REPORT };
    let Some(finding) = report.tell(case, look, |place| format!("no address can be allocated on {place}"))
    else {
        return;
    };
    if !off.is_empty() {
        let whole = if has_pools { "these pools are disabled" } else { "every pool is disabled" };
        finding.because(format!("{whole}: {}", listed(&off)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "failed to request IPv4 addresses: Assigned 0 out of 1 requested IPv4 addresses; No more free affine blocks and strict affinity enabled";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 2));
        assert_eq!(finding.subject.to_string(), "node n1");
        assert_eq!(finding.summary, "no address can be allocated on node n1");
        silent(&CHECK, &said_otherwise());
        silent(&CHECK, &said(LINE, 1));
    }
}
