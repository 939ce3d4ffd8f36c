//! `plumb apply`, `create`, `replace` and `validate`: resources of files into the store, or only to the door.

use crate::cli::{Apply, Create, Global, Namespace, Replace, RequiredFiles, Validate};
use crate::connect;
use crate::failure::Failures;
use crate::report::{Tally, Verb};
use crate::scope::{Named, Scope};
use crate::write::{
    Done, Prepared, WriteError, Writer, check_against_store, ensure_basics, prepare, warn_if_locked,
};
use crate::{input, progress};

pub(crate) async fn apply(global: &Global, apply: &Apply) -> Result<(), Failures> {
    let prepared = read(&apply.files, &apply.namespace, Verb::Apply)?;
    write(global, prepared, Verb::Apply, apply.dry_run.dry_run, false).await
}

pub(crate) async fn create(global: &Global, create: &Create) -> Result<(), Failures> {
    let prepared = read(&create.files, &create.namespace, Verb::Create)?;
    write(global, prepared, Verb::Create, create.dry_run.dry_run, create.skip_exists).await
}

pub(crate) async fn replace(global: &Global, replace: &Replace) -> Result<(), Failures> {
    let prepared = read(&replace.files, &replace.namespace, Verb::Replace)?;
    write(global, prepared, Verb::Replace, replace.dry_run.dry_run, false).await
}

pub(crate) fn validate(validate: &Validate) -> Result<(), Failures> {
    let prepared = read(&validate.files, &validate.namespace, Verb::Validate)?;
    let mut tally = Tally::new(Verb::Validate, false, prepared.iter().map(|one| one.resource.kind));
    for one in prepared {
        tally.add(Named::of(&one.resource), Ok(Done::Unchanged));
    }
    tally.finish()
}

/// Everything that the files say, understood and found valid.
fn read(files: &RequiredFiles, namespace: &Namespace, verb: Verb) -> Result<Vec<Prepared>, Failures> {
    let scope = Scope::new(namespace.namespace.as_deref(), false)?;
    prepare(input::read(&files.filename, &files.reading)?, &scope, verb)
}

async fn write(
    global: &Global,
    prepared: Vec<Prepared>,
    verb: Verb,
    dry_run: bool,
    skip_exists: bool,
) -> Result<(), Failures> {
    let mut tally = Tally::new(verb, dry_run, prepared.iter().map(|one| one.resource.kind));
    if prepared.is_empty() {
        return tally.finish();
    }
    let store = match verb {
        _ if dry_run => connect::open_for_trying(global).await?,
        Verb::Replace => connect::open_for_changing(global).await?,
        _ => connect::open_for_creating(global).await?,
    };
    let writer = Writer::new(store, dry_run);
    check_against_store(&writer, &prepared, verb).await?;
    warn_if_locked(&writer).await;
    if !dry_run {
        ensure_basics(&writer).await;
    }
    let bar = progress::bar(prepared.len());
    for one in prepared {
        let done = match verb {
            Verb::Apply => writer.apply(&one.resource).await,
            Verb::Replace => writer.replace(&one.resource).await,
            _ => writer.create(&one.resource).await,
        };
        let done = match done {
            Err(WriteError::Exists(_)) if skip_exists => Ok(Done::Skipped),
            done => done,
        };
        tally.add(Named::of(&one.resource), done);
        bar.inc(1);
    }
    bar.finish_and_clear();
    tally.finish()
}
