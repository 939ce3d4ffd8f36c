//! Kernel settings below `/proc/sys`, of the calling thread's namespace. Some can also be asked for through a socket: that
//! is cheaper than a file, whose path the kernel looks up among those of all namespaces, and needs no visit.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use plan::{FORWARD_V4, Sysctl};

use crate::netlink::message::{Attributes, read_u32};
use crate::netlink::numbers::*;
use crate::netlink::{Message, Netlink};
use crate::objects::NETCONF_HEADER;
use crate::{HostError, messages};

pub(crate) fn read(path: &str) -> Result<String, HostError> {
    read_file(path).map(|text| text.trim_end().to_owned()).map_err(|source| HostError::Sysctl {
        verb: "read",
        path: path.to_owned(),
        source,
    })
}

/// In one read: the kernel gives a setting as a whole, and has no size to ask for beforehand.
fn read_file(path: &str) -> io::Result<String> {
    let mut text = [0; 256];
    let length = File::open(file(path))?.read(&mut text)?;
    Ok(String::from_utf8_lossy(&text[..length]).into_owned())
}

/// Those of `wanted` that can be read, as they are now.
pub(crate) fn read_all(wanted: &[&Sysctl]) -> Vec<Sysctl> {
    let read_one = |sysctl: &&Sysctl| {
        let value = read(&sysctl.path).ok()?;
        Some(Sysctl { path: sysctl.path.clone(), value })
    };
    wanted.iter().filter_map(read_one).collect()
}

/// The question whose answer [`told`] understands, if there is one for this setting.
pub(crate) fn question(path: &str) -> Option<crate::netlink::Request> {
    (path == FORWARD_V4).then(|| messages::get_settings(NETCONFA_IFINDEX_ALL))
}

/// A setting out of the answer to its question.
pub(crate) fn told(path: &str, answer: &Message) -> Option<Sysctl> {
    let is_answer = path == FORWARD_V4 && answer.kind == RTM_NEWNETCONF;
    let value = is_answer.then(|| setting(answer, NETCONFA_FORWARDING))??;
    Some(Sysctl { path: path.to_owned(), value: value.to_string() })
}

/// `net/ipv4/conf/default/rp_filter`.
pub(crate) fn default_rp_filter(netlink: &mut Netlink) -> Result<u8, HostError> {
    let answer = netlink.get(messages::get_settings(NETCONFA_IFINDEX_DEFAULT))?;
    let value = setting(&answer, NETCONFA_RP_FILTER);
    Ok(value.and_then(|value| u8::try_from(value).ok()).unwrap_or_default())
}

/// A setting, through the socket where that is possible.
pub(crate) fn ask(netlink: &mut Netlink, path: &str) -> Result<String, HostError> {
    if let Some(question) = question(path)
        && let Some(sysctl) = told(path, &netlink.get(question)?)
    {
        return Ok(sysctl.value);
    }
    read(path)
}

fn setting(answer: &Message, wanted: u16) -> Option<u32> {
    let mut attributes = Attributes::after(&answer.body, NETCONF_HEADER);
    attributes.find(|(kind, _)| *kind == wanted).and_then(|(_, value)| read_u32(value, 0))
}

pub(crate) fn write(sysctl: &Sysctl) -> Result<(), HostError> {
    // Neither made nor emptied: to ask for that, as std does, costs the kernel a lock.
    let file = OpenOptions::new().write(true).open(file(&sysctl.path));
    file.and_then(|mut file| file.write_all(sysctl.value.as_bytes())).map_err(|source| HostError::Sysctl {
        verb: "write",
        path: sysctl.path.clone(),
        source,
    })
}

fn file(path: &str) -> PathBuf {
    static ROOT: LazyLock<PathBuf> = LazyLock::new(|| root(Path::new("/")));
    ROOT.join(path)
}

/// In a container `/proc/sys` is read-only. So a pod mounts the node's `net` below `/host`: its settings are those of the namespace that the
/// reader is in, wherever it is mounted.
fn root(of: &Path) -> PathBuf {
    let mounted = of.join("host/proc/sys");
    if mounted.join("net/ipv4").is_dir() { mounted } else { of.join("proc/sys") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_pod_the_settings_are_where_the_pod_mounts_them() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("host/proc/sys/net")).unwrap();
        assert_eq!(root(folder.path()), folder.path().join("proc/sys"), "nothing is mounted there");
        std::fs::create_dir(folder.path().join("host/proc/sys/net/ipv4")).unwrap();
        assert_eq!(root(folder.path()), folder.path().join("host/proc/sys"));
    }
}
