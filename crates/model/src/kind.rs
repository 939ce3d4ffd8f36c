//! The kinds of Calico's v3 API, and what each is called: plural, scope, command-line aliases.

use std::fmt;

/// A kind of v3 resource. IPAM's own records (blocks, affinities, handles) are kinds too, because operators
/// ask for them by kind, but they live under keys of their own: see [`crate::Key`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    BgpConfiguration,
    BgpFilter,
    BgpPeer,
    BlockAffinity,
    CalicoNodeStatus,
    ClusterInformation,
    FelixConfiguration,
    GlobalNetworkPolicy,
    GlobalNetworkSet,
    HostEndpoint,
    IpamBlock,
    IpamConfiguration,
    IpamHandle,
    IpPool,
    IpReservation,
    KubeControllersConfiguration,
    NetworkPolicy,
    NetworkSet,
    Node,
    Profile,
    StagedGlobalNetworkPolicy,
    StagedKubernetesNetworkPolicy,
    StagedNetworkPolicy,
    Tier,
    WorkloadEndpoint,
}

struct Words {
    kind: Kind,
    name: &'static str,
    plural: &'static str,
    namespaced: bool,
    /// Further names accepted on the command line, in lower case. The kind's own name, with and without a
    /// trailing `s`, and its plural are always accepted.
    aliases: &'static [&'static str],
}

const fn words(
    kind: Kind,
    name: &'static str,
    plural: &'static str,
    namespaced: bool,
    aliases: &'static [&'static str],
) -> Words {
    Words { kind, name, plural, namespaced, aliases }
}

/// In the order of the enum, so that `WORDS[kind as usize]` is the kind's own row.
static WORDS: [Words; 25] = [
    words(
        Kind::BgpConfiguration,
        "BGPConfiguration",
        "bgpconfigurations",
        false,
        &["bgpconfig", "bgpconfigs"],
    ),
    words(Kind::BgpFilter, "BGPFilter", "bgpfilters", false, &["bgpf", "bf"]),
    words(Kind::BgpPeer, "BGPPeer", "bgppeers", false, &["bgpp", "bgpps", "bp", "bps"]),
    words(Kind::BlockAffinity, "BlockAffinity", "blockaffinities", false, &["affinity", "affinities"]),
    words(
        Kind::CalicoNodeStatus,
        "CalicoNodeStatus",
        "caliconodestatuses",
        false,
        &["nodestatus", "nodestatuses"],
    ),
    words(
        Kind::ClusterInformation,
        "ClusterInformation",
        "clusterinformations",
        false,
        &["clusterinfo", "clusterinfos"],
    ),
    words(
        Kind::FelixConfiguration,
        "FelixConfiguration",
        "felixconfigurations",
        false,
        &["felixconfig", "felixconfigs"],
    ),
    words(Kind::GlobalNetworkPolicy, "GlobalNetworkPolicy", "globalnetworkpolicies", false, &["gnp", "gnps"]),
    words(
        Kind::GlobalNetworkSet,
        "GlobalNetworkSet",
        "globalnetworksets",
        false,
        &["gnetset", "gnetsets", "globalnetset"],
    ),
    words(Kind::HostEndpoint, "HostEndpoint", "hostendpoints", false, &["hep", "heps"]),
    words(Kind::IpamBlock, "IPAMBlock", "ipamblocks", false, &["block", "blocks"]),
    words(
        Kind::IpamConfiguration,
        "IPAMConfiguration",
        "ipamconfigurations",
        false,
        &["ipamconfig", "ipamconfigs"],
    ),
    words(Kind::IpamHandle, "IPAMHandle", "ipamhandles", false, &["handle", "handles"]),
    words(Kind::IpPool, "IPPool", "ippools", false, &["ipp", "ipps", "pool", "pools"]),
    words(Kind::IpReservation, "IPReservation", "ipreservations", false, &["reservation", "reservations"]),
    words(
        Kind::KubeControllersConfiguration,
        "KubeControllersConfiguration",
        "kubecontrollersconfigurations",
        false,
        &["kubecontrollersconfig", "kubecontrollersconfigs"],
    ),
    words(
        Kind::NetworkPolicy,
        "NetworkPolicy",
        "networkpolicies",
        true,
        &["np", "nps", "policy", "policies", "pol", "pols"],
    ),
    words(Kind::NetworkSet, "NetworkSet", "networksets", true, &["netset", "netsets"]),
    words(Kind::Node, "Node", "nodes", false, &["no", "nos"]),
    words(Kind::Profile, "Profile", "profiles", false, &["pro", "pros"]),
    words(
        Kind::StagedGlobalNetworkPolicy,
        "StagedGlobalNetworkPolicy",
        "stagedglobalnetworkpolicies",
        false,
        &["sgnp", "sgnps"],
    ),
    words(
        Kind::StagedKubernetesNetworkPolicy,
        "StagedKubernetesNetworkPolicy",
        "stagedkubernetesnetworkpolicies",
        true,
        &["sknp", "sknps"],
    ),
    words(
        Kind::StagedNetworkPolicy,
        "StagedNetworkPolicy",
        "stagednetworkpolicies",
        true,
        &["snp", "snps", "spol"],
    ),
    words(Kind::Tier, "Tier", "tiers", false, &[]),
    words(Kind::WorkloadEndpoint, "WorkloadEndpoint", "workloadendpoints", true, &["wep", "weps"]),
];

impl Kind {
    fn words(self) -> &'static Words {
        &WORDS[self as usize]
    }

    /// Every kind, in alphabetical order.
    pub fn all() -> impl Iterator<Item = Kind> {
        WORDS.iter().map(|words| words.kind)
    }

    /// As written in a manifest: `IPPool`.
    pub fn name(self) -> &'static str {
        self.words().name
    }

    /// As written in a key: `ippools`.
    pub fn plural(self) -> &'static str {
        self.words().plural
    }

    pub fn is_namespaced(self) -> bool {
        self.words().namespaced
    }

    /// Whether resources of this kind belong to a tier: Calico's policies, staged or not.
    pub fn is_tiered(self) -> bool {
        matches!(
            self,
            Kind::GlobalNetworkPolicy
                | Kind::NetworkPolicy
                | Kind::StagedGlobalNetworkPolicy
                | Kind::StagedNetworkPolicy
        )
    }

    /// Names accepted on the command line besides the kind's own and its plural.
    pub fn aliases(self) -> &'static [&'static str] {
        self.words().aliases
    }

    /// The kind written in a manifest's `kind:` line; exact, as Calico wants it.
    pub fn from_manifest(name: &str) -> Option<Kind> {
        WORDS.iter().find(|words| words.name == name).map(|words| words.kind)
    }

    /// The kind that owns this plural, as found in a key.
    pub fn from_plural(plural: &str) -> Option<Kind> {
        WORDS.iter().find(|words| words.plural == plural).map(|words| words.kind)
    }

    /// The kind an operator means: any case, singular or plural, or an alias.
    pub fn from_command_line(word: &str) -> Option<Kind> {
        let word = word.to_ascii_lowercase();
        let is_meant = |words: &&Words| {
            let name = words.name.to_ascii_lowercase();
            word == name
                || word == words.plural
                || word.strip_suffix('s') == Some(&name)
                || words.aliases.contains(&word.as_str())
        };
        WORDS.iter().find(is_meant).map(|words| words.kind)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_row() {
        for (index, words) in WORDS.iter().enumerate() {
            assert_eq!(words.kind as usize, index, "{} stands in the wrong row", words.name);
        }
    }

    #[test]
    fn no_word_means_two_kinds() {
        let mut seen = std::collections::BTreeMap::new();
        for words in &WORDS {
            let own = [words.name.to_ascii_lowercase(), words.plural.to_owned()];
            for word in own.into_iter().chain(words.aliases.iter().map(|alias| (*alias).to_owned())) {
                if let Some(other) = seen.insert(word.clone(), words.kind) {
                    assert_eq!(other, words.kind, "{word} means two kinds");
                }
                assert_eq!(Kind::from_command_line(&word), Some(words.kind));
            }
        }
    }

    #[test]
    fn calicoctl_words_are_understood() {
        let cases = [
            ("wep", Kind::WorkloadEndpoint),
            ("WorkloadEndpoints", Kind::WorkloadEndpoint),
            ("nodes", Kind::Node),
            ("pool", Kind::IpPool),
            ("ipamconfig", Kind::IpamConfiguration),
            ("gnp", Kind::GlobalNetworkPolicy),
            ("netsets", Kind::NetworkSet),
        ];
        for (word, kind) in cases {
            assert_eq!(Kind::from_command_line(word), Some(kind), "{word}");
        }
        assert_eq!(Kind::from_command_line("pod"), None);
    }
}
