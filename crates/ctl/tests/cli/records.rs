//! What is done to records that others made: shown, kept whole, and deleted with what belongs to them.

use model::ipam::{Affinity, Block, BlockAttribute, Handle};
use model::{AffinityOwner, Cidr, Key, Kind};
use store::Change;

use crate::harness::{Desk, PLUMB, finish, pool, runtime};

fn block(cidr: &str, node: &str, handle: Option<&str>) -> Vec<Change> {
    let cidr: Cidr = cidr.parse().unwrap();
    let owner = AffinityOwner::Host(node.to_owned());
    let mut block = Block::new(cidr, Some(&owner), 1_787_380_400_123_456_789);
    let mut changes = Vec::new();
    if let Some(handle) = handle {
        block.unallocated.retain(|ordinal| *ordinal != 3);
        block.allocations[3] = Some(0);
        let attribute = BlockAttribute { handle_id: Some(handle.into()), ..BlockAttribute::default() };
        block.attributes.push(attribute);
        let mut record = Handle::default();
        record.block.insert(cidr.to_string(), 1);
        changes.push(Change::create(Key::Handle(handle.into()), record.encode()));
    }
    changes.push(Change::create(Key::Block(cidr), block.encode()));
    changes.push(Change::create(Key::Affinity { owner, block: cidr }, Affinity::default().encode()));
    changes
}

#[test]
fn records_of_address_management_are_shown() {
    let desk = Desk::on_sqlite();
    desk.apply(&pool("pods", "10.244.0.0/16"));
    desk.write(block("10.244.0.0/30", "n1", Some("k8s-pod-network.abc")));
    desk.write(block("10.244.0.4/30", "n2", None));
    let shown = |args: &[&str]| desk.plumb(args).succeeded().to_owned();
    assert_eq!(
        shown(&["get", "blocks"]),
        "CIDR            AFFINITY   ALLOCATED   FREE\n10.244.0.0/30   host:n1    1           3\n\
         10.244.0.4/30   host:n2    0           4\n"
    );
    assert_eq!(
        shown(&["get", "block", "10-244-0-4-30", "-o", "wide"]),
        "NAME            CIDR            AFFINITY   ALLOCATED   FREE   SEQUENCE\n\
         10-244-0-4-30   10.244.0.4/30   host:n2    0           4      1787380400123456789\n"
    );
    assert_eq!(shown(&["get", "block", "10.244.0.0/30", "-o", "name"]), "ipamblock/10.244.0.0/30\n");
    assert_eq!(
        shown(&["get", "affinities"]),
        "NODE   TYPE   CIDR            STATE\nn1     host   10.244.0.0/30   confirmed\n\
         n2     host   10.244.0.4/30   confirmed\n"
    );
    assert_eq!(
        shown(&["get", "affinity", "n2-10-244-0-4-30", "-o", "name"]),
        "blockaffinity/n2-10-244-0-4-30\n"
    );
    assert_eq!(
        shown(&["get", "handles", "-o", "wide"]),
        "NAME                  ADDRESSES   BLOCKS\nk8s-pod-network.abc   1           10.244.0.0/30\n"
    );
    let sequence = shown(&["get", "block", "10.244.0.0/30", "-o", "jsonpath={.spec.sequenceNumber}"]);
    assert_eq!(sequence, "1787380400123456789\n", "all 64 bits survive");
}

#[test]
fn a_pool_takes_its_empty_blocks_along_and_leaves_used_ones_without_owner() {
    let desk = Desk::on_sqlite();
    desk.apply(&format!("{}---\n{}", pool("pods", "10.244.0.0/16"), pool("others", "10.9.0.0/16")));
    desk.write(block("10.244.0.0/30", "n1", Some("k8s-pod-network.abc")));
    desk.write(block("10.244.0.4/30", "n2", None));
    desk.write(block("10.9.0.0/30", "n2", None));
    let before = desk.dump();
    let tried = desk.plumb(&["delete", "ippool", "pods", "--dry-run"]);
    assert_eq!(
        tried.stdout,
        "ippool/pods deleted (dry run)\nDry run: 1 'IPPool' resource(s) would be deleted\n"
    );
    assert_eq!(desk.dump(), before, "a dry run wrote");

    let deleted = desk.plumb(&["delete", "ippool", "pods"]);
    assert_eq!(
        (deleted.code, deleted.stdout.as_str()),
        (Some(0), "Successfully deleted 1 'IPPool' resource(s)\n")
    );
    assert!(deleted.stderr.contains("warning: 1 address(es) of IPPool(pods) are in use"), "{deleted:?}");
    let blocks = desk.plumb(&["get", "blocks"]);
    assert_eq!(
        blocks.succeeded(),
        "CIDR            AFFINITY   ALLOCATED   FREE\n10.244.0.0/30   <none>     1           3\n\
         10.9.0.0/30     host:n2    0           4\n"
    );
    let affinities = desk.plumb(&["get", "affinities", "-o", "name"]);
    assert_eq!(affinities.succeeded(), "blockaffinity/n2-10-9-0-0-30\n");
}

#[test]
fn a_pool_of_another_block_size_does_not_fit_over_blocks() {
    let desk = Desk::on_sqlite();
    desk.apply(&pool("pods", "10.244.0.0/16"));
    desk.write(block("10.9.0.0/30", "n1", None));
    let before = desk.dump();
    let manifest = pool("new", "10.9.0.0/16");
    desk.plumb_with_stdin(&["create", "-f", "-"], manifest.as_bytes())
        .refused(1, &["spec.blockSize", "the pool's CIDR contains a block of another size", "10.9.0.0/30"]);
    assert_eq!(desk.dump(), before);
}

#[test]
fn a_node_goes_with_what_is_its_own_but_not_while_it_is_used() {
    let desk = Desk::on_sqlite();
    let own = |kind: &str, name: &str, spec: &str| {
        format!(
            "---\napiVersion: projectcalico.org/v3\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"
        )
    };
    desk.apply(
        &[
            own("Node", "n1", ""),
            own("Node", "n2", ""),
            own("BGPPeer", "of-n1", "node: n1, peerIP: 192.0.2.1, asNumber: 64512"),
            own("BGPPeer", "of-n2", "node: n2, peerIP: 192.0.2.1, asNumber: 64512"),
            own("HostEndpoint", "hep-n1", "node: n1, interfaceName: eth0"),
            own("FelixConfiguration", "node.n1", ""),
            own(
                "WorkloadEndpoint",
                "n1-k8s-web-eth0",
                "orchestrator: k8s, node: n1, pod: web, endpoint: eth0, interfaceName: cali1",
            ),
        ]
        .concat(),
    );
    desk.write(block("10.244.0.0/30", "n1", Some("k8s-pod-network.abc")));
    let before = desk.dump();
    desk.plumb(&["delete", "node", "n1"])
        .refused(1, &["Node(n1) cannot be deleted: it has 1 endpoint(s) and 1 address(es) in use", "hint: "]);
    assert_eq!(desk.dump(), before);

    let store = desk.open().unwrap();
    let key = Key::Block("10.244.0.0/30".parse().unwrap());
    let used = runtime().block_on(store.get(&key)).unwrap().unwrap();
    let empty = Block::new("10.244.0.0/30".parse().unwrap(), Some(&AffinityOwner::Host("n1".into())), 5);
    desk.write(vec![Change::update(key, empty.encode(), used.revision)]);
    desk.plumb(&["delete", "wep", "n1-k8s-web-eth0"]).succeeded();
    desk.plumb(&["delete", "node", "n1"]).succeeded();
    let left = desk.dump();
    assert!(!left.iter().any(|line| line.contains("n1") && !line.contains("IPAMHandle")), "{left:#?}");
    assert!(left.iter().any(|line| line.starts_with("BGPPeer(of-n2)")), "{left:#?}");
}

#[test]
fn a_node_takes_the_addresses_of_its_tunnels_along() {
    let desk = Desk::on_sqlite();
    desk.apply(&pool("pods", "10.244.0.0/16"));
    desk.apply(
        "{apiVersion: projectcalico.org/v3, kind: Node, metadata: {name: n1}, spec: {ipv4VXLANTunnelAddr: 10.244.0.3}}\n---\n\
         {apiVersion: projectcalico.org/v3, kind: Node, metadata: {name: n2}, spec: {ipv4VXLANTunnelAddr: 10.9.0.3}}",
    );
    desk.write(block("10.244.0.0/30", "n1", Some("vxlan-tunnel-addr-n1")));
    desk.write(block("10.9.0.0/30", "n2", Some("vxlan-tunnel-addr-n2")));
    let before = desk.dump();
    desk.plumb(&["delete", "node", "n1", "--dry-run"]).succeeded();
    assert_eq!(desk.dump(), before);
    desk.plumb(&["delete", "node", "n1"]).succeeded();
    let left = desk.dump();
    assert!(!left.iter().any(|line| line.contains("n1") || line.contains("10.244.0.0/30")), "{left:#?}");
    assert_eq!(left.iter().filter(|line| line.contains("vxlan-tunnel-addr-n2")).count(), 2, "{left:#?}");
}

#[test]
fn a_tier_with_policies_stays() {
    let desk = Desk::on_sqlite();
    desk.apply(
        "{apiVersion: projectcalico.org/v3, kind: Tier, metadata: {name: t}, spec: {order: 10}}\n---\n\
         {apiVersion: projectcalico.org/v3, kind: GlobalNetworkPolicy, metadata: {name: p}, spec: {tier: t}}\n",
    );
    desk.plumb(&["delete", "tier", "t"])
        .refused(1, &["Tier(t) cannot be deleted: it contains GlobalNetworkPolicy(p)"]);
    desk.plumb(&["delete", "gnp", "p"]).succeeded();
    desk.plumb(&["delete", "tier", "t"]).succeeded();
}

#[test]
fn fields_of_a_newer_release_survive_every_change() {
    let desk = Desk::on_sqlite();
    desk.apply("{apiVersion: projectcalico.org/v3, kind: Node, metadata: {name: n}, spec: {}}");
    let store = desk.open().unwrap();
    let key = Key::cluster(Kind::Node, "n");
    let record = runtime().block_on(store.get(&key)).unwrap().unwrap();
    let value = String::from_utf8_lossy(&record.value)
        .replace("\"spec\":{}", "\"spec\":{\"future\":{\"id\":18446744073709551615}},\"extra\":true");
    desk.write(vec![Change::update(key, value, record.revision)]);
    desk.plumb(&["label", "node", "n", "a=b"]).succeeded();
    desk.plumb(&["patch", "node", "n", "-p", "{\"spec\":{\"bgp\":{\"ipv4Address\":\"192.0.2.1/24\"}}}"])
        .succeeded();
    desk.apply(
        "{apiVersion: projectcalico.org/v3, kind: Node, metadata: {name: n}, spec: {bgp: {asNumber: 64512}}}",
    );
    let shown = desk.plumb(&["get", "node", "n", "-o", "yaml"]);
    desk.plumb_with_stdin(&["apply", "-f", "-"], shown.succeeded().as_bytes()).refused(
        1,
        &[
            "Node has no field extra",
            "hint: remove it; a value that a newer release stored there is preserved",
        ],
    );
    let now = desk.plumb(&["get", "node", "n", "-o", "jsonpath={.spec}{.extra}"]);
    assert_eq!(
        now.succeeded(),
        "{\"bgp\":{\"asNumber\":64512},\"future\":{\"id\":18446744073709551615}}true\n"
    );
}

#[test]
fn a_record_that_cannot_be_read_does_not_hide_the_others() {
    let desk = Desk::on_sqlite();
    desk.apply(&pool("pods", "10.244.0.0/16"));
    let broken = [
        (Key::cluster(Kind::IpPool, "broken"), "not json"),
        (Key::namespaced(Kind::WorkloadEndpoint, "default", "broken"), "{\"spec\":{\"node\":[]}}"),
    ];
    desk.write(broken.iter().map(|(key, value)| Change::create(key.clone(), *value)).collect());
    for format in ["ps", "wide", "yaml", "json"] {
        let ran = desk.plumb(&["get", "ippools", "-o", format]);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.stdout.contains("pods") && !ran.stdout.contains("broken"), "{ran:?}");
        assert!(ran.stderr.contains("IPPool(broken): the stored value is not a JSON object"), "{ran:?}");
    }
    let ran = desk.plumb(&["get", "wep", "-A"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.stderr.contains("WorkloadEndpoint(default/broken): the stored value cannot be read"),
        "{ran:?}"
    );
}

#[test]
fn very_many_problems_are_counted_rather_than_told() {
    let desk = Desk::on_sqlite();
    desk.apply(&pool("pods", "10.244.0.0/16"));
    let key =
        |number: usize| Key::namespaced(Kind::WorkloadEndpoint, "default", format!("broken-{number:02}"));
    desk.write((0..50).map(|number| Change::create(key(number), "{")).collect());
    let ran = desk.plumb(&["get", "wep", "-A"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_eq!(ran.stderr.matches("the stored value cannot be read").count(), 20, "{ran:?}");
    assert!(ran.stderr.ends_with("error: 30 more such errors\n"), "{ran:?}");
}

#[test]
fn long_tables_have_one_header_and_pages_of_500_rows() {
    let desk = Desk::on_sqlite();
    desk.apply(&pool("pods", "10.244.0.0/16"));
    let rows = 1_234;
    let numbers: Vec<usize> = (0..rows).collect();
    for batch in numbers.chunks(100) {
        let change = |number: &usize| {
            let name = format!("set-{number:05}{}", if *number == 700 { "-with-a-long-name" } else { "" });
            let value =
                format!("{{\"metadata\":{{\"name\":\"{name}\"}},\"spec\":{{\"nets\":[\"10.0.0.0/8\"]}}}}");
            Change::create(Key::cluster(Kind::GlobalNetworkSet, name), value)
        };
        desk.write(batch.iter().map(change).collect());
    }
    let ran = desk.plumb(&["get", "globalnetworksets", "-o", "wide"]);
    let lines: Vec<&str> = ran.succeeded().lines().collect();
    assert_eq!(lines.len(), rows + 1);
    assert_eq!(lines[0], "NAME        NETS");
    assert_eq!(lines[1], "set-00000   10.0.0.0/8");
    assert_eq!(lines[500], "set-00499   10.0.0.0/8");
    assert_eq!(lines[501], "set-00500                    10.0.0.0/8", "the second page is wider");
    assert_eq!(lines[1001], "set-01000   10.0.0.0/8", "the third is not");
    let cut =
        finish(desk.command("sh").args(["-c", "$PLUMB get globalnetworksets | head -1"]).env("PLUMB", PLUMB));
    assert_eq!(cut.succeeded(), "NAME\n", "a reader who has seen enough is no error");
    let json = desk.plumb(&["get", "globalnetworksets", "-o", "json"]);
    let list: serde_json::Value = serde_json::from_str(json.succeeded()).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), rows);
    assert_eq!(list["kind"], "GlobalNetworkSetList");
}
