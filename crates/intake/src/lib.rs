//! Texts as people paste them, to evidence. What a file is, is told by its content alone.
//!
//! ```text
//!  bytes ─▶ lines ─▶ sections ─▶ one reader per format ─▶ Draft ─┐
//!          bounded,  parted at    tables, ip, documents,   of a   ├─▶ place ─▶ tidy ─▶ Evidence
//!          safe,     prompts      describe, BGP, logs      file ──┘  nodes    merged
//!          masked
//! ```
//!
//! Nothing here reads files: [`Intake`] is fed bytes, in pieces of any size, and keeps no more than what it understands.
//! Terminal escapes, control characters and whatever looks like a secret are gone before anything is looked at, so that
//! everything in the [`Evidence`] is safe to print.
//!
//! A file's name, or that of its directory, may name the node that it was taken on; whether it does is settled when all files
//! are read (`place`).

// What is read here was written by strangers: nothing may be cut at a place that need not be there.
#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

mod command;
mod describe;
mod document;
mod draft;
mod ipam_report;
mod iproute;
mod iptables;
mod kube_store;
mod logs;
mod moment;
mod nft;
mod ping;
mod place;
mod prompt;
mod reader;
mod setup;
mod tables;
mod tidy;
mod words;

use evidence::Evidence;

use draft::Draft;
use model::text::LineCutter;
use reader::FileReader;

/// No more is kept than about this much, of all files together; that lines were left out is said. It is a cluster of some
/// hundred thousand pods.
const KEPT_BYTES_MAX: usize = 256 << 20;

/// Takes in files, one after the other.
///
/// ```
/// let mut intake = intake::Intake::default();
/// intake.file("slave-140.ip-route.txt").feed(b"default via 10.0.0.1 dev eth0\n");
/// let evidence = intake.finish();
/// assert!(evidence.node(&"slave-140".into()).is_some_and(|node| node.kernel.routes.is_some()));
/// ```
#[derive(Debug, Default)]
pub struct Intake {
    drafts: Vec<Draft>,
    /// How many events of logs, and about how many bytes, are kept of them.
    events: usize,
    bytes: usize,
}

/// One file, being fed. What is still missing when it is dropped was not in it.
#[derive(Debug)]
pub struct FileIntake<'i> {
    intake: &'i mut Intake,
    cutter: LineCutter,
    reader: Option<FileReader>,
}

impl Intake {
    /// Begins a file. `name` is what reports will call it.
    pub fn file(&mut self, name: &str) -> FileIntake<'_> {
        // Names come from the same hands as contents.
        let name = model::text::clean(name.as_bytes());
        let room = KEPT_BYTES_MAX.saturating_sub(self.bytes);
        let reader = FileReader::new(&name, logs::EVENTS_MAX.saturating_sub(self.events), room);
        FileIntake { intake: self, cutter: LineCutter::default(), reader: Some(reader) }
    }

    /// Everything that was understood, and what was not.
    pub fn finish(self) -> Evidence {
        let has_custom_resources = self.drafts.iter().any(|draft| draft.has_custom_resources);
        let evidence = tidy::tidy(place::place(self.drafts));
        moment::estimate(kube_store::show(evidence, has_custom_resources))
    }
}

impl FileIntake<'_> {
    /// Some more bytes of the file.
    pub fn feed(&mut self, bytes: &[u8]) -> &mut Self {
        if let Some(reader) = &mut self.reader {
            self.cutter.feed(bytes, |line| reader.line(line));
        }
        self
    }
}

impl Drop for FileIntake<'_> {
    fn drop(&mut self) {
        if let Some(mut reader) = self.reader.take() {
            self.cutter.finish(|line| reader.line(line));
            let draft = reader.finish();
            self.intake.events += draft.cluster.log.as_ref().map_or(0, Vec::len);
            self.intake.bytes = self.intake.bytes.saturating_add(draft.kept());
            self.intake.drafts.push(draft);
        }
    }
}

/// Files that are at hand as a whole.
pub fn read<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Evidence {
    let mut intake = Intake::default();
    for (name, bytes) in files {
        intake.file(name).feed(bytes);
    }
    intake.finish()
}
