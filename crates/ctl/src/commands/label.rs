//! `plumb label`: sets or removes labels of one resource.

use std::cell::RefCell;
use std::io::Write as _;

use model::Resource;

use crate::cli::{Global, Label};
use crate::failure::{Failure, Failures};
use crate::scope::{self, Named, Scope};
use crate::write::{WriteError, Writer, refuse_as_calicoctl, refuse_ipam_record};

pub(crate) async fn run(global: &Global, label: &Label) -> Result<(), Failures> {
    let edits =
        label.labels.iter().map(|text| Edit::parse(text, label.remove)).collect::<Result<Vec<_>, _>>()?;
    let named = subject(label)?;
    let dry_run = label.dry_run.dry_run;
    let writer = Writer::open_for_changing(global, dry_run).await?;
    writer.refuse_view(&named, "label")?;
    let overwritten = RefCell::new(Vec::new());
    if let Err(refused) = refuse_as_calicoctl(&named) {
        return Err(not_changed(refused, label).into());
    }
    let changed = writer
        .change(&named, None, |stored| {
            let mut next = stored.clone();
            let had = edits.iter().map(|edit| edit.apply(&mut next, label)).collect::<Result<_, _>>()?;
            overwritten.replace(had);
            Ok(next)
        })
        .await;
    match changed {
        Ok(_) => report(&edits, &overwritten.into_inner(), label),
        Err(WriteError::Missing(_)) => {
            Err(Failure::new(format!("{} {} not found", label.kind, label.name)).into())
        }
        Err(error) => Err(not_changed(error, label).into()),
    }
}

/// calicoctl says why only where it is about the label itself.
fn not_changed(error: WriteError, label: &Label) -> Failure {
    let failure = error.into_failure();
    if ["failed to update label", "cannot remove label"]
        .iter()
        .any(|start| failure.calicoctl().starts_with(start))
    {
        return failure;
    }
    failure.in_calicoctl(format!("failed to update {} {}, label not changed", label.kind, label.name))
}

fn subject(label: &Label) -> Result<Named, Failure> {
    let kind = scope::kind(&label.kind).map_err(|failure| {
        let said = format!("failed to get {} {}, error {}", label.kind, label.name, failure.calicoctl());
        failure.in_calicoctl(said)
    })?;
    refuse_ipam_record(kind)?;
    scope::check_name(kind, &label.name)?;
    let namespace = Scope::new(label.namespace.namespace.as_deref(), false)?.of_one(kind)?;
    Ok(Named { kind, namespace, name: label.name.clone() })
}

enum Edit {
    Set { key: String, value: String },
    Remove { key: String },
}

impl Edit {
    fn parse(text: &str, remove: bool) -> Result<Edit, Failure> {
        match (remove, text.split_once('=')) {
            (true, None) => Ok(Edit::Remove { key: text.to_owned() }),
            (true, Some(_)) => Err(Failure::usage(format!("invalid label {text}: --remove takes only keys"))),
            (false, Some((key, value))) if !key.is_empty() => {
                Ok(Edit::Set { key: key.to_owned(), value: value.to_owned() })
            }
            (false, _) => Err(Failure::usage(format!("invalid label {text}"))
                .hint("write key=value, or the key alone with --remove")),
        }
    }

    /// Makes the edit, and says whether there was a label of that key before.
    fn apply(&self, resource: &mut Resource, label: &Label) -> Result<bool, Failure> {
        let labels = &mut resource.metadata.labels;
        let (kind, name) = (&label.kind, &label.name);
        match self {
            Edit::Remove { key } if labels.remove(key).is_some() => Ok(true),
            Edit::Remove { key } => {
                Err(Failure::new(format!("cannot remove label of {kind} {name}, key {key} does not exist")))
            }
            Edit::Set { key, value } => match labels.insert(key.clone(), value.clone()) {
                Some(old) if old != *value && !label.overwrite => Err(Failure::new(format!(
                    "failed to update label of {kind} {name}, key {key} is already present with value {old:?}"
                ))
                .hint("--overwrite sets a new value")
                .in_calicoctl(format!(
                    "failed to update label of {kind} {name}, key {key} is already present. please use '--overwrite' to set a \
                     new value"
                ))),
                old => Ok(old.is_some()),
            },
        }
    }
}

fn report(edits: &[Edit], overwritten: &[bool], label: &Label) -> Result<(), Failures> {
    let (kind, name) = (&label.kind, &label.name);
    let note = if label.dry_run.dry_run { " (dry run)" } else { "" };
    let mut out = std::io::stdout().lock();
    for (edit, overwritten) in edits.iter().zip(overwritten) {
        match (edit, overwritten) {
            (Edit::Remove { key }, _) => {
                writeln!(out, "Successfully removed label {key} from {kind} {name}{note}")?;
            }
            (Edit::Set { key, .. }, true) => {
                writeln!(out, "Successfully updated label {key} on {kind} {name}{note}")?;
            }
            (Edit::Set { key, .. }, false) => {
                writeln!(out, "Successfully set label {key} on {kind} {name}{note}")?;
            }
        }
    }
    Ok(())
}
