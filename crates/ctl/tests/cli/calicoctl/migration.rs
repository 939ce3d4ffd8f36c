//! All records in calicoctl's file, out of one store and into another.

use model::Key;
use serde_json::{Value, json};
use store::Change;

use super::run;
use crate::harness::{Desk, PLUMB, Place, finish, machine_has_own_config};

fn put(key: &str, value: &Value) -> Change {
    Change::create(Key::from_etcd_text(key).unwrap(), value.to_string().into_bytes())
}

/// A node that has another name in Kubernetes, with a tunnel's address.
fn fill(desk: &Desk) {
    desk.apply(
        "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: a}\nspec: {cidr: 10.65.0.0/24}\n---\n\
         apiVersion: projectcalico.org/v3\nkind: Node\nmetadata: {name: n1}\n\
         spec: {orchRefs: [{nodeName: kn1, orchestrator: k8s}], ipv4VXLANTunnelAddr: 10.65.0.1}\n---\n\
         apiVersion: projectcalico.org/v3\nkind: FelixConfiguration\nmetadata: {name: node.n1}\n\
         spec: {iptablesFilterDenyAction: DROP}\n---\n\
         apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata: {name: p, namespace: shop}\nspec: {selector: all()}\n",
    );
    let mut allocations = vec![Value::Null; 64];
    allocations[1] = 0.into();
    let free: Vec<u32> = (0..64).filter(|ordinal| *ordinal != 1).collect();
    let block = json!({"cidr": "10.65.0.0/26", "affinity": "host:n1", "strictAffinity": false, "allocations": allocations,
        "unallocated": free, "deleted": false, "sequenceNumber": 1_800_000_000_000_000_001u64,
        "sequenceNumberForAllocation": {"1": 1_800_000_000_000_000_000u64},
        "attributes": [{"handle_id": "vxlan-tunnel-addr-n1", "secondary": {"node": "n1", "type": "vxlanTunnelAddress"}}]});
    desk.write(vec![
        put("/calico/ipam/v2/assignment/ipv4/block/10.65.0.0-26", &block),
        put("/calico/ipam/v2/host/n1/ipv4/block/10.65.0.0-26", &json!({"state": "confirmed"})),
        put(
            "/calico/ipam/v2/handle/vxlan-tunnel-addr-n1",
            &json!({"block": {"10.65.0.0/26": 1}, "deleted": false}),
        ),
    ]);
}

#[test]
fn what_is_exported_is_imported_under_the_names_of_kubernetes() {
    if machine_has_own_config("what_is_exported_is_imported_under_the_names_of_kubernetes") {
        return;
    }
    let (from, to) = (Desk::on_sqlite(), Desk::on_sqlite());
    fill(&from);
    from.plumb(&["datastore", "migrate", "export"]).refused(1, &["the datastore is not locked"]);
    assert_eq!(from.plumb(&["datastore", "migrate", "lock"]).code, Some(0));
    let exported = from.plumb(&["datastore", "migrate", "export"]);
    let text = exported.succeeded();
    let parts: Vec<&str> = text.split("===\n").collect();
    assert_eq!(parts.len(), 3, "{text}");
    assert!(parts[0].contains("    name: kn1\n") && !parts[0].contains("name: n1\n"), "{text}");
    assert!(parts[0].contains("iptablesFilterDenyAction: Drop\n"), "{text}");
    let ipam: Value = serde_json::from_str(parts[2]).unwrap();
    assert_eq!(ipam["blocks"][0]["Value"]["affinity"], "host:kn1");
    assert_eq!(ipam["blocks"][0]["Value"]["sequenceNumber"], 1_800_000_000_000_000_001u64);
    assert_eq!(ipam["handles"][0]["Key"], "/calico/ipam/v2/handle/vxlan-tunnel-addr-kn1");
    to.file("records.txt", text);
    let imported = to.plumb(&["datastore", "migrate", "import", "-f", "records.txt"]);
    assert_eq!(imported.code, Some(0), "{imported:?}");
    assert!(imported.stdout.contains("Successfully applied 3 IPAM resource(s)\n"), "{imported:?}");
    let ready = to.plumb(&[
        "get",
        "clusterinfo",
        "default",
        "-o",
        "jsonpath={.spec.datastoreReady} {.spec.clusterGUID}",
    ]);
    let guid = from.plumb(&["get", "clusterinfo", "default", "-o", "jsonpath={.spec.clusterGUID}"]).stdout;
    assert_eq!(ready.stdout, format!("false {guid}"));
    let held = to.plumb(&["ipam", "show", "--ip=10.65.0.1"]).stdout;
    assert!(held.contains("vxlan-tunnel-addr-kn1") && held.contains("node: kn1"), "{held}");
    assert_eq!(to.plumb(&["get", "np", "p", "-n", "shop", "-o", "name"]).succeeded(), "networkpolicy/p\n");
    // A second time, records are in the way, and none of them is touched.
    let before = to.dump();
    to.plumb(&["datastore", "migrate", "import", "-f", "records.txt"])
        .refused(1, &["the datastore has records already: IPPool"]);
    assert_eq!(to.dump(), before);
}

#[test]
fn a_file_that_is_not_whole_changes_nothing() {
    if machine_has_own_config("a_file_that_is_not_whole_changes_nothing") {
        return;
    }
    let whole = "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: a}\nspec: {cidr: 10.0.0.0/16}\n===\n{}\n===\n{}\n";
    let block = json!({"blocks": [{"Key": "/calico/ipam/v2/assignment/ipv4/block/10.65.0.0-26", "Value": 7, "TTL": 0}]});
    for (text, problem) in [
        (whole.replace("===\n{}\n===\n", "===\n"), "is not what plumb datastore migrate export wrote"),
        (whole.replace("10.0.0.0/16", "10.0.0.1/16"), "has host bits set"),
        (whole.replacen("===\n{}", "===\n{", 1), "ClusterInformation cannot be read"),
        (whole.replace("{}\n===\n{}", &format!("{{}}\n===\n{block}")), "10.65.0.0/26"),
        (
            whole.replace("===\n{}\n===\n{}", "===\n{}\n===\n{\"handles\":[{\"Key\":\"/x\",\"Value\":{}}]}"),
            "is no key of IPAM",
        ),
    ] {
        let desk = Desk::on_sqlite();
        desk.file("records.txt", &text);
        desk.plumb(&["datastore", "migrate", "import", "-f", "records.txt"]).refused(1, &[problem]);
        assert!(desk.open().is_none(), "{problem}: a store was made");
    }
}

#[test]
fn nodes_without_a_name_in_kubernetes_are_not_exported() {
    if machine_has_own_config("nodes_without_a_name_in_kubernetes_are_not_exported") {
        return;
    }
    let desk = Desk::on_sqlite();
    desk.apply("apiVersion: projectcalico.org/v3\nkind: Node\nmetadata: {name: n1}\nspec: {}\n");
    assert_eq!(run(&desk, &["datastore", "migrate", "lock"], "").code, Some(0));
    let refused = run(&desk, &["datastore", "migrate", "export"], "");
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""));
    assert!(refused.stderr.contains("node n1 missing a 'k8s' orchestrator reference"), "{refused:?}");
}

/// Completion scripts ask for names.
#[test]
fn names_come_from_the_store() {
    if machine_has_own_config("names_come_from_the_store") {
        return;
    }
    let desk = Desk::on_sqlite();
    fill(&desk);
    let labs = desk.folder.path().join("labs");
    std::fs::create_dir_all(labs.join("blue")).unwrap();
    let asked = |words: &[&str]| {
        let mut command = desk.command(PLUMB);
        command.env("PLUMB_LAB_DIR", &labs).args([&["__complete", "--"], words].concat());
        let ran = finish(&mut command);
        ran.succeeded().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(asked(&["get", "ippool", ""]), ["a"]);
    assert_eq!(asked(&["get", "np", "-n", "shop", ""]), ["p"]);
    assert_eq!(asked(&["get", "np", ""]), Vec::<String>::new());
    assert_eq!(asked(&["patch", "node", "n"]), ["n1"]);
    assert_eq!(asked(&["delete", "-n", "s"]), ["shop"]);
    assert_eq!(asked(&["node", "status", ""]), ["n1"]);
    assert_eq!(asked(&["lab", "status", "--name", ""]), ["blue"]);
    assert!(asked(&["get", "ipp"]).contains(&"ippool".to_owned()));
    let Place::Sqlite(path) = &desk.place else { unreachable!("the desk is on SQLite") };
    std::fs::remove_file(path).unwrap();
    assert_eq!(asked(&["get", "ippool", ""]), Vec::<String>::new());
}
