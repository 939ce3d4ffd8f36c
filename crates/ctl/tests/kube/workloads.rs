//! The printed workloads, as a real API server takes them.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use model::kube::Layout;
use model::settings::Setting;
use serde_json::{Value, json};
use testkit::kube::{Api, Setup, start_or_skip};

use crate::fixture::LAYOUTS;

/// Flags that differ in everything that the manifests are made of.
const CHOICES: [&[&str]; 4] = [
    &[],
    &[
        "--namespace",
        "plumb-system",
        "--mode",
        "direct",
        "--pod-cidr",
        "10.244.0.0/16,fd00:244::/56",
        "--mtu",
        "1400",
    ],
    &[
        "--mode",
        "bgp",
        "--pod-cidr",
        "fd00:244::/56",
        "--block-size",
        "120",
        "--ip6-autodetection",
        "interface=eth.*",
        "--bgp-secret",
        "bgp,other",
        "--max-unavailable",
        "10%",
    ],
    &[
        "--mode",
        "crosssubnet",
        "--pod-cidr",
        "10.244.0.0/16",
        "--no-nat-outgoing",
        "--ip-autodetection",
        "kubernetes-internal-ip",
        "--api-server",
        "[fd00::1]:6443",
        "--cri-socket",
        "/run/crio/crio.sock",
        "--controllers",
        "3",
    ],
];

fn printed(layout: Layout, parts: &str, flags: &[&str]) -> Vec<Value> {
    let group = layout.api_version();
    let print = format!("--print{parts}");
    let mut plumb = Command::new(env!("CARGO_BIN_EXE_plumb"));
    let output =
        plumb.env_clear().args(["install", &print, "--api-group", &group]).args(flags).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.split("---\n").skip(1).map(|text| serde_saphyr::from_str(text).unwrap()).collect()
}

fn find<'m>(manifests: &'m [Value], kind: &str, name: &str) -> &'m Value {
    let is_meant = |manifest: &&Value| manifest["kind"] == kind && manifest["metadata"]["name"] == name;
    manifests.iter().find(is_meant).unwrap_or_else(|| panic!("there is no {kind} {name}"))
}

fn path_of(manifest: &Value) -> String {
    let plural = format!("{}s", manifest["kind"].as_str().unwrap().to_lowercase());
    let text = |field: &str| manifest["metadata"][field].as_str().unwrap().to_owned();
    format!("/apis/apps/v1/namespaces/{}/{plural}/{}", text("namespace"), text("name"))
}

/// A field that the server does not know, or a value that it refuses, is an error.
fn give(api: &Api, manifests: &[Value]) {
    for manifest in manifests {
        for query in ["&fieldValidation=Strict&dryRun=All", "&fieldValidation=Strict"] {
            api.apply(manifest, query)
                .unwrap_or_else(|error| panic!("{}: {error:#}", manifest["metadata"]["name"]));
        }
    }
}

#[test]
fn every_choice_of_flags_is_taken_by_the_server_and_changes_nothing_again() {
    let test = "every_choice_of_flags_is_taken_by_the_server_and_changes_nothing_again";
    for layout in LAYOUTS {
        let Some(server) = start_or_skip(test, Setup::default()) else { return };
        let api = server.api();
        for flags in CHOICES {
            let manifests = printed(layout, "", flags);
            // Twice: a second `kubectl apply` of the same file restarts no agent.
            give(&api, &manifests);
            give(&api, &manifests);
            for (kind, name) in [("DaemonSet", "plumb-node"), ("Deployment", "plumb-controller")] {
                let there = api.read(&path_of(find(&manifests, kind, name))).unwrap();
                api.apply(find(&manifests, kind, name), "").unwrap();
                let again = api.read(&path_of(find(&manifests, kind, name))).unwrap();
                assert_eq!(
                    there["metadata"]["generation"], again["metadata"]["generation"],
                    "{kind} with {flags:?}"
                );
            }
            give(&api, &printed(layout, "=uninstall", flags));
            wait_served(&api, layout);
            give(&api, &printed(layout, "=settings", flags));
        }
        let pools = api.read(&format!("/apis/{}/ippools/default-ipv6-ippool", layout.api_version())).unwrap();
        assert_eq!(
            (&pools["spec"]["cidr"], &pools["spec"]["blockSize"]),
            (&json!("fd00:244::/56"), &json!(120))
        );
    }
}

fn wait_served(api: &Api, layout: Layout) {
    let path = format!("/apis/{}/felixconfigurations", layout.api_version());
    let is_served = || api.get(&path).is_ok_and(|answer| answer.status == 200);
    testkit::process::wait_until("the definitions to be served", is_served).unwrap();
}

/// Whether Kubernetes' own judge of pods lets a pod into a namespace of this profile, and what it objects to.
fn objections(api: &Api, profile: &str, workload: &Value) -> BTreeSet<String> {
    let labels = json!({ "pod-security.kubernetes.io/enforce": profile });
    let namespace = format!("judged-{profile}");
    let manifest = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace, "labels": labels } });
    api.apply(&manifest, "").unwrap();
    let mut spec = workload["spec"]["template"]["spec"].clone();
    let account = spec["serviceAccountName"].as_str().unwrap_or("default").to_owned();
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": account, "namespace": namespace } });
    api.apply(&account, "").unwrap();
    // Only kube-system may have these without a quota; the judge does not care.
    spec.as_object_mut().unwrap().remove("priorityClassName");
    let pod = json!({ "metadata": { "name": "judged" }, "spec": spec });
    let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
    let answer = api.request("POST", &path, Some(&pod)).unwrap();
    let said = answer.json();
    let said = said["message"].as_str().unwrap_or_default().to_owned();
    match answer.status {
        201 => BTreeSet::new(),
        // `violates PodSecurity "restricted:latest": host namespaces (hostNetwork=true, hostPID=true), …`
        403 => {
            let list = said.split_once("latest\": ").unwrap_or_else(|| panic!("{said}")).1;
            let mut depth = 0;
            let outside: String = list
                .chars()
                .filter(|c| {
                    depth += i32::from(*c == '(') - i32::from(*c == ')');
                    depth == 0 && *c != ')'
                })
                .collect();
            outside.split(',').map(|word| word.trim().to_owned()).collect()
        }
        status => panic!("{status}: {said}"),
    }
}

/// The page for operators says why, for each objection.
#[test]
fn controllers_are_restricted_and_each_exception_of_the_agents_has_its_reason() {
    let test = "controllers_are_restricted_and_each_exception_of_the_agents_has_its_reason";
    let Some(server) = start_or_skip(test, Setup::default()) else { return };
    let api = server.api();
    let manifests = printed(Layout::V1, "=daemonset,controller,uninstall", &["--bgp-secret", "bgp"]);
    let controller = objections(&api, "restricted", find(&manifests, "Deployment", "plumb-controller"));
    assert_eq!(controller, BTreeSet::new());
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/install.md");
    let page = std::fs::read_to_string(page).unwrap();
    for name in ["plumb-node", "plumb-uninstall"] {
        let found = objections(&api, "restricted", find(&manifests, "DaemonSet", name));
        assert!(!found.contains("privileged") && found.len() > 3, "{found:?}");
        for objection in found {
            assert!(
                page.contains(&format!("| {objection} |")),
                "docs/install.md gives no reason for: {objection}"
            );
        }
    }
}

#[test]
fn agents_understand_every_variable_that_they_get() {
    for flags in CHOICES {
        let manifests = printed(Layout::V3, "=daemonset", flags);
        let agent = &find(&manifests, "DaemonSet", "plumb-node")["spec"]["template"]["spec"]["containers"][0];
        let names: Vec<&str> =
            agent["env"].as_array().unwrap().iter().map(|of| of["name"].as_str().unwrap()).collect();
        for name in &names {
            assert!(Setting::find(name).is_some() || *name == "KUBERNETES_SERVICE_PORT", "{name}");
        }
        assert_eq!(
            names.iter().collect::<BTreeSet<_>>().len(),
            names.len(),
            "a variable stands twice: {names:?}"
        );
    }
}

#[test]
fn flags_that_do_not_fit_each_other_are_refused_and_nothing_is_printed() {
    for (flags, words) in [
        (&["--pod-cidr", "10.0.0.0/16,10.1.0.0/16"][..], "two networks of the same IP version"),
        (&["--pod-cidr", "10.0.0.0/16", "--block-size", "26,122"], "one number for each --pod-cidr"),
        (&["--pod-cidr", "10.0.0.1/16"], "10.0.0.1/16"),
        (&["--pod-cidr", "fd00::/48", "--ip-autodetection", "first-found"], "use --ip6-autodetection"),
        (&["--cri-socket", "/run/containerd.sock"], "a directory of its own"),
        (&["--api-server", "https://10.0.0.1:6443"], "expected HOST:PORT"),
        (&["--mtu", "100"], "100 is not in 1280"),
        (&["--print=settings", "--pod-cidr", "10.0.0.0/16", "--block-size", "8"], "no valid pool"),
    ] {
        let print: &[&str] = if flags[0].starts_with("--print") { &[] } else { &["--print"] };
        let mut plumb = Command::new(env!("CARGO_BIN_EXE_plumb"));
        let output = plumb.env_clear().arg("install").args(print).args(flags).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(words), "{flags:?}: {said}");
        assert!(output.stdout.is_empty(), "{flags:?}");
    }
}
