//! `plumb delete`: resources by name, or those a file names.

use crate::cli::{Delete, Global};
use crate::failure::{Failure, Failures};
use crate::report::{Tally, Verb};
use crate::scope::{self, Named, Scope};
use crate::write::{Done, WriteError, Writer, refuse_ipam_record};
use crate::{compat, input, progress};

pub(crate) async fn run(global: &Global, delete: &Delete) -> Result<(), Failures> {
    let dry_run = delete.dry_run.dry_run;
    let subjects = subjects(delete)?;
    let mut tally = Tally::new(Verb::Delete, dry_run, subjects.iter().map(|(named, _)| named.kind));
    if subjects.is_empty() {
        return tally.finish();
    }
    let writer = Writer::open_for_changing(global, dry_run).await?;
    let bar = progress::bar(subjects.len());
    for (named, version) in subjects {
        let done = match writer.delete(&named, version.as_deref()).await {
            Err(WriteError::Missing(_)) if delete.skip_not_exists => Ok(Done::Skipped),
            done => done,
        };
        tally.add(named, done);
        bar.inc(1);
    }
    bar.finish_and_clear();
    tally.finish()
}

/// What is to be deleted, each with the version that is meant if a file names one.
fn subjects(delete: &Delete) -> Result<Vec<(Named, Option<String>)>, Failures> {
    let scope = Scope::new(delete.namespace.namespace.as_deref(), false)?;
    if delete.files.filename.is_empty() {
        let (kind, names) = scope::subjects(&delete.subject)?;
        refuse_ipam_record(kind)?;
        if names.is_empty() {
            return Err(Failure::usage(format!("the name of the {kind} to delete is missing"))
                .hint("use plumb delete KIND NAME…; all resources of a kind cannot be deleted at once")
                .in_calicoctl(format!(
                    "Failed to delete '{kind}' resource: {}\n",
                    Named { kind, namespace: scope.of_one(kind)?, name: String::new() }.missing().calicoctl()
                ))
                .into());
        }
        return Ok(scope.named(kind, names)?.into_iter().map(|named| (named, None)).collect());
    }
    let mut subjects = Vec::new();
    let mut failures = Vec::new();
    for input in input::read(&delete.files.filename, &delete.files.reading)? {
        let mut resource = input.resource;
        match refuse_ipam_record(resource.kind).and_then(|()| scope.record_of(&mut resource)) {
            Ok(named) => subjects.push((named, resource.metadata.resource_version)),
            Err(failure) => failures.push(failure.in_file(&input.origin)),
        }
    }
    // What a file makes first, others in it may need: it goes last. calicoctl goes by the file.
    if !compat::is_strict() {
        subjects.reverse();
    }
    Failures::collect(failures)?;
    Ok(subjects)
}
