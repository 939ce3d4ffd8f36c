//! `plumb apply`, `create`, `replace` and `validate`: resources of files into the store, or only to the door.

use crate::cli::{Apply, Create, Global, Namespace, Replace, RequiredFiles, Validate};
use crate::connect;
use crate::failure::Failures;
use crate::input::{self, Input};
use crate::report::{Tally, Verb};
use crate::scope::{Named, Scope};
use crate::write::{
    Done, Prepared, WriteError, Writer, check_against_store, ensure_basics, prepare, warn_if_locked,
};
use crate::{compat, progress, reader};

pub(crate) async fn apply(global: &Global, apply: &Apply) -> Result<(), Failures> {
    if compat::is_strict() && !apply.dry_run.dry_run {
        return one_by_one(global, &apply.files, &apply.namespace, Verb::Apply, false).await;
    }
    let prepared = read(&apply.files, &apply.namespace, Verb::Apply)?;
    write(global, prepared, Verb::Apply, apply.dry_run.dry_run, false).await
}

pub(crate) async fn create(global: &Global, create: &Create) -> Result<(), Failures> {
    if compat::is_strict() && !create.dry_run.dry_run {
        return one_by_one(global, &create.files, &create.namespace, Verb::Create, create.skip_exists).await;
    }
    let prepared = read(&create.files, &create.namespace, Verb::Create)?;
    write(global, prepared, Verb::Create, create.dry_run.dry_run, create.skip_exists).await
}

pub(crate) async fn replace(global: &Global, replace: &Replace) -> Result<(), Failures> {
    if compat::is_strict() && !replace.dry_run.dry_run {
        return one_by_one(global, &replace.files, &replace.namespace, Verb::Replace, false).await;
    }
    let prepared = read(&replace.files, &replace.namespace, Verb::Replace)?;
    write(global, prepared, Verb::Replace, replace.dry_run.dry_run, false).await
}

pub(crate) fn validate(validate: &Validate) -> Result<(), Failures> {
    if compat::is_strict() {
        return validate_one_by_one(validate);
    }
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
        tally.add(Named::of(&one.resource), write_one(&writer, &one, verb, skip_exists).await);
        bar.inc(1);
    }
    bar.finish_and_clear();
    tally.finish()
}

async fn write_one(
    writer: &Writer,
    one: &Prepared,
    verb: Verb,
    skip_exists: bool,
) -> Result<Done, WriteError> {
    let done = match verb {
        Verb::Apply => writer.apply(&one.resource).await,
        Verb::Replace => writer.replace(&one.resource).await,
        _ => writer.create(&one.resource).await,
    };
    match done {
        Err(WriteError::Exists(_)) if skip_exists => Ok(Done::Skipped),
        done => done,
    }
}

/// As calicoctl works: each resource is checked when its turn comes, and one that is refused does not stop the others.
async fn one_by_one(
    global: &Global,
    files: &RequiredFiles,
    namespace: &Namespace,
    verb: Verb,
    skip_exists: bool,
) -> Result<(), Failures> {
    let scope = Scope::new(namespace.namespace.as_deref(), false)?;
    let inputs = input::read(&files.filename, &files.reading)?;
    let mut tally = Tally::new(verb, false, inputs.iter().map(|input| input.resource.kind));
    if inputs.is_empty() {
        return tally.finish();
    }
    let writer = Writer::new(connect::open_for_creating(global).await?, false);
    ensure_basics(&writer).await;
    for input in inputs {
        let named = Named::of(&input.resource);
        tally.add(named, check_and_write(&writer, input, &scope, verb, skip_exists).await);
    }
    tally.finish()
}

async fn check_and_write(
    writer: &Writer,
    input: Input,
    scope: &Scope,
    verb: Verb,
    skip_exists: bool,
) -> Result<Done, WriteError> {
    let refused = |failures: Failures| WriteError::Other(failures.into_first());
    if verb == Verb::Replace {
        // That it does not exist is said before anything about its fields.
        let mut resource = input.resource.clone();
        let named = scope.record_of(&mut resource)?;
        if reader::find(writer.store(), &named).await?.is_none() {
            return Err(WriteError::Missing(named));
        }
    }
    let prepared = prepare(vec![input], scope, verb).map_err(refused)?;
    check_against_store(writer, &prepared, verb).await.map_err(refused)?;
    match prepared.first() {
        Some(one) => write_one(writer, one, verb, skip_exists).await,
        None => Ok(Done::Skipped),
    }
}

/// The same without a store.
fn validate_one_by_one(validate: &Validate) -> Result<(), Failures> {
    let scope = Scope::new(validate.namespace.namespace.as_deref(), false)?;
    let inputs = input::read(&validate.files.filename, &validate.files.reading)?;
    let kinds = inputs.iter().map(|input| input.resource.kind);
    let mut tally = Tally::new(Verb::Validate, false, kinds);
    for input in inputs {
        let named = Named::of(&input.resource);
        let checked = prepare(vec![input], &scope, Verb::Validate);
        tally.add(
            named,
            checked.map(|_| Done::Unchanged).map_err(|failures| WriteError::Other(failures.into_first())),
        );
    }
    tally.finish()
}
