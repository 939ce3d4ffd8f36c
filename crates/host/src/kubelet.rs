//! Which address the kubelet was given for this node: `--node-ip`, of a kubelet that runs, or that will be started.

use std::net::IpAddr;
use std::path::Path;

/// Where kubeadm and the kubelet's packages keep what it is started with.
const ARGUMENT_FILES: [&str; 3] =
    ["/var/lib/kubelet/kubeadm-flags.env", "/etc/default/kubelet", "/etc/sysconfig/kubelet"];
const FLAG: &str = "--node-ip";

/// What `--node-ip` says: one address, one for each IP version, or none. A kubelet of another network namespace is another node's.
pub fn node_ips() -> Vec<IpAddr> {
    let proc = Path::new("/proc");
    let Ok(here) = std::fs::read_link(proc.join("self/ns/net")) else { return Vec::new() };
    let mut runs = false;
    for process in std::fs::read_dir(proc).into_iter().flatten().flatten() {
        let process = process.path();
        let is_kubelet =
            std::fs::read_to_string(process.join("comm")).is_ok_and(|name| name.trim() == "kubelet");
        if !is_kubelet || std::fs::read_link(process.join("ns/net")).ok().as_ref() != Some(&here) {
            continue;
        }
        runs = true;
        let command = std::fs::read(process.join("cmdline")).unwrap_or_default();
        let found = of_command_line(&command);
        if !found.is_empty() {
            return found;
        }
    }
    // One that runs without the flag was not given it. The files are the machine's, so they count for its own namespace only.
    if runs || std::fs::read_link(proc.join("1/ns/net")).ok() != Some(here) {
        return Vec::new();
    }
    ARGUMENT_FILES.iter().find_map(|file| of_file(Path::new(file))).unwrap_or_default()
}

fn of_file(path: &Path) -> Option<Vec<IpAddr>> {
    let text = std::fs::read_to_string(path).ok()?;
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    lines.map(of_arguments).find(|found| !found.is_empty())
}

/// Arguments are separated by NUL.
fn of_command_line(command: &[u8]) -> Vec<IpAddr> {
    let arguments = String::from_utf8_lossy(command);
    node_ip(arguments.split('\0'))
}

/// `KUBELET_EXTRA_ARGS="--a=b --node-ip=10.0.0.1"`.
fn of_arguments(line: &str) -> Vec<IpAddr> {
    let Some((_, arguments)) = line.split_once('=') else { return Vec::new() };
    node_ip(arguments.split(|character: char| character.is_whitespace() || matches!(character, '"' | '\'')))
}

/// The last one counts, as with every flag of the kubelet.
fn node_ip<'a>(arguments: impl Iterator<Item = &'a str>) -> Vec<IpAddr> {
    let mut value = None;
    let mut is_next = false;
    for argument in arguments {
        if is_next {
            value = Some(argument);
            is_next = false;
        } else if let Some(rest) = argument.strip_prefix(FLAG) {
            match rest.strip_prefix('=') {
                Some(said) => value = Some(said),
                None => is_next = rest.is_empty(),
            }
        }
    }
    let said = value.unwrap_or_default().split(',').filter_map(|text| text.trim().parse::<IpAddr>().ok());
    // `::` asks for any address of that version.
    said.filter(|address| !address.is_unspecified()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn the_flag_is_read_in_each_of_its_forms() {
        for (command, expected) in [
            ("/usr/bin/kubelet\0--node-ip=10.0.0.7\0--v=2\0", &["10.0.0.7"][..]),
            ("kubelet\0--node-ip\0fd00::7\0", &["fd00::7"]),
            ("kubelet\0--node-ip=10.0.0.7,fd00::7\0", &["10.0.0.7", "fd00::7"]),
            ("kubelet\0--node-ip=10.0.0.7\0--node-ip=10.0.0.8\0", &["10.0.0.8"]),
            ("kubelet\0--node-ip=::\0", &[]),
            ("kubelet\0--node-ips=10.0.0.7\0", &[]),
            ("kubelet\0--node-ip\0", &[]),
        ] {
            assert_eq!(of_command_line(command.as_bytes()), ips(expected), "{command:?}");
        }
    }

    #[test]
    fn files_with_arguments_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubelet");
        std::fs::write(&path, "# --node-ip=1.1.1.1\nKUBELET_EXTRA_ARGS=\"--v=2 --node-ip=10.0.0.7\"\n")
            .unwrap();
        assert_eq!(of_file(&path), Some(ips(&["10.0.0.7"])));
        std::fs::write(&path, "KUBELET_EXTRA_ARGS=\n").unwrap();
        assert_eq!(of_file(&path), None);
    }

    proptest! {
        #[test]
        fn anything_can_be_read(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = of_command_line(&bytes);
        }
    }
}
