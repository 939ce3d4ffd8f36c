//! `plumb patch`: changes some fields of one resource.

use std::io::Write as _;

use model::{Kind, Metadata, Resource, manifest};
use serde_json::{Map, Value};

use crate::cli::{Global, Patch, PatchType};
use crate::compat;
use crate::failure::{Failure, Failures};
use crate::merge::merge;
use crate::scope::{self, Named, Scope};
use crate::write::{
    WriteError, Writer, refuse_as_calicoctl, refuse_ipam_record, restore_unknown, without_unknown,
};

pub(crate) async fn run(global: &Global, patch: &Patch) -> Result<(), Failures> {
    // calicoctl takes every patch for a strategic one, whatever its type is said to be.
    if patch.patch_type == PatchType::Json && !compat::is_strict() {
        return Err(Failure::usage("patches of type json are not supported")
            .hint("write the change as a merge patch: an object with the fields to change; null removes a field")
            .into());
    }
    let kind = scope::kind(&patch.kind)?;
    refuse_ipam_record(kind)?;
    scope::check_name(kind, &patch.name)?;
    let namespace = Scope::new(patch.namespace.namespace.as_deref(), false)?.of_one(kind)?;
    let named = Named { kind, namespace, name: patch.name.clone() };
    let changes = parse(&patch.patch)?;
    let wanted = wanted_version(&changes)?;

    let dry_run = patch.dry_run.dry_run;
    let writer = Writer::open_for_changing(global, dry_run).await?;
    writer.refuse_view(&named, "patch")?;
    let done = match refuse_as_calicoctl(&named) {
        Ok(()) => writer.change(&named, wanted.as_deref(), |stored| patched(stored, &changes)).await,
        Err(refused) => Err(refused),
    };
    let done = done.map_err(|error| in_calicoctl(error, kind))?;
    let mut out = std::io::stdout().lock();
    if dry_run {
        writeln!(out, "Dry run: 1 '{kind}' resource would be {}", done.word())?;
    } else {
        writeln!(out, "Successfully patched 1 '{kind}' resource")?;
    }
    Ok(())
}

fn in_calicoctl(error: WriteError, kind: Kind) -> Failure {
    let said = match &error {
        WriteError::Missing(named) => format!("hit error: {}", named.missing().calicoctl()),
        // It says already what it is.
        WriteError::Other(failure) if is_whole(&failure.calicoctl()) => failure.calicoctl(),
        WriteError::Other(failure) => {
            format!("hit error: updating existing resource: {}", failure.calicoctl())
        }
        _ => "hit error: updating existing resource: the resource was changed at the same time".to_owned(),
    };
    error.into_failure().within(format!("failed to patch '{kind}' resource")).in_calicoctl(said)
}

fn is_whole(said: &str) -> bool {
    said.starts_with("hit error: ") || said.starts_with("field in document")
}

/// The version that the patch is meant for, if it names one.
fn wanted_version(changes: &Map<String, Value>) -> Result<Option<String>, Failure> {
    match changes.get("metadata").and_then(|metadata| metadata.get("resourceVersion")) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(version)) => Ok(Some(version.clone())),
        Some(other) => Err(Failure::usage(format!("metadata.resourceVersion: {other}: must be a string"))
            .hint("write it in quotes, as plumb get shows it")),
    }
}

/// The patch as an object; its text is JSON or YAML.
fn parse(text: &str) -> Result<Map<String, Value>, Failure> {
    let not_readable = |problem: String| {
        Failure::usage(format!("cannot read the patch: {problem}"))
            .hint("a patch is an object in JSON or YAML")
            .in_calicoctl("hit error: performing strategic merge patch: invalid JSON document")
    };
    let value: Value = if text.trim_start().starts_with('{') && serde_json::from_str::<Value>(text).is_ok() {
        serde_json::from_str(text).map_err(|error| not_readable(error.to_string()))?
    } else {
        let options = serde_saphyr::options! { with_snippet: false, strict_booleans: true };
        serde_saphyr::from_str_with_options(text, options).map_err(|error| not_readable(error.to_string()))?
    };
    match value {
        Value::Object(fields) => Ok(fields),
        other => Err(not_readable(format!("expected an object, found {other}"))),
    }
}

/// The resource after the patch. Its identity stays, fields must be known, unknown stored ones survive.
fn patched(stored: &Resource, changes: &Map<String, Value>) -> Result<Resource, Failure> {
    let known = Resource { body: without_unknown(stored.kind, &stored.body), ..stored.clone() };
    let mut document = known.to_document();
    merge(&mut document, changes)
        .map_err(|problem| Failure::new(format!("cannot merge the patch: {problem}")))?;
    let text = Value::Object(document).to_string();
    let parsed = manifest::parse(&text).map_err(|error| {
        let message = error.to_string();
        // The text is ours, so where in it says nothing to the operator.
        let place = error.place().map(|place| format!("{place}: ")).unwrap_or_default();
        let said = compat::manifest_error(&error, stored.kind.name());
        let said = said
            .strip_prefix("failed to execute command: ")
            .map_or(said.clone(), |why| format!("hit error: creating resource from patched data: {why}"));
        Failure::new(message.strip_prefix(&place).unwrap_or(&message))
            .maybe_hint(error.hint())
            .in_calicoctl(said)
    })?;
    let [parsed]: [Resource; 1] =
        parsed.try_into().map_err(|_| Failure::new("the patched document is no longer a single resource"))?;
    if parsed.kind != stored.kind
        || parsed.metadata.name != stored.metadata.name
        || parsed.metadata.namespace != stored.metadata.namespace
    {
        return Err(Failure::new("a patch cannot change kind, name or namespace"));
    }
    let metadata = Metadata {
        labels: parsed.metadata.labels,
        annotations: parsed.metadata.annotations,
        ..stored.metadata.clone()
    };
    let mut next = Resource { kind: stored.kind, metadata, body: parsed.body };
    next.fill_defaults();
    restore_unknown(&mut next, stored);
    Ok(next)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn node() -> Resource {
        let mut node = Resource::new(Kind::Node, "n");
        let bgp = json!({"ipv4Address": "10.0.0.1/24", "future": 18_446_744_073_709_551_615u64});
        node.body.insert("spec".into(), json!({ "bgp": bgp }));
        node
    }

    #[test]
    fn json_and_yaml_patches_do_the_same_and_unknown_fields_survive() {
        for text in ["{\"spec\":{\"bgp\":{\"asNumber\":64512}}}", "spec: {bgp: {asNumber: 64512}}"] {
            let next = patched(&node(), &parse(text).unwrap()).unwrap();
            let expected = json!({
                "ipv4Address": "10.0.0.1/24", "asNumber": 64512, "future": 18_446_744_073_709_551_615u64,
            });
            assert_eq!(next.spec("bgp"), Some(&expected), "{text}");
        }
    }

    #[test]
    fn typos_and_changed_names_are_refused() {
        let refused = |text: &str| patched(&node(), &parse(text).unwrap()).unwrap_err().to_string();
        assert!(refused("{\"spec\":{\"bpg\":{}}}").starts_with("error: Node has no field spec.bpg"));
        assert!(
            refused("{\"metadata\":{\"name\":\"other\"}}").contains("cannot change kind, name or namespace")
        );
        assert!(refused("{\"spec\":{\"bgp\":3}}").contains("spec.bgp"));
        assert!(parse("[1]").is_err());
        assert!(parse("{").is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_patches_never_panic(text in any::<String>(), braces in "[{}\\[\\]\":,$a-c ]{0,40}") {
            for text in [text, format!("{{\"spec\":{braces}}}"), braces] {
                if let Ok(changes) = parse(&text) {
                    let _ = patched(&node(), &changes);
                }
            }
        }
    }
}
