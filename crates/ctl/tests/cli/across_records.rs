//! Records that name, hold or hide one another.

use model::{Key, Kind};
use store::Change;

use crate::harness::{Desk, pool};

fn manifest(kind: &str, name: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: projectcalico.org/v3\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"
    )
}

/// As releases before v3.32 stored it: with its tier in the name, and without an annotation.
fn old_policy(name: &str) -> Change {
    let value = format!(
        "{{\"kind\":\"NetworkPolicy\",\"metadata\":{{\"name\":\"default.{name}\",\"namespace\":\"default\"}},\
         \"spec\":{{\"order\":1,\"types\":[\"Ingress\"]}}}}"
    );
    Change::create(Key::namespaced(Kind::NetworkPolicy, "default", format!("default.{name}")), value)
}

#[test]
fn a_policy_under_an_old_name_is_worked_on_where_it_is() {
    let desk = Desk::on_sqlite();
    desk.apply(&pool("pods", "10.244.0.0/16"));
    desk.write(vec![old_policy("web")]);
    assert_eq!(desk.plumb(&["get", "np", "-o", "name"]).succeeded(), "networkpolicy/web\n");
    assert_eq!(desk.plumb(&["get", "np", "web"]).succeeded(), "NAME   TIER\nweb    default\n");
    let policy = manifest("NetworkPolicy", "web", "order: 2");
    desk.plumb_with_stdin(&["create", "-f", "-"], policy.as_bytes())
        .refused(1, &["resource already exists: NetworkPolicy(default/web)"]);
    desk.plumb(&["label", "np", "web", "a=b"]).succeeded();
    desk.plumb(&["patch", "np", "web", "-p", "{\"spec\":{\"order\":3}}"]).succeeded();
    desk.plumb_with_stdin(&["replace", "-f", "-"], policy.as_bytes()).succeeded();
    desk.apply(&policy);
    let stored = desk.dump();
    let policies: Vec<&String> = stored.iter().filter(|line| line.starts_with("NetworkPolicy(")).collect();
    assert_eq!(policies.len(), 1, "{policies:#?}");
    assert!(policies[0].starts_with("NetworkPolicy(default/default.web)"), "{policies:#?}");
    desk.plumb(&["delete", "np", "web"]).succeeded();
    assert_eq!(desk.plumb(&["get", "np", "-o", "name"]).succeeded(), "");
}

#[test]
fn a_policy_is_not_found_by_the_end_of_its_name() {
    let desk = Desk::on_sqlite();
    desk.apply(&manifest("NetworkPolicy", "default.web", "order: 1"));
    for args in [
        &["get", "np", "web"][..],
        &["label", "np", "web", "a=b"],
        &["patch", "np", "web", "-p", "{}"],
        &["delete", "np", "web"],
    ] {
        assert_eq!(desk.plumb(args).code, Some(1), "{args:?}");
    }
    desk.plumb_with_stdin(&["create", "-f", "-"], manifest("NetworkPolicy", "web", "order: 1").as_bytes())
        .succeeded();
    assert_eq!(
        desk.plumb(&["get", "np", "-o", "name"]).succeeded(),
        "networkpolicy/default.web\nnetworkpolicy/web\n"
    );
}

#[test]
fn what_a_resource_names_must_be_there() {
    let desk = Desk::on_sqlite();
    desk.apply(&manifest("BGPFilter", "stored", ""));
    let before = desk.dump();
    let policy = manifest("GlobalNetworkPolicy", "p", "tier: t");
    let peer = |filters: &str| {
        manifest("BGPPeer", "p", &format!("peerIP: 192.0.2.1, asNumber: 64512, filters: [{filters}]"))
    };
    let of_t = "GlobalNetworkPolicy(p): spec.tier: t: there is no such Tier";
    let of_f = "BGPPeer(p): spec.filters[1]: f: there is no such BGPFilter";
    for (verb, text, problem) in [
        ("apply", &policy, of_t),
        ("create", &policy, of_t),
        ("apply", &peer("stored, f"), of_f),
        ("create", &peer("stored, f"), of_f),
        ("replace", &peer("stored, f"), of_f),
    ] {
        desk.plumb_with_stdin(&[verb, "-f", "-"], text.as_bytes()).refused(1, &[problem]);
        desk.plumb_with_stdin(&[verb, "--dry-run", "-f", "-"], text.as_bytes()).refused(1, &[problem]);
    }
    assert_eq!(desk.dump(), before);

    let whole =
        [policy, manifest("Tier", "t", "order: 1"), peer("stored, f"), manifest("BGPFilter", "f", "")]
            .concat();
    let tried = desk.plumb_with_stdin(&["apply", "--dry-run", "-f", "-"], whole.as_bytes());
    assert_eq!(tried.code, Some(0), "{tried:?}");
    desk.apply(&whole);
    desk.apply(&manifest("GlobalNetworkPolicy", "in-a-basic-tier", "tier: kube-admin"));
    desk.plumb(&["patch", "bgppeer", "p", "-p", "spec: {filters: [gone]}"])
        .refused(1, &["spec.filters[0]: gone: there is no such BGPFilter"]);
}

#[test]
fn a_list_of_profiles_can_be_applied() {
    let desk = Desk::on_sqlite();
    desk.apply(&manifest("Profile", "mine", "ingress: [{action: Allow}]"));
    let list = desk.plumb(&["get", "profiles", "-o", "yaml"]);
    assert!(list.succeeded().contains("projectcalico-default-allow"));
    // Only the version of what is written again is another.
    let records = || -> Vec<String> {
        let line = |line: &String| line.split_once(" @").unwrap().0.to_owned();
        let value = |line: &String| line.split_once(" {").unwrap().1.to_owned();
        desk.dump().iter().map(|record| line(record) + &value(record)).collect()
    };
    let before = records();
    desk.apply(list.succeeded());
    let list = desk.plumb(&["get", "profiles", "-o", "yaml"]);
    desk.plumb_with_stdin(&["replace", "-f", "-"], list.stdout.as_bytes()).succeeded();
    assert_eq!(records(), before);
    let other = manifest("Profile", "projectcalico-default-allow", "ingress: [{action: Deny}]");
    desk.plumb_with_stdin(&["apply", "-f", "-"], other.as_bytes())
        .refused(1, &["is built in and cannot be written"]);
}

#[test]
fn a_file_with_a_node_and_what_goes_along_is_deleted_whole() {
    let desk = Desk::on_sqlite();
    let text = [
        manifest("HostEndpoint", "hep", "node: n1, interfaceName: eth0"),
        manifest("BGPPeer", "peer", "node: n1, peerIP: 192.0.2.1, asNumber: 64512"),
        manifest("Node", "n1", ""),
    ]
    .concat();
    desk.apply(&text);
    let deleted = desk.plumb_with_stdin(&["delete", "-f", "-"], text.as_bytes());
    assert_eq!(deleted.succeeded(), "Successfully deleted 3 resource(s)\n");
    desk.plumb_with_stdin(&["delete", "-f", "-"], text.as_bytes()).refused(1, &["HostEndpoint(hep)"]);
}

#[test]
fn a_pool_that_cannot_be_read_can_be_deleted() {
    let desk = Desk::on_sqlite();
    desk.apply(&pool("pods", "10.244.0.0/16"));
    desk.write(vec![Change::create(Key::cluster(Kind::IpPool, "broken"), "null")]);
    let more = pool("more", "10.9.0.0/16");
    desk.plumb_with_stdin(&["create", "-f", "-"], more.as_bytes()).refused(1, &["IPPool(broken)"]);
    let deleted = desk.plumb(&["delete", "ippool", "broken"]);
    assert_eq!(deleted.code, Some(0), "{deleted:?}");
    assert!(deleted.stderr.starts_with("warning: IPPool(broken) cannot be read"), "{deleted:?}");
    desk.apply(&more);
}

#[test]
fn a_record_without_metadata_has_the_name_of_its_key() {
    let desk = Desk::on_sqlite();
    desk.apply(&pool("pods", "10.244.0.0/16"));
    desk.write(vec![Change::create(Key::namespaced(Kind::NetworkSet, "shop", "bare"), "{\"spec\":{}}")]);
    let shown = desk.plumb(&[
        "get",
        "netset",
        "-A",
        "-o",
        "jsonpath={.items[0].metadata.namespace}/{.items[0].metadata.name}",
    ]);
    assert_eq!(shown.succeeded(), "shop/bare\n");
}

#[test]
fn a_patch_names_its_version_in_a_string_or_not_at_all() {
    let desk = Desk::on_sqlite();
    desk.apply(&pool("pods", "10.244.0.0/16"));
    desk.plumb(&["patch", "ippool", "pods", "-p", "{\"metadata\":{\"resourceVersion\":1}}"])
        .refused(2, &["metadata.resourceVersion: 1: must be a string"]);
}
