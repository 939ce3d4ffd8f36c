//! Strict mode: the program stands in for calicoctl, to the letter.
//!
//! It is on with `PLUMB_COMPAT=calicoctl`, and if the program was called as `calicoctl` or `kubectl-calico`. Then exit
//! codes, messages, tables and the order of work are calicoctl's, so that a script which compares them sees no
//! difference. Elsewhere ours are kept: they say more, and they check everything before the first write.

mod go;
mod go_yaml;
mod manifest;
mod policy_rules;
mod violations;

use std::path::Path;
use std::sync::OnceLock;

use model::Resource;
use serde_json::Value;

pub(crate) use go::{go_float, go_label_selector, open_error};
pub(crate) use go_yaml::go_yaml;
pub(crate) use manifest::manifest_error;
pub(crate) use violations::{is_told_by_validate, violations_text};

use crate::failure::Failure;

pub(crate) const VARIABLE: &str = "PLUMB_COMPAT";
const CALICOCTL: &str = "calicoctl";
const PROGRAMS: [&str; 2] = [CALICOCTL, "kubectl-calico"];

static IS_STRICT: OnceLock<bool> = OnceLock::new();

/// Whether this process stands in for calicoctl.
pub(crate) fn is_strict() -> bool {
    IS_STRICT.get().copied().unwrap_or(false)
}

/// Decides once, before anything is printed.
pub(crate) fn decide() -> Result<(), Failure> {
    let program = std::env::args_os().next().unwrap_or_default();
    let is_named_so = Path::new(&program)
        .file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| PROGRAMS.contains(&name));
    let wanted = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
    let is_strict = match wanted {
        None => is_named_so,
        Some(word) if word == CALICOCTL => true,
        Some(word) if word == "plumb" => false,
        Some(word) => {
            return Err(Failure::usage(format!("{VARIABLE}={} is not known", word.display()))
                .hint("set it to calicoctl or plumb, or unset it"));
        }
    };
    let _ = IS_STRICT.set(is_strict);
    Ok(())
}

/// Says something beside the result on stderr. calicoctl says nothing there, so strict mode only logs it.
pub(crate) fn say(text: &str) {
    if is_strict() {
        tracing::warn!("{text}");
    } else {
        eprintln!("{text}");
    }
}

/// The value at a path such as `spec.ingress[0].protocol`.
fn value_at<'a>(resource: &'a Resource, path: &str) -> Option<&'a Value> {
    let pointer = path.replace(['.', '['], "/").replace(']', "");
    let (first, rest) = pointer.split_once('/')?;
    resource.body.get(first)?.pointer(&format!("/{rest}"))
}

/// A list as Go prints it: `[80 90:100]`.
fn texts_at(resource: &Resource, path: &str) -> String {
    let items = value_at(resource, path).and_then(Value::as_array).into_iter().flatten();
    let texts = items.map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned));
    format!("[{}]", texts.collect::<Vec<_>>().join(" "))
}
