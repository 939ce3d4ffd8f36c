//! Reports to show.

use doctor::{Check, Finding, Look, Report, Severity, Subject, checks};
use evidence::Origin;
use evidence::PodName;
use evidence::Unseen;
use model::FindingCode;

/// A finding of a real check.
pub(crate) fn finding(code: FindingCode, subject: impl Into<Subject>, summary: &str) -> Finding {
    let check = checks::find(code);
    let mut look = Look::new(check);
    look.found(subject, summary);
    look.findings()[0].clone()
}

/// One of each severity; the second explains nothing, the first has everything.
pub(crate) fn mixed() -> Report {
    let mut shared = finding(FindingCode::AddressShared, address(7), "2 endpoints have address 10.0.0.7");
    shared.because("traffic to the address reaches one of them");
    shared.seen(Origin::line("wep.txt", 3, "node-a k8s shop.cart eth0 10.0.0.7/32").exhibit(""));
    shared.seen(Origin::Store("/calico/x".into()).exhibit("it holds 10.0.0.7"));
    let mut slow = finding(FindingCode::PoolOverlap, Subject::node("node-b"), "it waits for something");
    slow.severity(Severity::Warning);
    let mut noted = finding(
        FindingCode::PoolOverlap,
        Subject::Pod(PodName::new("shop", "cart-0")),
        "it is worth knowing",
    );
    noted.severity(Severity::Info);
    Report {
        findings: vec![shared, slow, noted],
        unseen: vec![Unseen::Reported("logs were not collected".to_owned())],
        ..Report::default()
    }
}

/// Very many findings of one sort.
pub(crate) fn huge(count: u32) -> Report {
    let check: &Check = checks::find(FindingCode::AddressShared);
    let mut look = Look::new(check);
    for number in 0..count {
        let [_, b, c, d] = number.to_be_bytes();
        let address = std::net::IpAddr::from([10, b, c, d]);
        look.found(address, format!("2 endpoints have address {address}"))
            .because("nobody knows why")
            .seen(Origin::Store("/calico/x".into()).exhibit(format!("it holds {address}")));
    }
    Report { findings: look.findings().to_vec(), unseen: Vec::new(), ..Report::default() }
}

fn address(last: u8) -> std::net::IpAddr {
    [10, 0, 0, last].into()
}
