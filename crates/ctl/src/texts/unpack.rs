//! Packed files: rotated logs are compressed, and diagnostics come as archives. Everything is unpacked while it is read, never
//! onto the disk, and never without an end.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use tar::{Archive, EntryType};

/// How many bytes tell what a file is.
pub(super) const TELLING: u64 = 512;
/// More than this is not unpacked, of all files together: a few bytes can be made to unpack to any number.
pub(super) const UNPACKED_MAX: u64 = 8 << 30;
/// And no more files are read, of all archives together.
pub(super) const FILES_MAX: usize = 100_000;
/// A name that an archive gives a file in a header of its own may have any length. No system takes longer ones.
const NAME_BYTES_MAX: usize = 4 << 10;
/// What stands between two files of an archive, such as those headers.
const HEADERS_MAX: u64 = 1 << 20;
const CHUNK: usize = 64 << 10;

/// What is inside, and how to get at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packed {
    Gzip,
    Tar,
    /// Not here, but by this program.
    By(&'static str),
}

pub(super) fn kind(first: &[u8]) -> Option<Packed> {
    const KINDS: [(&[u8], Packed); 5] = [
        (&[0x1f, 0x8b], Packed::Gzip),
        (&[0xfd, b'7', b'z', b'X', b'Z'], Packed::By("unxz")),
        (&[0x28, 0xb5, 0x2f, 0xfd], Packed::By("unzstd")),
        (b"BZh", Packed::By("bunzip2")),
        (b"PK\x03\x04", Packed::By("unzip")),
    ];
    const TAR_AT: usize = 257;
    let is_tar = first.get(TAR_AT..).is_some_and(|rest| rest.starts_with(b"ustar"));
    let packed = KINDS.iter().find(|(beginning, _)| first.starts_with(beginning)).map(|(_, packed)| *packed);
    packed.or(is_tar.then_some(Packed::Tar))
}

/// What a file is called without what it was packed in: names tell kinds and nodes.
pub(super) fn name_unpacked(name: &str) -> &str {
    [".tar.gz", ".tgz", ".tar", ".gz"].iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name)
}

/// Gives what a compressed file holds, as long as there is something `left` of what may be unpacked.
pub(super) fn gzip(
    from: &mut dyn BufRead,
    left: &mut u64,
    take: impl FnOnce(&mut dyn BufRead) -> io::Result<()>,
) -> io::Result<()> {
    let mut unpacked = BufReader::with_capacity(CHUNK, MultiGzDecoder::new(from).take(*left));
    let taken = take(&mut unpacked);
    *left = unpacked.get_ref().limit();
    taken?;
    match left {
        0 => Err(io::Error::other(format!("more than {} GiB would be unpacked", UNPACKED_MAX >> 30))),
        _ => Ok(()),
    }
}

/// Gives the files of an archive, each with its name, as long as some are `left` of those that may be read. Folders, links and devices are
/// passed over, and so is what is hidden.
pub(super) fn tar(
    from: &mut dyn BufRead,
    left: &mut usize,
    mut take: impl FnMut(&str, &mut dyn BufRead) -> io::Result<()>,
) -> io::Result<()> {
    let until = Cell::new(HEADERS_MAX);
    let mut archive = Archive::new(Metered { from, at: 0, until: &until });
    for entry in archive.entries()? {
        let entry = entry?;
        // The header alone says how much of a file with holes stands in the archive.
        let size = if entry.header().entry_type().is_gnu_sparse() {
            entry.header().entry_size()?
        } else {
            entry.size()
        };
        until.set(entry.raw_file_position().saturating_add(size).saturating_add(HEADERS_MAX));
        *left = left
            .checked_sub(1)
            .ok_or_else(|| io::Error::other(format!("more than {FILES_MAX} files would be read")))?;
        if !matches!(entry.header().entry_type(), EntryType::Regular | EntryType::Continuous) {
            continue;
        }
        let path = entry.path()?.to_string_lossy().into_owned();
        let name = path.trim_start_matches("./");
        let cut = name.ceil_char_boundary(name.len().saturating_sub(NAME_BYTES_MAX));
        let name = name.get(cut..).unwrap_or_default().to_owned();
        if !name.split('/').any(|part| part.starts_with('.')) {
            take(&name, &mut BufReader::with_capacity(CHUNK, entry))?;
        }
    }
    Ok(())
}

/// Reads up to a place that moves on with the files: the reader of archives keeps headers in memory, however long they are.
struct Metered<'a> {
    from: &'a mut dyn BufRead,
    at: u64,
    until: &'a Cell<u64>,
}

impl Read for Metered<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until.get().saturating_sub(self.at);
        if left == 0 {
            return Err(io::Error::other("the headers of a file are too long"));
        }
        let most = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let count = self.from.read(buffer.get_mut(..most).unwrap_or_default())?;
        self.at = self.at.saturating_add(count as u64);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::path::Path;

    use evidence::Evidence;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;

    use super::super::of_files;

    const ROUTES_NAME: &str = "a.route.txt";
    const ROUTES: &str = "default via 10.0.0.1 dev eth0\n10.1.0.0/16 dev eth1\n";

    fn compressed(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn archived(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut archive = tar::Builder::new(Vec::new());
        for (name, content) in files {
            let mut header = tar::Header::new_ustar();
            header.set_size(content.len() as u64);
            header.set_mode(0o600);
            archive.append_data(&mut header, name, *content).unwrap();
        }
        archive.into_inner().unwrap()
    }

    fn read(name: &str, content: &[u8]) -> Evidence {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(name), content).unwrap();
        of_files(&[folder.path().to_owned()]).unwrap()
    }

    fn routes(evidence: &Evidence, node: &str) -> usize {
        evidence.node(&node.into()).and_then(|node| node.kernel.routes.as_ref()).map_or(0, Vec::len)
    }

    #[test]
    fn a_compressed_file_tells_what_it_told_before() {
        let evidence = read("a.route.txt.gz", &compressed(ROUTES.as_bytes()));
        assert_eq!((routes(&evidence, "a"), evidence.unseen.len()), (2, 0), "{:?}", evidence.unseen);
        let routes = evidence.node(&"a".into()).unwrap().kernel.routes.as_ref().unwrap();
        assert_eq!(routes[0].exhibit("").file, "a.route.txt");
        // Rotation appends one compressed file to another.
        let twice = [compressed(b"default via 10.0.0.1 dev eth0\n"), compressed(b"10.1.0.0/16 dev eth1\n")];
        assert_eq!(self::routes(&read("a.route.txt.gz", &twice.concat()), "a"), 2);
    }

    #[test]
    fn archives_tell_what_their_files_tell() {
        let inner = compressed(ROUTES.as_bytes());
        let archive = archived(&[
            ("./diags/b.route.txt", ROUTES.as_bytes()),
            ("diags/.hidden/c.route.txt", ROUTES.as_bytes()),
            ("diags/d.route.txt.gz", &inner),
        ]);
        for (name, content) in [("x.tar", archive.clone()), ("x.tgz", compressed(&archive))] {
            let evidence = read(name, &content);
            let nodes: Vec<&str> = evidence.nodes.keys().map(|name| name.as_str()).collect();
            assert_eq!(nodes, ["b", "d"], "{name}: {:?}", evidence.unseen);
            let seen =
                evidence.node(&"b".into()).unwrap().kernel.routes.as_ref().unwrap()[0].exhibit("").file;
            assert_eq!(Path::new(&seen), Path::new("x/diags/b.route.txt"));
        }
    }

    #[test]
    fn what_came_before_damage_is_read_and_the_damage_is_said() {
        let lines: String =
            (0..20_000).map(|n| format!("10.{}.{}.0/24 dev eth0\n", n / 250, n % 250)).collect();
        let mut cut = compressed(lines.as_bytes());
        cut.truncate(cut.len() / 2);
        let evidence = read("a.route.txt.gz", &cut);
        assert!((1000..20_000).contains(&routes(&evidence, "a")), "{}", routes(&evidence, "a"));
        let told = |unseen: &evidence::Unseen| {
            unseen.to_string().starts_with("a.route.txt.gz could not be unpacked completely: ")
        };
        assert!(evidence.unseen.iter().any(told), "{:?}", evidence.unseen);
    }

    /// Of all files together: an archive of many small ones is no way around it.
    #[test]
    fn no_more_is_unpacked_than_may_be() {
        let packed = compressed(&[b'x'; 1_000]);
        let mut left = 1_500;
        let mut unpack = |expected: usize| {
            super::gzip(&mut &packed[..], &mut left, |text| {
                let mut all = Vec::new();
                text.read_to_end(&mut all)?;
                assert_eq!(all.len(), expected);
                Ok(())
            })
        };
        unpack(1_000).unwrap();
        assert_eq!(unpack(500).unwrap_err().to_string(), "more than 8 GiB would be unpacked");
        assert!(unpack(0).is_err());
        assert_eq!(left, 0);
    }

    /// Of all archives together, and whatever is in them.
    #[test]
    fn no_more_files_are_read_than_may_be() {
        let archive = archived(&[("a", b"x"), ("b", b"x"), ("c", b"x")]);
        let mut left = 5;
        let mut names = Vec::new();
        let mut read = |left: &mut usize| {
            super::tar(&mut &archive[..], left, |name, _| {
                names.push(name.to_owned());
                Ok(())
            })
        };
        read(&mut left).unwrap();
        assert_eq!(read(&mut left).unwrap_err().to_string(), "more than 100000 files would be read");
        assert_eq!((names.len(), left), (5, 0));
    }

    /// Names that do not fit into a header stand in one of their own, which was read as a whole.
    #[test]
    fn names_of_any_length_are_cut_or_refused() {
        let archive_of = |length: usize| {
            let mut archive = tar::Builder::new(Vec::new());
            let name = format!("{}/{ROUTES_NAME}", "d/".repeat(length / 2));
            let mut header = tar::Header::new_gnu();
            header.set_size(ROUTES.len() as u64);
            archive.append_data(&mut header, &name, ROUTES.as_bytes()).unwrap();
            archive.into_inner().unwrap()
        };
        let read = |length: usize| {
            let mut read = Vec::new();
            let result = super::tar(&mut &archive_of(length)[..], &mut 9, |name, text| {
                let mut all = String::new();
                text.read_to_string(&mut all)?;
                read.push((name.to_owned(), all));
                Ok(())
            });
            (read, result.map_err(|error| error.to_string()))
        };
        for length in [200, 100_000] {
            let (read, result) = read(length);
            assert_eq!(result, Ok(()));
            assert!(read[0].0.ends_with(ROUTES_NAME) && read[0].0.len() <= super::NAME_BYTES_MAX);
            assert_eq!(read[0].1, ROUTES);
        }
        assert_eq!(read(2 << 20), (Vec::new(), Err("the headers of a file are too long".to_owned())));
    }

    /// What was not read of a file is passed over before the next one.
    #[test]
    fn large_files_do_not_hide_what_follows_them() {
        let large = vec![b'x'; 3 << 20];
        let archive = archived(&[("a", &large), ("b", &large), ("c", b"x")]);
        let mut names = Vec::new();
        super::tar(&mut &archive[..], &mut 9, |name, _| {
            names.push(name.to_owned());
            Ok(())
        })
        .unwrap();
        assert_eq!(names, ["a", "b", "c"]);
    }

    #[test]
    fn nothing_is_unpacked_for_ever() {
        let packed = (0..5).fold(ROUTES.as_bytes().to_vec(), |inner, _| compressed(&inner));
        let evidence = read("a.route.txt.gz", &packed);
        assert_eq!(evidence.unseen[0].to_string(), "a.route.txt is packed too many times and was not read");
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_odd(
            bytes in proptest::collection::vec(any::<u8>(), 0..2000),
            at in 0usize..2000,
            form in 0usize..3,
        ) {
            let mut file = match form {
                0 => [&[0x1f, 0x8b, 8, 0][..], &bytes].concat(),
                1 => archived(&[("a.route.txt", ROUTES.as_bytes()), ("b", &bytes)]),
                _ => compressed(&archived(&[("a.route.txt", ROUTES.as_bytes()), ("b", &bytes)])),
            };
            if let Some(byte) = file.get_mut(at) {
                *byte ^= 0x41;
            }
            read("x.tgz", &file);
        }
    }
}
