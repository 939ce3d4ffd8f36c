//! Rules that look at more than one record, or at a record and what it is to become.

use model::validate::{references, refuse_deletion, validate_pool_against, validate_update};
use model::{Cidr, Key, Kind, Resource, manifest, validate};

fn parse(text: &str) -> Resource {
    let mut resource = manifest::parse(text).expect("a manifest").remove(0);
    resource.fill_defaults();
    resource
}

fn pool(name: &str, spec: &str) -> Resource {
    parse(&format!(
        "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"
    ))
}

fn lines(violations: &[validate::Violation]) -> Vec<String> {
    violations.iter().map(ToString::to_string).collect()
}

#[test]
fn network_and_block_size_of_a_pool_cannot_change() {
    let old = pool("a", "cidr: 10.0.0.0/16, blockSize: 26");
    let update = |spec: &str| lines(&validate_update(&old, &pool("a", spec)));
    assert_eq!(update("cidr: 10.0.0.0/16, natOutgoing: true"), Vec::<String>::new());
    assert_eq!(
        update("cidr: 10.1.0.0/16"),
        ["spec.cidr: 10.1.0.0/16: cannot be changed (is 10.0.0.0/16): create a new pool instead"]
    );
    assert_eq!(
        update("cidr: 10.0.0.0/16, blockSize: 24"),
        ["spec.blockSize: 24: cannot be changed (is 26): create a new pool instead"]
    );
}

#[test]
fn a_network_may_be_spelt_better() {
    let mut old = pool("a", "cidr: 'fd00::/64'");
    old.spec_mut().insert("cidr".into(), "FD00:0::/64".into());
    assert_eq!(validate_update(&old, &pool("a", "cidr: 'fd00::/64'")), []);
}

#[test]
fn a_load_balancer_pool_stays_one() {
    let old = pool("a", "cidr: 10.0.0.0/16, allowedUses: [LoadBalancer]");
    assert_eq!(
        lines(&validate_update(&old, &pool("a", "cidr: 10.0.0.0/16"))),
        [r#"spec.allowedUses: ["Workload","Tunnel"]: cannot be changed from LoadBalancer to another use"#]
    );
    assert_eq!(validate_update(&old, &old), []);
}

#[test]
fn an_update_is_validated_like_anything_else() {
    let old = pool("a", "cidr: 10.0.0.0/16");
    let new = pool("a", "cidr: 10.0.0.0/16, nodeSelector: '('");
    assert_eq!(validate_update(&old, &new).len(), 1);
}

#[test]
fn pools_may_not_overlap() {
    let others = [pool("a", "cidr: 10.0.0.0/16"), pool("b", "cidr: 'fd00::/48'")];
    let against = |new: &Resource| lines(&validate_pool_against(new, &others, &[]));
    assert_eq!(against(&pool("c", "cidr: 10.1.0.0/16")), Vec::<String>::new());
    assert_eq!(
        against(&pool("c", "cidr: 10.0.128.0/17")),
        ["spec.cidr: 10.0.128.0/17: overlaps pool a (10.0.0.0/16)"]
    );
    assert_eq!(
        against(&pool("c", "cidr: '::/0', disabled: true")),
        ["spec.cidr: ::/0: overlaps pool b (fd00::/48)"]
    );
    assert_eq!(against(&pool("a", "cidr: 10.0.0.0/16")), Vec::<String>::new(), "the pool itself");
}

#[test]
fn blocks_of_another_size_keep_a_pool_from_being_made() {
    let blocks: Vec<Cidr> =
        ["10.0.0.0/26", "10.0.0.64/28", "192.0.2.0/28"].map(|cidr| cidr.parse().unwrap()).into();
    let against = |spec: &str, blocks: &[Cidr]| lines(&validate_pool_against(&pool("c", spec), &[], blocks));
    assert_eq!(
        against("cidr: 10.0.0.0/16", &blocks),
        ["spec.blockSize: 26: the pool's CIDR contains a block of another size: 10.0.0.64/28"]
    );
    assert_eq!(against("cidr: 10.0.0.0/16", &blocks[..1]), Vec::<String>::new());
    assert_eq!(against("cidr: 10.1.0.0/16", &blocks), Vec::<String>::new());
}

#[test]
fn what_a_record_names_must_exist() {
    let peer = parse(
        "apiVersion: projectcalico.org/v3\nkind: BGPPeer\nmetadata: {name: a}\nspec: {peerIP: 192.0.2.1, filters: [x, y]}",
    );
    let found = references(&peer, false);
    assert_eq!(found[1].key, Key::cluster(Kind::BgpFilter, "y"));
    assert_eq!(found[1].missing().to_string(), "spec.filters[1]: y: there is no such BGPFilter");
    let policy = parse(
        "apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata: {name: a, namespace: b}\nspec: {tier: security}",
    );
    assert_eq!(
        references(&policy, true)[0].missing().to_string(),
        "spec.tier: security: there is no such Tier"
    );
    assert_eq!(references(&policy, false), []);
    assert_eq!(references(&pool("a", "cidr: 10.0.0.0/16"), true), []);
}

#[test]
fn what_is_always_there_cannot_be_deleted() {
    for (key, refused) in [
        (Key::cluster(Kind::Tier, "kube-admin"), true),
        (Key::cluster(Kind::Tier, "mine"), false),
        (Key::cluster(Kind::Profile, "projectcalico-default-allow"), true),
        (Key::cluster(Kind::Profile, "kns.default"), false),
    ] {
        assert_eq!(refuse_deletion(&key).is_some(), refused, "{key}");
    }
    let policy = parse(
        "apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata: {name: a, namespace: b}\nspec: {tier: security}",
    );
    assert!(validate::is_in_tier(&policy, "security") && !validate::is_in_tier(&policy, "default"));
}
