//! Policies, tiers, profiles and network sets: names, and rules over several fields.

use super::fields::Fields;
use super::formats::{is_label, name as is_name};
use super::labels::qualified_name;
use super::{Report, rule, shorten, shown};
use crate::path::FieldPath;
use crate::{Kind, Resource};

/// Made from the namespace itself, never chosen.
pub(crate) const LABEL_NAMESPACE: &str = "projectcalico.org/namespace";

fn metadata(field: &str) -> FieldPath {
    FieldPath::root().key("metadata").key(field)
}

pub(super) fn check_policy(policy: &Resource, report: &mut Report) {
    check_policy_name(policy, report);
    let spec = Fields::of_spec(policy);
    for field in ["selector", "serviceAccountSelector", "namespaceSelector"] {
        if spec.text(field).contains("global(") {
            let rule = "must not use global(): only the namespaceSelector of a rule may";
            report.broken(&spec.path(field), spec.text(field), rule);
        }
    }
    if spec.text("stagedAction") == "Delete" {
        let others = spec.set_fields().filter(|field| !matches!(*field, "stagedAction" | "tier"));
        for field in others {
            report.broken(&spec.path(field), "", "must not be set while stagedAction is Delete");
        }
        return;
    }
    let is_global = matches!(policy.kind, Kind::GlobalNetworkPolicy | Kind::StagedGlobalNetworkPolicy);
    rule::check_all(&spec, is_global, report);
    if is_global {
        check_host_protection(&spec, report);
    }
}

/// The name of a policy has no dot, or one (after its tier), or is that of a policy made from another system's.
fn check_policy_name(policy: &Resource, report: &mut Report) {
    let name = policy.metadata.name.as_str();
    if name.is_empty() || is_name(name).is_err() {
        return;
    }
    let is_simple = name.split('.').count() <= 2 && name.split('.').all(is_label);
    let is_namespaced = policy.kind.is_namespaced();
    let is_converted =
        is_namespaced && (name.starts_with("knp.default.") || name.starts_with("ossg.default."));
    if !is_simple && !is_converted {
        let rule = "must have at most one dot: lower case letters, digits and '-'";
        report.broken(&metadata("name"), shorten(name), rule);
    }
}

fn check_host_protection(spec: &Fields<'_>, report: &mut Report) {
    let (early, untracked) = (spec.flag("preDNAT"), spec.flag("doNotTrack"));
    if early && untracked {
        report.broken(&spec.path("preDNAT"), "true", "must not be true together with doNotTrack");
    }
    if early && spec.has("egress") {
        report.broken(&spec.path("egress"), "", "must be empty while preDNAT is true");
    }
    if early && spec.contains("types", "Egress") {
        report.broken(&spec.path("types"), "Egress", "must not contain Egress while preDNAT is true");
    }
    if (early || untracked) && !spec.flag("applyOnForward") {
        let rule = "must be true while preDNAT or doNotTrack is true";
        report.broken(&spec.path("applyOnForward"), "", rule);
    }
}

pub(super) fn check_staged_kubernetes(policy: &Resource, report: &mut Report) {
    let spec = Fields::of_spec(policy);
    if spec.text("stagedAction") == "Delete" {
        for field in spec.set_fields().filter(|field| *field != "stagedAction") {
            report.broken(&spec.path(field), "", "must not be set while stagedAction is Delete");
        }
    }
}

/// The tiers that every cluster has, with the order and action they must have.
const BUILT_IN_TIERS: [(&str, f64, &str); 3] =
    [("default", 1e6, "Deny"), ("kube-admin", 1e3, "Pass"), ("kube-baseline", 1e7, "Pass")];

pub(super) fn is_built_in_tier(name: &str) -> bool {
    BUILT_IN_TIERS.iter().any(|(built_in, ..)| *built_in == name)
}

pub(super) fn check_tier(tier: &Resource, report: &mut Report) {
    let name = tier.metadata.name.as_str();
    if name.contains('.') && is_name(name).is_ok() {
        report.broken(
            &metadata("name"),
            shorten(name),
            "must not contain a dot: it is part of policies' names",
        );
    }
    let spec = Fields::of_spec(tier);
    let Some((_, order, action)) = BUILT_IN_TIERS.iter().find(|(built_in, ..)| *built_in == name) else {
        return;
    };
    let value = spec.value("order");
    if value.and_then(serde_json::Value::as_f64) != Some(*order) {
        let rule = format!("must be {order} for the tier {name}");
        report.broken(&spec.path("order"), value.map(shown).unwrap_or_default(), rule);
    }
    if spec.text("defaultAction") != *action {
        let rule = format!("must be {action} for the tier {name}");
        report.broken(&spec.path("defaultAction"), spec.text("defaultAction"), rule);
    }
}

pub(super) fn check_profile(profile: &Resource, report: &mut Report) {
    if profile.metadata.name == crate::resource::DEFAULT_ALLOW_PROFILE {
        let rule = "cannot be written: this profile is built in";
        report.broken(&metadata("name"), profile.metadata.name.clone(), rule);
    }
    let spec = Fields::of_spec(profile);
    let labels = spec.object("labelsToApply");
    for key in labels.keys() {
        report.verdict(&labels.path(key), &key.into(), qualified_name(key));
    }
    rule::check_each(&spec, report);
}

/// The label is made from the namespace itself, when Calico hands a set on.
pub(super) fn check_network_set(set: &Resource, report: &mut Report) {
    if set.metadata.labels.contains_key(LABEL_NAMESPACE) {
        report.broken(
            &metadata("labels").key(LABEL_NAMESPACE),
            "",
            "must not be set: it is derived from the namespace",
        );
    }
}
