//! Everything that can be said against a manifest before the first write.

use model::ipam::IpamConfig;
use model::resource::{DEFAULT_ALLOW_PROFILE, default_allow_profile};
use model::validate::{Violation, is_of_kubernetes, unfit_for_bird, validate, validate_pool_against};
use model::{Kind, Resource};

use super::{Writer, pool, references};
use crate::compat;
use crate::failure::{Failure, Failures};
use crate::input::Input;
use crate::report::Verb;
use crate::scope::{Named, Scope};

/// A resource that may be written as far as can be told without the store.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub(crate) resource: Resource,
    pub(crate) origin: String,
}

impl Prepared {
    /// Violations as failures, each naming file, resource, field, value and rule.
    pub(super) fn failures(&self, violations: Vec<Violation>) -> Vec<Failure> {
        let named = Named::of(&self.resource);
        if compat::is_strict() && !violations.is_empty() {
            // calicoctl makes one error of them.
            let said = compat::violations_text(&self.resource, &violations);
            return vec![Failure::new(format!("{named} is not valid")).in_calicoctl(said)];
        }
        let failure =
            |violation: Violation| Failure::new(format!("{named}: {violation}")).in_file(&self.origin);
        violations.into_iter().map(failure).collect()
    }
}

/// Fills in what is implied, and refuses all resources if any of them may not be written.
pub(crate) fn prepare(inputs: Vec<Input>, scope: &Scope, verb: Verb) -> Result<Vec<Prepared>, Failures> {
    let mut prepared = Vec::new();
    let mut failures = Vec::new();
    let mut pools = Vec::new();
    for Input { mut resource, origin } in inputs {
        if let Err(failure) = refuse_verb(&resource, verb).and_then(|()| scope.place(&mut resource)) {
            failures.push(failure.in_file(&origin));
            continue;
        }
        resource.fill_defaults();
        let candidate = Prepared { resource, origin };
        if !is_default_profile_unchanged(&candidate.resource) {
            let mut broken = violations(&candidate.resource);
            if verb == Verb::Validate && compat::is_strict() {
                broken.retain(compat::is_told_by_validate);
            }
            failures.extend(candidate.failures(broken));
        }
        if candidate.resource.kind == Kind::IpPool {
            failures.extend(candidate.failures(validate_pool_against(&candidate.resource, &pools, &[])));
            pools.push(candidate.resource.clone());
        }
        prepared.push(candidate);
    }
    Failures::collect(failures)?;
    prepared.iter().for_each(|one| warn_of_bird(&one.resource));
    Ok(prepared)
}

/// Refuses all resources if any of them clashes with what is stored, or with another of them, or names what is not
/// there.
pub(crate) async fn check_against_store(
    writer: &Writer,
    prepared: &[Prepared],
    verb: Verb,
) -> Result<(), Failures> {
    writer.coming.borrow_mut().extend(prepared.iter().map(|one| one.resource.key()));
    Failures::collect(writer.refuse_views(prepared, verb).await?)?;
    let mut failures = references::missing(writer, prepared, verb).await?;
    if prepared.iter().any(|one| one.resource.kind == Kind::IpPool) {
        failures.extend(pool::clashes(writer, prepared, verb).await?);
    }
    Failures::collect(failures)
}

/// Calico takes such a record, so it is stored; but no node follows it.
fn warn_of_bird(resource: &Resource) {
    let named = Named::of(resource);
    for unfit in unfit_for_bird(resource) {
        let left_out = match resource.kind {
            Kind::BgpFilter => "on nodes that rule rejects everything",
            Kind::BgpConfiguration => "nodes ignore that setting",
            Kind::Node => "no node has a BGP session with that address",
            _ => "nodes ignore this peer",
        };
        compat::say(&format!("warning: {named}: {unfit}; BIRD would reject it, so {left_out}"));
    }
}

fn violations(resource: &Resource) -> Vec<Violation> {
    match resource.kind {
        Kind::IpamConfiguration => IpamConfig::from_resource(resource).err().unwrap_or_default(),
        _ => validate(resource),
    }
}

/// What a verb may not do to a kind, whatever the resource says.
fn refuse_verb(resource: &Resource, verb: Verb) -> Result<(), Failure> {
    let named = Named::of(resource);
    if verb != Verb::Validate {
        refuse_ipam_record(resource.kind)?;
    }
    match (resource.kind, verb) {
        (Kind::ClusterInformation, Verb::Apply) => {
            Err(Failure::new("operation apply is not supported on ClusterInformation: resource is readonly")
                .hint("to lock or unlock the datastore use plumb datastore migrate lock|unlock"))
        }
        (Kind::ClusterInformation, Verb::Create | Verb::Replace) if compat::is_strict() => {
            let operation = if verb == Verb::Create { "create or apply" } else { "apply or replace" };
            Err(Failure::new(format!("operation {operation} is not supported on ClusterInformation")))
        }
        (Kind::NetworkPolicy, Verb::Apply | Verb::Create | Verb::Replace)
            if is_of_kubernetes(&resource.metadata.name) =>
        {
            let operation = if verb == Verb::Replace { "apply or replace" } else { "create or apply" };
            Err(refuse_kubernetes_policy(&named, operation))
        }
        (Kind::Profile, Verb::Apply | Verb::Replace)
            if is_default_profile_unchanged(resource) && !compat::is_strict() =>
        {
            Ok(())
        }
        (Kind::Profile, Verb::Apply | Verb::Create | Verb::Replace)
            if resource.metadata.name == DEFAULT_ALLOW_PROFILE =>
        {
            let said = match verb {
                Verb::Create => format!(
                    "resource already exists: {DEFAULT_ALLOW_PROFILE} with error: {DEFAULT_ALLOW_PROFILE} already exists. The \
                     profile \"{DEFAULT_ALLOW_PROFILE}\" is default provided by Calico"
                ),
                _ => format!(
                    "operation Update is not supported on {DEFAULT_ALLOW_PROFILE}: The profile \"{DEFAULT_ALLOW_PROFILE}\" is a \
                     default provided by Calico and cannot be updated"
                ),
            };
            Err(Failure::new(format!("{named} is built in and cannot be written")).in_calicoctl(said))
        }
        (_, Verb::Create) if resource.metadata.resource_version.is_some() => Err(Failure::new(format!(
            "{named}: metadata.resourceVersion: must not be set to create a resource"
        ))
        .hint("plumb get … -o yaml --export omits it; plumb replace uses it")
        .in_calicoctl(format!(
            "error with field Metadata.ResourceVersion = '{}' (field must not be set for a Create request)",
            resource.metadata.resource_version.as_deref().unwrap_or_default()
        ))),
        _ => Ok(()),
    }
}

/// Whether this is the profile that is always there, just as it is: lists of profiles hold it, and can be applied.
fn is_default_profile_unchanged(resource: &Resource) -> bool {
    let always = default_allow_profile();
    resource.key() == always.key()
        && resource.body == always.body
        && resource.metadata.labels.is_empty()
        && resource.metadata.annotations.is_empty()
}

/// Policies that stand for those of Kubernetes are not written as Calico's.
pub(super) fn refuse_kubernetes_policy(named: &Named, operation: &str) -> Failure {
    Failure::new(format!(
        "operation {operation} is not supported on {named}: kubernetes network policies must be managed through the \
         kubernetes API"
    ))
    .hint("use kubectl for the NetworkPolicy of Kubernetes, or give the policy another name")
}

/// IPAM's own records are only shown here.
pub(crate) fn refuse_ipam_record(kind: Kind) -> Result<(), Failure> {
    match kind {
        Kind::IpamBlock | Kind::BlockAffinity | Kind::IpamHandle => {
            Err(Failure::new(format!("{kind} cannot be written: IPAM manages it"))
                .hint("it changes with its pods and pools; plumb get shows it, plumb ipam check checks it, plumb ipam release releases addresses"))
        }
        _ => Ok(()),
    }
}
