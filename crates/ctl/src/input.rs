//! Resources from files, directories and stdin. Everything is read and understood before anything is done.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use model::Resource;
use model::manifest::{self, ManifestError};

use crate::cli::Reading;
use crate::compat;
use crate::failure::{Failure, Failures};

/// A resource and where it was found, as messages name it.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) resource: Resource,
    pub(crate) origin: String,
}

/// Reads every resource of every file. If anything is wrong with any of them, all that is wrong is reported.
pub(crate) fn read(paths: &[PathBuf], reading: &Reading) -> Result<Vec<Input>, Failures> {
    if paths.iter().filter(|path| is_stdin(path)).count() > 1 {
        return Err(Failure::usage("stdin (-f -) can only be read once").into());
    }
    let mut inputs = Vec::new();
    let mut failures = Vec::new();
    for path in paths {
        match read_path(path, reading) {
            Ok(read) => inputs.extend(read),
            Err(failure) => failures.extend(failure),
        }
    }
    if compat::is_strict() {
        // calicoctl stops at the first file it cannot use.
        failures.truncate(1);
    }
    Failures::collect(failures)?;
    Ok(inputs)
}

fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

fn read_path(path: &Path, reading: &Reading) -> Result<Vec<Input>, Vec<Failure>> {
    if is_stdin(path) || !path.is_dir() {
        let inputs = read_file(path, reading).map_err(|failure| vec![failure])?;
        // calicoctl names stdin by its dash.
        let place = || match compat::is_strict() {
            true => format!("file {}", path.display()),
            false => format!("file {}", shown(path)),
        };
        return refuse_empty(inputs, reading, place);
    }
    let files = manifests_in(path, reading.recursive).map_err(|failure| vec![failure])?;
    let mut inputs = Vec::new();
    let mut failures = Vec::new();
    for file in files {
        match read_path(&file, reading) {
            Ok(read) => inputs.extend(read),
            Err(failure) => failures.extend(failure),
        }
    }
    if !failures.is_empty() {
        return Err(failures);
    }
    refuse_empty(inputs, reading, || format!("directory {}", shown(path)))
}

fn refuse_empty(
    inputs: Vec<Input>,
    reading: &Reading,
    place: impl FnOnce() -> String,
) -> Result<Vec<Input>, Vec<Failure>> {
    if inputs.is_empty() && !reading.skip_empty {
        let failure = Failure::new(format!("no resources specified in {}", place()))
            .hint("--skip-empty accepts files without resources");
        return Err(vec![failure]);
    }
    Ok(inputs)
}

/// The manifests of a directory in order of their names; with those of its directories if `recursive`.
fn manifests_in(directory: &Path, recursive: bool) -> Result<Vec<PathBuf>, Failure> {
    let unreadable =
        |error: io::Error| Failure::new(format!("cannot read {}", shown(directory))).caused_by(&error);
    let mut entries: Vec<_> =
        directory.read_dir().and_then(Iterator::collect::<io::Result<_>>).map_err(unreadable)?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    let mut files = Vec::new();
    for entry in entries {
        // Links to directories are not followed, so there are no circles.
        if entry.file_type().map_err(unreadable)?.is_dir() {
            if recursive {
                files.extend(manifests_in(&entry.path(), recursive)?);
            }
        } else if is_manifest(&entry.path()) {
            files.push(entry.path());
        }
    }
    Ok(files)
}

fn is_manifest(path: &Path) -> bool {
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
    matches!(extension.as_deref(), Some("yaml" | "yml" | "json"))
}

fn read_file(path: &Path, reading: &Reading) -> Result<Vec<Input>, Failure> {
    let name = shown(path);
    let text = read_text(path, &name, reading.max_input_size)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let located = manifest::parse_located(text).map_err(|error| {
        let said = compat::manifest_error(&error, kind_in(text));
        Failure::of(&error).maybe_hint(hint(&error)).in_calicoctl(said).in_file(&name)
    })?;
    Ok(located
        .into_iter()
        .map(|located| Input { resource: located.resource, origin: format!("{name}: {}", located.at) })
        .collect())
}

/// The first kind that a text names; only for words about the text.
fn kind_in(text: &str) -> &str {
    let after = text.split_once("kind").map_or("", |(_, after)| after);
    let word = after.trim_start_matches(['"', ':', ' ']);
    word.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default()
}

fn hint(error: &ManifestError) -> Option<String> {
    // `plumb get` shows what a newer release has stored, so it may well be in a file.
    let is_unknown = matches!(error, ManifestError::UnknownField { .. });
    let kept = || "remove it; a value that a newer release stored there is preserved".to_owned();
    error.hint().or_else(|| is_unknown.then(kept))
}

/// The text of a file, or the refusal to read it: a file that is too large is not read to its end.
fn read_text(path: &Path, name: &str, bytes_max: u64) -> Result<String, Failure> {
    let unreadable = |error: io::Error| {
        let said = format!("failed to execute command: {}", compat::open_error(path, &error));
        Failure::new(format!("cannot read {name}")).caused_by(&error).in_calicoctl(said)
    };
    let reader: Box<dyn Read> = if is_stdin(path) {
        Box::new(io::stdin().lock())
    } else {
        let file = File::open(path).map_err(unreadable)?;
        if file.metadata().is_ok_and(|metadata| metadata.len() > bytes_max) {
            return Err(too_large(name, bytes_max));
        }
        Box::new(file)
    };
    let mut bytes = Vec::new();
    reader.take(bytes_max + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > bytes_max {
        return Err(too_large(name, bytes_max));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::new(format!("{name} is not text: byte {at} (0x{:02x}) is not UTF-8", error.as_bytes()[at]))
            .hint("manifests are YAML or JSON in UTF-8")
    })
}

fn too_large(name: &str, bytes_max: u64) -> Failure {
    Failure::new(format!("{name} is larger than the limit of {bytes_max} bytes"))
        .hint("split it into several files, or raise the limit with --max-input-size")
}

fn shown(path: &Path) -> String {
    if is_stdin(path) { "stdin".to_owned() } else { path.display().to_string() }
}
