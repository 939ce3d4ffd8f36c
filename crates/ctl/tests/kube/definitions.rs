//! The definitions of Calico's kinds: printed, created where they are missing, left alone where they are not.

use std::path::Path;
use std::process::{Command, Output};

use model::kube::{Layout, definition, definitions};
use model::yaml::to_yaml;
use model::{Key, Kind};
use serde_json::{Value, json};
use store::Store;
use store::kube::{KubeConfig, KubeStore};
use testkit::kube::{KubeApiServer, Setup, start_or_skip};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn plumb(variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut plumb = Command::new(env!("CARGO_BIN_EXE_plumb"));
    plumb.env_clear().envs(variables.iter().copied()).arg("install").args(arguments).output().unwrap()
}

#[track_caller]
fn printed(variables: &[(&str, &str)], arguments: &[&str]) -> String {
    let output = plumb(variables, arguments);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Standard output and standard error of an installation through a kubeconfig.
#[track_caller]
fn applied(kubeconfig: &Path, arguments: &[&str]) -> (String, String) {
    let variables = [("DATASTORE_TYPE", "kubernetes"), ("KUBECONFIG", kubeconfig.to_str().unwrap())];
    let output = plumb(&variables, &[&["--crds", "--apply"], arguments].concat());
    assert!(output.status.success(), "{output:?}");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

fn texts(layout: Layout) -> String {
    definitions(layout).iter().map(|definition| format!("---\n{}", to_yaml(definition))).collect()
}

#[test]
fn manifests_are_printed_for_either_group() {
    let of_v3 = &[("CALICO_API_GROUP", "projectcalico.org/v3")];
    assert_eq!(printed(&[], &["--crds"]), texts(Layout::V1));
    assert_eq!(printed(of_v3, &["--crds"]), texts(Layout::V3));
    assert_eq!(printed(&[], &["--crds", "--api-group", "projectcalico.org/v3"]), texts(Layout::V3));
    assert_eq!(
        printed(of_v3, &["--print=crds", "--api-group", "crd.projectcalico.org/v1"]),
        texts(Layout::V1)
    );

    let all = printed(&[], &["--print"]);
    let parts = ["crds", "admission", "rbac", "daemonset", "controller"];
    let parts = parts.map(|part| printed(&[], &[&format!("--print={part}")]));
    assert_eq!(all, parts.concat());
    assert_eq!(printed(&[], &["--print=rbac,admission", "--namespace", "kube-system"]), parts[1..3].concat());
    assert_eq!(printed(&[], &["--print=namespace"]), "", "kube-system is there");
    assert!(printed(&[], &["--print=namespace", "--namespace", "net"]).contains("name: net\n"));
    let elsewhere = printed(&[], &["--print=rbac,admission", "--namespace", "net"]);
    assert!(elsewhere.contains("system:serviceaccount:net:plumb-node") && !elsewhere.contains("kube-system"));
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (arguments, words) in [
        (&["--apply"][..], "--crds"),
        (&["--print", "--crds"], "cannot be used with"),
        (&["--print=everything"], "crds, admission, rbac"),
        (&["--crds", "--api-group", "crd.projectcalico.org/v2"], "projectcalico.org/v3"),
        (&["--print", "--namespace", "a' || true || '"], "not a valid name of a namespace"),
        (&["--crds", "--apply"], "--apply requires the Kubernetes store"),
    ] {
        let output = plumb(&[("DATASTORE_TYPE", "sqlite")], arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(words), "{arguments:?}: {output:?}");
    }
}

#[test]
fn missing_definitions_are_created_and_served() {
    let test = "missing_definitions_are_created_and_served";
    let Some(server) = start_or_skip(test, Setup::default()) else { return };
    let kubeconfig = server.kubeconfig().unwrap();
    for layout in [Layout::V1, Layout::V3] {
        let group = layout.api_version();
        let arguments = ["--api-group", group.as_str()];
        let (would, _) = applied(&kubeconfig, &[&arguments[..], &["--dry-run"]].concat());
        let names: Vec<String> = definitions(layout)
            .iter()
            .map(|definition| definition["metadata"]["name"].as_str().unwrap().to_owned())
            .collect();
        let lines = |word: &str| names.iter().map(|name| format!("{word} {name}\n")).collect::<String>();
        assert_eq!(would, lines("would install"));
        let (created, said) = applied(&kubeconfig, &arguments);
        assert_eq!((created, said), (lines("installed"), String::new()));
        for kind in Kind::all().filter(|kind| model::kube::is_custom_resource(*kind)) {
            let path = format!("/apis/{group}/{}", layout.plural(kind));
            assert_eq!(server.api().get(&path).unwrap().status, 200, "{path} is served");
        }
        let (again, said) = applied(&kubeconfig, &arguments);
        assert_eq!((again, said), (lines("unchanged"), String::new()));
    }
}

/// What the server keeps of a block, with the definition that it has.
async fn stored_block(server: &KubeApiServer) -> Value {
    let kubeconfig = Some(server.kubeconfig().unwrap());
    let store = KubeStore::connect(KubeConfig { kubeconfig, ..KubeConfig::default() }).await.unwrap();
    let value = json!({ "allocations": [0], "unallocated": [], "affinity": "host:a",
        "affinity_claim_time": "2026-01-01T00:00:00Z",
        "attributes": [{ "handle_id": "h", "secondary": { "node": "a" }, "releasedAt": "2026-01-01T00:00:00Z" }] });
    let key = Key::Block("10.0.0.0/32".parse().unwrap());
    (&store as &dyn Store).create(key.clone(), value.to_string().into_bytes()).await.unwrap();
    let record = store.get(&key).await.unwrap().unwrap();
    serde_json::from_slice(&record.value).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn older_definitions_are_kept_and_what_they_would_drop_is_named() {
    let test = "older_definitions_are_kept_and_what_they_would_drop_is_named";
    let Some(server) = start_or_skip(test, Setup::default()) else { return };
    let kubeconfig = server.kubeconfig().unwrap();
    let mut old = definition(Layout::V1, Kind::IpamBlock);
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let fields = old.pointer_mut(spec).unwrap();
    fields.as_object_mut().unwrap().remove("affinityClaimTime");
    fields["attributes"]["items"]["properties"].as_object_mut().unwrap().remove("releasedAt");
    server.api().create(DEFINITIONS, &old).unwrap();

    for arguments in [&["--dry-run"][..], &[]] {
        let (done, said) = applied(&kubeconfig, arguments);
        assert!(done.contains("\nkept ipamblocks.crd.projectcalico.org\n"), "{done}");
        let words = "from every IPAMBlock: spec.affinityClaimTime, spec.attributes[].releasedAt\n";
        assert!(
            said.starts_with("warning: ipamblocks.crd.projectcalico.org ") && said.ends_with(words),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let path = format!("{DEFINITIONS}/ipamblocks.crd.projectcalico.org");
    assert_eq!(server.api().read(&path).unwrap()["metadata"]["generation"], 1, "it was left as it was");
    let kept = stored_block(&server).await;
    assert_eq!(
        (kept.get("affinity_claim_time"), kept["attributes"][0].get("releasedAt")),
        (None, None),
        "{kept}"
    );
    assert_eq!(kept["attributes"][0]["secondary"]["node"], "a");
}

/// Where Calico's API server answers for the group, definitions would not be used.
#[test]
fn a_group_that_another_server_serves_is_left_alone() {
    let test = "a_group_that_another_server_serves_is_left_alone";
    let Some(server) = start_or_skip(test, Setup::default()) else { return };
    let service = json!({ "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": { "name": "v3.projectcalico.org" },
        "spec": { "group": "projectcalico.org", "version": "v3", "groupPriorityMinimum": 1500, "versionPriority": 200,
            "insecureSkipTLSVerify": true, "service": { "namespace": "calico-system", "name": "calico-api" } } });
    server.api().create("/apis/apiregistration.k8s.io/v1/apiservices", &service).unwrap();
    let kubeconfig = server.kubeconfig().unwrap();
    let variables = [("DATASTORE_TYPE", "kubernetes"), ("KUBECONFIG", kubeconfig.to_str().unwrap())];
    let output = plumb(&variables, &["--crds", "--apply", "--api-group", "projectcalico.org/v3"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("calico-system/calico-api"), "{said}");
    let (done, _) = applied(&kubeconfig, &["--api-group", "crd.projectcalico.org/v1"]);
    assert!(done.starts_with("installed "), "{done}");
}
