//! Evidence from texts that people collected: files, directories, archives.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

mod unpack;

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use evidence::Evidence;
use evidence::books::Whole;
use evidence::{FileGap, Unseen};
use intake::Intake;

use gather::bundle::{self, Taken};
use jiff::Timestamp;

use unpack::Packed;

/// Folders in folders beyond this are not looked into.
const DEPTH_MAX: usize = 16;
/// How much is read at once.
const CHUNK: usize = 256 << 10;
/// A log in an archive that is compressed: three layers.
const PACKED_DEPTH_MAX: usize = 3;

/// Something that was named cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {path}")]
pub(crate) struct FilesError {
    path: String,
    #[source]
    source: io::Error,
}

/// Reads files and, of folders, everything in them. A file in a folder goes by its name below that folder, others by the name
/// they were given. `-` is stdin. What is hidden in a folder is left alone, and what cannot be read there is said in the evidence: the
/// rest tells something all the same.
pub(crate) fn of_files(paths: &[PathBuf]) -> Result<Evidence, FilesError> {
    let mut pile = Pile::default();
    for path in paths {
        if path.as_os_str() == "-" {
            pile.add("stdin", Path::new("stdin"), &mut io::stdin().lock())?;
            continue;
        }
        let metadata = fs::metadata(path).map_err(|source| error(path, source))?;
        if !metadata.is_dir() {
            pile.add_file(&path.to_string_lossy(), path)?;
            continue;
        }
        let mut files = Vec::new();
        find(path, "", 0, &mut files).map_err(|source| error(path, source))?;
        for (name, file) in files {
            let added = file.map_err(|source| error(Path::new(&name), source));
            if let Err(failed) = added.and_then(|file| pile.add_file(&name, &file)) {
                pile.unseen.push(Unseen::file(name, FileGap::All { why: failed.source.to_string() }));
            }
        }
    }
    Ok(pile.finish())
}

/// What has been read so far.
struct Pile {
    texts: Intake,
    bundles: Vec<Taken>,
    unseen: Vec<Unseen>,
    /// How many bytes may still be unpacked, how many files may still be read, and about how much may be kept of bundles.
    unpacked_left: u64,
    files_left: usize,
    room: usize,
    /// The first file that was one too many, and how many there were.
    skipped: Option<(String, u64)>,
}

impl Default for Pile {
    fn default() -> Pile {
        Pile {
            texts: Intake::default(),
            bundles: Vec::new(),
            unseen: Vec::new(),
            unpacked_left: unpack::UNPACKED_MAX,
            files_left: unpack::FILES_MAX,
            room: bundle::KEPT_BYTES_MAX,
            skipped: None,
        }
    }
}

impl Pile {
    fn add_file(&mut self, name: &str, path: &Path) -> Result<(), FilesError> {
        let Some(left) = self.files_left.checked_sub(1) else {
            self.skipped.get_or_insert_with(|| (name.to_owned(), 0)).1 += 1;
            return Ok(());
        };
        self.files_left = left;
        let file = File::open(path).map_err(|source| error(path, source))?;
        self.add(name, path, &mut BufReader::with_capacity(CHUNK, file))
    }

    fn add(&mut self, name: &str, path: &Path, from: &mut dyn BufRead) -> Result<(), FilesError> {
        self.add_packed(name, from, PACKED_DEPTH_MAX).map_err(|source| error(path, source))
    }

    /// A file, or what is packed in it, up to so many layers.
    fn add_packed(&mut self, name: &str, from: &mut dyn BufRead, layers: usize) -> io::Result<()> {
        let mut first = Vec::new();
        from.take(unpack::TELLING).read_to_end(&mut first)?;
        let mut all = io::Cursor::new(first.as_slice()).chain(from);
        if bundle::is_bundle(&first) {
            return self.add_bundle(name, &mut all);
        }
        match unpack::kind(&first) {
            None => feed(&mut self.texts, name, &mut all),
            Some(Packed::By(program)) => {
                self.unseen.push(Unseen::file(name, FileGap::Compressed { program }));
                Ok(())
            }
            Some(_) if layers == 0 => {
                self.unseen.push(Unseen::file(name, FileGap::PackedTooDeep));
                Ok(())
            }
            Some(Packed::Gzip) => {
                let mut left = self.unpacked_left;
                let unpacked = unpack::gzip(&mut all, &mut left, |text| {
                    self.add_packed(unpack::name_unpacked(name), text, layers - 1)
                });
                self.unpacked_left = self.unpacked_left.min(left);
                self.note_end(name, unpacked);
                Ok(())
            }
            Some(Packed::Tar) => {
                let mut left = self.files_left;
                let unpacked = unpack::tar(&mut all, &mut left, |file, text| {
                    let below = format!("{}/{file}", unpack::name_unpacked(name));
                    self.add_packed(&below, text, layers - 1)
                });
                self.files_left = self.files_left.min(left);
                self.note_end(name, unpacked);
                Ok(())
            }
        }
    }

    /// Every node collects the same store, and the same of Kubernetes: only the newest of them are kept, and count.
    fn add_bundle(&mut self, name: &str, from: &mut dyn BufRead) -> io::Result<()> {
        let kept = self.bundles.iter().fold(0, |sum: usize, taken| sum.saturating_add(taken.kept.sum()));
        self.bundles.push(bundle::read_within(name, from, self.room.saturating_sub(kept))?);
        let newest_store = newest(&self.bundles, has_whole_store);
        let newest_pods = newest(&self.bundles, has_pods);
        for (index, taken) in self.bundles.iter_mut().enumerate() {
            if has_whole_store(&taken.evidence) && newest_store != Some(index) {
                taken.evidence = std::mem::take(&mut taken.evidence).without_store();
                taken.kept.store = 0;
            }
            if has_pods(&taken.evidence) && newest_pods != Some(index) {
                taken.evidence = std::mem::take(&mut taken.evidence).without_kubernetes();
                taken.kept.kubernetes = 0;
            }
        }
        Ok(())
    }

    /// What could be unpacked tells something, also if the rest cannot.
    fn note_end(&mut self, name: &str, unpacked: io::Result<()>) {
        if let Err(failed) = unpacked {
            self.unseen.push(Unseen::file(name, FileGap::CutArchive { why: failed.to_string() }));
        }
    }

    fn finish(self) -> Evidence {
        let mut evidence = self.texts.finish();
        // What has a later time was not there when the text was pasted, whatever it says.
        evidence.taken_at = evidence.taken_at.map(|at| at.min(Timestamp::now()));
        evidence.unseen.extend(self.unseen);
        if let Some((name, count)) = self.skipped {
            let limit = unpack::FILES_MAX;
            evidence.unseen.push(Unseen::file(name, FileGap::FilesBeyondLimit { count, limit }));
        }
        // Told twice, each record would seem to be there twice: of the others nothing is left.
        let newest_store = newest(&self.bundles, has_whole_store);
        for (index, Taken { evidence: mut bundle, .. }) in self.bundles.into_iter().enumerate() {
            if has_pods(&bundle) && newest_store.is_some_and(|store| store != index) {
                bundle.pods_at = bundle.taken_at;
            }
            if let Some(earlier) = bundle.earlier.take() {
                evidence.earlier.get_or_insert_default().absorb(*earlier);
            }
            evidence.absorb(bundle);
        }
        evidence
    }
}

/// The latest of those bundles that have something.
fn newest(bundles: &[Taken], has_it: fn(&Evidence) -> bool) -> Option<usize> {
    let having = bundles.iter().enumerate().filter(|(_, taken)| has_it(&taken.evidence));
    having.max_by_key(|(_, taken)| taken.evidence.taken_at).map(|(index, _)| index)
}

fn has_pods(evidence: &Evidence) -> bool {
    evidence.pods.is_some() || evidence.kube_nodes.is_some()
}

fn has_whole_store(evidence: &Evidence) -> bool {
    evidence.ipam.as_ref().is_some_and(|ipam| ipam.whole == Whole::ALL)
}

/// A file's name below the folder, and where it is; or why a folder in between cannot be looked into.
type Found = (String, io::Result<PathBuf>);

/// In the order of their names, so that the same folder always gives the same report.
fn find(folder: &Path, prefix: &str, depth: usize, files: &mut Vec<Found>) -> io::Result<()> {
    let mut entries: Vec<_> = fs::read_dir(folder)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type()?;
        let below = format!("{prefix}{name}");
        if name.starts_with('.') {
            continue;
        }
        // A link to a folder may lead back here; sockets and pipes would keep us waiting.
        if kind.is_dir() && depth < DEPTH_MAX {
            if let Err(failed) = find(&entry.path(), &format!("{below}/"), depth + 1, files) {
                files.push((below, Err(failed)));
            }
        } else if kind.is_file() || (kind.is_symlink() && entry.path().is_file()) {
            files.push((below, Ok(entry.path())));
        }
    }
    Ok(())
}

fn feed(intake: &mut Intake, name: &str, from: &mut dyn BufRead) -> io::Result<()> {
    let mut file = intake.file(name);
    let mut chunk = vec![0; CHUNK];
    loop {
        match from.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(count) => drop(file.feed(chunk.get(..count).unwrap_or_default())),
            Err(failed) if failed.kind() == io::ErrorKind::Interrupted => {}
            Err(failed) => return Err(failed),
        }
    }
}

fn error(path: &Path, source: io::Error) -> FilesError {
    FilesError { path: path.display().to_string(), source }
}

#[cfg(test)]
mod tests {
    use evidence::NodeEvidence;
    use model::{Key, Kind};

    use super::*;
    use gather::bundle::BundleWriter;

    #[test]
    fn folders_are_read_in_order_and_hidden_files_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        fs::create_dir(folder.path().join("sub")).unwrap();
        put("b.route.txt", "default via 10.0.0.1 dev eth0\n");
        put(".hidden.txt", "default via 10.0.0.2 dev eth0\n");
        put("sub/a.neigh.txt", "10.0.0.1 dev eth0 FAILED\n");
        std::os::unix::fs::symlink(folder.path(), folder.path().join("loop")).unwrap();
        let evidence = of_files(&[folder.path().to_owned()]).unwrap();
        assert_eq!(evidence.nodes.keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        let routes = evidence.node(&"b".into()).unwrap().kernel.routes.as_ref().unwrap();
        assert_eq!((routes.len(), routes[0].exhibit("").file.as_str()), (1, "b.route.txt"));
    }

    /// Every node's bundle holds the whole store.
    #[test]
    fn a_store_that_several_bundles_hold_is_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let bundle = |node: &str, taken_at: &str| {
            let mut writer = BundleWriter::new(Vec::new());
            for second in ["00", "05"] {
                writer.look(format!("{taken_at}:{second}Z").parse().unwrap()).unwrap();
                let pool = serde_json::json!({"spec": {"cidr": "10.0.0.0/16"}, "by": node}).to_string();
                writer.record(&Key::cluster(Kind::IpPool, "pods"), pool.as_bytes()).unwrap();
                writer.whole_store().unwrap();
                writer.node(NodeEvidence::new(node)).unwrap();
            }
            let path = folder.path().join(format!("{node}.bundle"));
            fs::write(&path, writer.finish().unwrap()).unwrap();
            path
        };
        let (newer, older) = (bundle("a", "2026-01-01T10:07"), bundle("b", "2026-01-01T10:06"));
        let mut evidence = of_files(&[newer, older]).unwrap();
        for _ in 0..2 {
            let pools = evidence.records.all(Kind::IpPool);
            assert_eq!(pools.len(), 1);
            assert_eq!(pools[0].seen.body["by"], "a");
            assert_eq!(evidence.nodes.len(), 2);
            assert!(!evidence.partial.endpoints && doctor::diagnose(&evidence).findings.is_empty());
            evidence = evidence.earlier.take().map_or(evidence, |earlier| *earlier);
        }
    }

    /// What is kept of all bundles together is bounded; a store that a newer one replaces takes no room.
    #[test]
    fn bundles_together_take_no_more_than_may_be_kept() {
        let bundle = |node: &str, second: usize| {
            let mut writer = BundleWriter::new(Vec::new());
            writer.look(format!("2026-01-01T10:00:{second:02}Z").parse().unwrap()).unwrap();
            for number in 0..50 {
                let pool = br#"{"spec":{"cidr":"10.0.0.0/16"}}"#;
                writer.record(&Key::cluster(Kind::IpPool, format!("p{number}")), pool).unwrap();
            }
            writer.whole_store().unwrap();
            writer.node(NodeEvidence::new(node)).unwrap();
            writer.finish().unwrap()
        };
        let one = bundle::read_within("b", &mut &bundle("a", 0)[..], usize::MAX).unwrap().kept;
        let mut pile = Pile { room: one.store + one.store / 2 + 3 * one.others, ..Pile::default() };
        // The first of them is the newest: those that follow find half of the room they need for their store.
        for (name, second) in [("a", 9), ("b", 1), ("c", 2)] {
            pile.add_packed(name, &mut &bundle(name, second)[..], 0).unwrap();
        }
        let kept: usize = pile.bundles.iter().map(|taken| taken.kept.sum()).sum();
        assert_eq!(kept, one.store + 3 * one.others);
        let evidence = pile.finish();
        assert_eq!((evidence.nodes.len(), evidence.records.all(Kind::IpPool).len()), (3, 50));
        assert_eq!(evidence.unseen.len(), 2, "{:?}", evidence.unseen);
    }

    #[test]
    fn files_beyond_the_limit_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let mut pile = Pile { files_left: 2, ..Pile::default() };
        for name in ["a.route.txt", "b.route.txt", "c.route.txt", "d.route.txt"] {
            let path = folder.path().join(name);
            fs::write(&path, "default via 10.0.0.1 dev eth0\n").unwrap();
            pile.add_file(name, &path).unwrap();
        }
        let evidence = pile.finish();
        assert_eq!(evidence.nodes.keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        let words: Vec<String> = evidence.unseen.iter().map(Unseen::to_string).collect();
        assert_eq!(
            words,
            ["c.route.txt and later files, 2 in all, were skipped: no more than 100000 files are read"]
        );
    }

    #[test]
    fn one_file_that_cannot_be_read_does_not_hide_the_others() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("b.route.txt"), "default via 10.0.0.1 dev eth0\n").unwrap();
        fs::write(folder.path().join("kubelet.log.1.xz"), b"\xfd7zXZ").unwrap();
        // Nobody, not even root, reads a process's memory from its beginning.
        std::os::unix::fs::symlink("/proc/self/mem", folder.path().join("a.txt")).unwrap();
        let evidence = of_files(&[folder.path().to_owned()]).unwrap();
        assert!(evidence.node(&"b".into()).is_some());
        let words: Vec<String> = evidence.unseen.iter().map(Unseen::to_string).collect();
        assert_eq!(words.len(), 2, "{words:?}");
        assert!(words[0].starts_with("a.txt could not be read: "), "{words:?}");
        assert_eq!(words[1], "kubelet.log.1.xz is compressed: unpack it first, with unxz");
        assert!(of_files(&[folder.path().join("a.txt")]).is_err(), "what was named must be readable");
    }

    #[test]
    fn what_is_not_there_is_said() {
        let error = of_files(&[PathBuf::from("no-such-file")]).unwrap_err();
        assert_eq!(error.to_string(), "cannot read no-such-file");
    }
}
