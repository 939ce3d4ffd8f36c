//! `plumb node checksystem`: whether this kernel has what a pod network needs.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use crate::cli::node::Checksystem;
use crate::failure::{Failure, Failures};

/// Netlink as we use it came with this one.
const VERSION_MIN: (u32, u32) = (4, 19);
/// How long a try in a namespace of its own may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A part of the kernel: its module, the line of the kernel's configuration, and what works only with it.
struct Part {
    module: &'static str,
    setting: &'static str,
    /// `None`: no pod gets its network without it. Else what cannot be had.
    without: Option<&'static str>,
    probe: &'static str,
}

const PARTS: [Part; 8] = [
    Part {
        module: "veth",
        setting: "CONFIG_VETH",
        without: None,
        probe: "ip link add p type veth peer name q",
    },
    Part { module: "nf_tables", setting: "CONFIG_NF_TABLES", without: None, probe: "nft add table ip p" },
    Part {
        module: "nft_fib_inet",
        setting: "CONFIG_NFT_FIB_INET",
        without: None,
        probe: "nft 'add table inet p; add chain inet p c { type filter hook prerouting priority -300; }; add rule inet p c fib saddr . iif oif missing drop'",
    },
    Part {
        module: "nft_chain_nat",
        setting: "CONFIG_NFT_NAT",
        without: Some("natOutgoing"),
        probe: "nft 'add table ip p; add chain ip p c { type nat hook postrouting priority 100; }'",
    },
    Part {
        module: "nft_masq",
        setting: "CONFIG_NFT_MASQ",
        without: Some("natOutgoing"),
        probe: "nft 'add table ip p; add chain ip p c { type nat hook postrouting priority 100; }; add rule ip p c masquerade'",
    },
    Part {
        module: "vxlan",
        setting: "CONFIG_VXLAN",
        without: Some("vxlanMode"),
        probe: "ip link add p type vxlan id 1 dstport 4789 local 127.0.0.1",
    },
    Part {
        module: "ipip",
        setting: "CONFIG_NET_IPIP",
        without: Some("ipipMode"),
        probe: "ip tunnel add p mode ipip local 127.0.0.1 remote 127.0.0.2",
    },
    Part {
        module: "ipv6",
        setting: "CONFIG_IPV6",
        without: Some("IPv6"),
        probe: "test -e /proc/sys/net/ipv6",
    },
];

/// What the running kernel is, and which parts it has.
pub(in crate::commands) struct Kernel {
    pub(in crate::commands) release: String,
    pub(in crate::commands) is_new_enough: bool,
    /// Modules that it lacks: those without which there is no network at all, and others with what cannot be had then.
    pub(in crate::commands) missing: Vec<(&'static str, Option<&'static str>)>,
}

/// The oldest kernel that will do.
pub(in crate::commands) fn oldest_kernel() -> String {
    format!("{}.{}", VERSION_MIN.0, VERSION_MIN.1)
}

/// Whether a kernel is new enough, by what `uname -r` says.
pub(in crate::commands) fn is_new_enough(release: &str) -> bool {
    version(release).is_some_and(|version| version >= VERSION_MIN)
}

pub(in crate::commands) fn running_kernel() -> Result<Kernel, Failure> {
    let release = read("/proc/sys/kernel/osrelease")?;
    let config = std::fs::read_to_string(format!("/boot/config-{release}")).unwrap_or_default();
    let known = Known::here(&release, config);
    let missing = PARTS.iter().filter(|part| !known.has(part) && !works(part.probe));
    let missing = missing.map(|part| (part.module, part.without)).collect();
    Ok(Kernel { is_new_enough: is_new_enough(&release), release, missing })
}

pub(super) fn run(wanted: &Checksystem) -> Result<(), Failures> {
    let release = read("/proc/sys/kernel/osrelease")?;
    let config = match &wanted.kernel_config {
        Some(path) => read(path)?,
        None => std::fs::read_to_string(format!("/boot/config-{release}")).unwrap_or_default(),
    };
    let known = Known::here(&release, config);
    let mut out = io::stdout().lock();
    writeln!(out, "Checking kernel version...")?;
    let is_new = is_new_enough(&release);
    line(&mut out, &release, if is_new { "OK" } else { "FAIL" })?;
    writeln!(out, "Checking kernel modules...")?;
    let mut missing = Vec::new();
    for part in PARTS {
        // What cannot be read about can be tried, in a namespace that goes away with the try.
        let has = known.has(&part) || (wanted.kernel_config.is_none() && works(part.probe));
        let word = match (has, part.without) {
            (true, _) => "OK".to_owned(),
            (false, Some(without)) => format!("SKIP (no {without})"),
            (false, None) => {
                missing.push(part.module);
                "FAIL".to_owned()
            }
        };
        line(&mut out, part.module, &word)?;
    }
    if is_new && missing.is_empty() {
        writeln!(out, "System meets minimum system requirements to run Plumbline!")?;
        return Ok(());
    }
    let mut reasons: Vec<String> =
        missing.iter().map(|module| format!("the kernel has no {module}")).collect();
    if !is_new {
        reasons.insert(0, format!("the kernel {release} is older than {}", oldest_kernel()));
    }
    Err(Failure::new(format!("this machine cannot run a pod network: {}", reasons.join(", "))).into())
}

/// Whether a command does something in a network namespace of its own; needs root, and is `false` without.
fn works(probe: &str) -> bool {
    let mut tried = std::process::Command::new("unshare");
    tried.args(["-n", "sh", "-c", probe]);
    host::program::status(&mut tried, PATIENCE).is_ok_and(|status| status.success())
}

fn line(out: &mut dyn Write, what: &str, word: &str) -> io::Result<()> {
    writeln!(out, "\t{what:<24}{word}")
}

fn read(path: impl AsRef<Path>) -> Result<String, Failure> {
    let path = path.as_ref();
    let text = std::fs::read_to_string(path);
    let text =
        text.map_err(|error| Failure::new(format!("cannot read {}", path.display())).caused_by(&error))?;
    Ok(text.trim_end().to_owned())
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// All that is known of the kernel.
struct Known {
    /// Loaded, built in, or there to be loaded.
    modules: BTreeSet<String>,
    config: String,
}

impl Known {
    fn here(release: &str, config: String) -> Known {
        let mut modules = BTreeSet::new();
        if let Ok(loaded) = std::fs::read_dir("/sys/module") {
            modules.extend(loaded.flatten().filter_map(|entry| entry.file_name().into_string().ok()));
        }
        for list in ["modules.dep", "modules.builtin"] {
            let text = std::fs::read_to_string(format!("/lib/modules/{release}/{list}")).unwrap_or_default();
            modules.extend(text.lines().filter_map(module_of));
        }
        Known { modules, config }
    }

    fn has(&self, part: &Part) -> bool {
        let is_set =
            |line: &str| line.strip_prefix(part.setting).is_some_and(|rest| matches!(rest, "=y" | "=m"));
        self.modules.contains(part.module) || self.config.lines().any(is_set)
    }
}

/// `kernel/drivers/net/veth.ko.xz: …` names `veth`.
fn module_of(line: &str) -> Option<String> {
    let path = line.split(':').next()?;
    let file = path.rsplit('/').next()?;
    let name = file.split(".ko").next()?;
    (!name.is_empty()).then(|| name.replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_modules_are_read() {
        assert_eq!(version("6.1.0-18-amd64"), Some((6, 1)));
        assert_eq!(version("4.4.0"), Some((4, 4)));
        assert_eq!(version("odd"), None);
        assert_eq!(
            module_of("kernel/net/netfilter/nft-chain-nat.ko.xz: a.ko"),
            Some("nft_chain_nat".to_owned())
        );
        assert_eq!(module_of(""), None);
    }

    #[test]
    fn a_part_may_be_built_in() {
        let known = Known {
            modules: BTreeSet::new(),
            config: "CONFIG_VETH=y\n# CONFIG_VXLAN is not set\n".to_owned(),
        };
        let has: Vec<bool> = PARTS.iter().map(|part| known.has(part)).collect();
        assert_eq!(has, [true, false, false, false, false, false, false, false]);
    }
}
