//! Whatever text comes from outside: it is read or refused, and what was read is written the same.

use model::ipam::{Affinity, Block, Handle, IpamConfig};
use model::{AffinityOwner, Cidr, Key, Kind, manifest};
use proptest::prelude::*;

fn cidr() -> impl Strategy<Value = Cidr> {
    prop_oneof![
        (any::<[u8; 4]>(), 0u8..=32)
            .prop_map(|(address, len)| Cidr::containing(address.into(), len).unwrap()),
        (any::<[u8; 16]>(), 0u8..=128)
            .prop_map(|(address, len)| Cidr::containing(address.into(), len).unwrap()),
    ]
}

fn key() -> impl Strategy<Value = Key> {
    let kinds: Vec<Kind> = Kind::all().collect();
    let name = "[^/]{1,8}";
    prop_oneof![
        (prop::sample::select(kinds), name, name).prop_map(|(kind, namespace, name)| Key::Resource {
            kind,
            namespace: kind.is_namespaced().then_some(namespace),
            name,
        }),
        cidr().prop_map(Key::Block),
        (name, cidr(), any::<bool>()).prop_map(|(name, block, host)| {
            let owner = if host { AffinityOwner::Host(name) } else { AffinityOwner::Virtual(name) };
            Key::Affinity { owner, block }
        }),
        "\\PC{1,12}".prop_map(|id| Key::Handle(id.into())),
        Just(Key::IpamConfig),
    ]
}

/// A key's text with something done to it.
fn nearly_a_key() -> impl Strategy<Value = String> {
    (key(), any::<prop::sample::Index>(), "[/:.0-9a-z-]{0,3}").prop_map(|(key, at, patch)| {
        let text = key.etcd_text();
        let at = at.index(text.chars().count() + 1);
        let start: String = text.chars().take(at).collect();
        let end: String = text.chars().skip(at).collect();
        format!("{start}{patch}{end}")
    })
}

/// Manifests of the right words in the wrong order.
fn nearly_a_manifest() -> impl Strategy<Value = String> {
    let pieces = vec![
        "apiVersion: projectcalico.org/v3\n",
        "kind: IPPool\n",
        "kind: IPPoolList\n",
        "metadata:\n",
        "  name: a\n",
        "spec:\n",
        "  cidr: 10.0.0.0/16\n",
        "  blockSize: 26\n",
        "items:\n",
        "- ",
        "  ",
        "\n",
        "---\n",
        "...\n",
        "{",
        "}",
        "[",
        "]",
        ",",
        ": ",
        "? ",
        "&a ",
        "*a",
        "<<: ",
        "|\n",
        ">-\n",
        "\"",
        "'",
        "#",
        "!!str ",
        "%YAML 1.2\n",
        "\t",
        "é",
        "null",
        "0x1f",
        "1e999",
    ];
    prop::collection::vec(prop::sample::select(pieces), 0..24).prop_map(|pieces| pieces.concat())
}

fn check_key_text(text: &str) -> Result<(), TestCaseError> {
    if let Ok(key) = Key::from_etcd_text(text) {
        prop_assert_eq!(key.etcd_text(), text);
    }
    Ok(())
}

proptest! {
    #[test]
    fn keys_round_trip(key in key()) {
        prop_assert_eq!(Key::from_etcd_text(&key.etcd_text()), Ok(key));
    }

    #[test]
    fn any_key_is_read_or_refused(text in prop_oneof![any::<String>(), nearly_a_key()]) {
        check_key_text(&text)?;
    }

    #[test]
    fn networks_round_trip(cidr in cidr()) {
        prop_assert_eq!(cidr.to_string().parse(), Ok(cidr));
        prop_assert_eq!(Cidr::from_key_segment(&cidr.key_segment()), Ok(cidr));
    }

    #[test]
    fn any_network_is_read_or_refused(text in prop_oneof![any::<String>(), "[0-9a-f.:]{0,20}/[0-9+-]{0,4}"]) {
        if let Ok(cidr) = text.parse::<Cidr>() {
            prop_assert_eq!(Cidr::parse_masked(&text), Ok(cidr));
            prop_assert_eq!(cidr.to_string().parse(), Ok(cidr));
        }
    }

    #[test]
    fn any_ipam_record_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..40), cidr in cidr()) {
        if let Ok(block) = Block::decode(&cidr, &bytes) {
            block.contradictions();
        }
        let _ = Handle::decode(&"a".into(), &bytes);
        let _ = IpamConfig::decode(&bytes);
        let _ = Affinity::decode(&AffinityOwner::Host("a".to_owned()), &cidr, &bytes);
    }

    #[test]
    fn any_block_can_be_examined(
        cidr in cidr(),
        allocations in prop::collection::vec(prop::option::of(0usize..6), 0..8),
        unallocated in prop::collection::vec(0usize..10, 0..8),
        ordinal in any::<usize>(),
    ) {
        let mut block = Block::new(cidr, None, 7);
        block.allocations = allocations;
        block.unallocated = unallocated;
        block.contradictions();
        block.attribute(ordinal);
        if let Some(address) = block.address(ordinal % 70_000) {
            prop_assert_eq!(block.ordinal(address), Some(ordinal % 70_000));
        }
        let again = Block::decode(&cidr, &block.encode()).unwrap();
        prop_assert_eq!(again, block);
    }

    #[test]
    fn any_manifest_is_read_or_refused(text in prop_oneof![any::<String>(), nearly_a_manifest()]) {
        if let Err(error) = manifest::parse(&text) {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
