//! Which crate may use which. The order of the table is the architecture: a crate uses only crates above it.

use anyhow::Result;

use super::Verdict;
use crate::metadata::{Dependency, Metadata, Package};

/// Each crate with the crates it may use. Whoever adds a crate gives it a row.
const MAY_USE: &[(&str, &[&str])] = &[
    // what programs say to the agent
    ("wire", &[]),
    // decisions
    ("model", &[]),
    ("ipam", &["model"]),
    ("plan", &["model"]),
    // It decides which packets pass; what a node's kernel must hold besides is `plan`'s.
    ("policy", &["model"]),
    ("evidence", &["model", "ipam", "plan"]),
    ("intake", &["model", "ipam", "evidence"]),
    ("doctor", &["model", "ipam", "plan", "evidence"]),
    ("repair", &["model", "ipam", "plan", "evidence", "doctor"]),
    ("render", &["model", "evidence", "doctor", "repair"]),
    // edges
    ("host", &["model", "plan", "policy"]),
    ("store", &["model"]),
    ("book", &["model", "ipam", "store"]),
    ("gather", &["wire", "model", "ipam", "plan", "evidence", "host", "store", "book"]),
    ("mend", &["wire", "model", "ipam", "plan", "evidence", "doctor", "repair", "store", "book", "gather"]),
    // pages over HTTP: knows nothing of what they say
    ("health", &[]),
    // proving grounds
    ("testkit", &[]),
    ("sim", &["model", "ipam", "store", "book", "testkit"]),
    ("lab", &["model", "ipam", "plan", "doctor", "repair", "host", "store", "book", "testkit"]),
    // what a cluster needs once; `plumbd` has it beside the agent
    (
        "controller",
        &["model", "evidence", "doctor", "repair", "host", "store", "book", "gather", "mend", "health"],
    ),
    // programs. The CNI plugin stays small: it shares only the words with the rest.
    ("cni", &["wire"]),
    (
        "agent",
        &[
            "wire",
            "model",
            "ipam",
            "plan",
            "policy",
            "evidence",
            "doctor",
            "host",
            "store",
            "book",
            "gather",
            "health",
            "controller",
        ],
    ),
    (
        "ctl",
        &[
            "wire", "model", "ipam", "plan", "evidence", "intake", "doctor", "repair", "render", "host",
            "store", "book", "gather", "mend",
        ],
    ),
    ("xtask", &[]),
];

/// What tests and benches may use besides.
const TESTS_MAY_USE: &[&str] = &["testkit", "lab", "sim", "intake", "doctor"];

pub(super) fn check() -> Result<Verdict> {
    Ok(Verdict::Faults(faults(&Metadata::ours()?.packages)))
}

fn faults(packages: &[Package]) -> Vec<String> {
    let mut faults = Vec::new();
    for package in packages {
        let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| *name == package.name) else {
            faults.push(format!("{}: this crate has no row in the table of who may use whom", package.name));
            continue;
        };
        // A crate may name itself to give its own tests a feature.
        let is_ours = |used: &&Dependency| {
            used.name != package.name && packages.iter().any(|ours| ours.name == used.name)
        };
        let is_used = |name: &str| package.dependencies.iter().any(|used| used.name == name);
        for unused in allowed.iter().filter(|name| !is_used(name)) {
            faults.push(format!("{} does not use {unused}: take it out of its row", package.name));
        }
        for used in package.dependencies.iter().filter(is_ours) {
            let allowed_in_tests = used.is_dev && TESTS_MAY_USE.contains(&used.name.as_str());
            if !allowed.contains(&used.name.as_str()) && !allowed_in_tests {
                faults.push(format!("{} must not use {}", package.name, used.name));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, uses: &[(&str, bool)]) -> Package {
        let dependency =
            |(name, is_dev): &(&str, bool)| Dependency { name: (*name).to_owned(), is_dev: *is_dev };
        let dependencies = uses.iter().map(dependency).collect();
        Package { name: name.to_owned(), dependencies, ..Package::default() }
    }

    #[test]
    fn the_table_points_upward() {
        for (row, (name, allowed)) in MAY_USE.iter().enumerate() {
            for used in *allowed {
                let is_above = MAY_USE[..row].iter().any(|(above, _)| above == used);
                assert!(is_above, "{name} may use {used}, which does not stand above it");
            }
        }
    }

    #[test]
    fn a_wrong_direction_an_unused_right_and_an_unknown_crate_are_found() {
        let packages = [
            package("model", &[("store", false), ("serde", false)]),
            package("store", &[("model", false), ("testkit", true)]),
            package("ipam", &[]),
            package("testkit", &[]),
            package("cni", &[("model", false), ("testkit", false)]),
            package("helper", &[]),
        ];
        assert_eq!(
            faults(&packages),
            [
                "model must not use store",
                "ipam does not use model: take it out of its row",
                "cni does not use wire: take it out of its row",
                "cni must not use model",
                "cni must not use testkit",
                "helper: this crate has no row in the table of who may use whom",
            ]
        );
    }
}
