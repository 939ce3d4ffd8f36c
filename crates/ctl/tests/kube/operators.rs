//! Operators who look and operators who change, each with the account that `plumb install` makes for them.

use std::path::PathBuf;
use std::process::Output;

use model::Kind;
use serde_json::json;

use crate::fixture::{Cluster, LAYOUTS};

const POOL: &str =
    "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: pods}\nspec: {cidr: 10.64.0.0/16}\n";

/// The kubeconfig of an account.
fn kubeconfig(cluster: &Cluster, account: &str) -> (PathBuf, String) {
    let path = format!("/api/v1/namespaces/kube-system/serviceaccounts/{account}/token");
    let token = cluster.api().create(&path, &json!({ "spec": {} })).unwrap();
    let token = token["status"]["token"].as_str().unwrap().to_owned();
    let file = cluster.server.write_kubeconfig(account, &cluster.server.url(), json!({ "token": token }));
    (file.unwrap(), token)
}

#[track_caller]
fn done(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
fn refused(output: &Output, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not said in {said}");
    }
}

#[test]
fn readers_look_and_operators_change() {
    for layout in LAYOUTS {
        let Some(cluster) = Cluster::start("readers_look_and_operators_change", layout) else { return };
        let folder = tempfile::tempdir().unwrap();
        let manifest = folder.path().join("pool.yaml");
        std::fs::write(&manifest, POOL).unwrap();
        let apply = ["apply", "-f", manifest.to_str().unwrap()];
        let (reader, of_reader) = kubeconfig(&cluster, "plumb-reader");
        let (operator, of_operator) = kubeconfig(&cluster, "plumb-operator");

        refused(&cluster.plumb(&reader, &apply), &["cannot create resource", "hint: grant it"]);
        done(&cluster.plumb(&operator, &apply));
        let again = POOL.replace("10.64.0.0/16}", "10.64.0.0/16, natOutgoing: true}");
        std::fs::write(&manifest, again).unwrap();
        done(&cluster.plumb(&operator, &apply));
        done(&cluster.plumb(&operator, &["label", "node", "node-a", "rack=a"]));
        for kubeconfig in [&reader, &operator] {
            assert!(
                done(&cluster.plumb(kubeconfig, &["get", "ippools", "-o", "wide"])).contains("10.64.0.0/16")
            );
            assert!(done(&cluster.plumb(kubeconfig, &["get", "nodes", "-o", "yaml"])).contains("rack: a"));
            assert!(done(&cluster.plumb(kubeconfig, &["get", "wep", "-A"])).contains("web-node-a"));
            done(&cluster.plumb(kubeconfig, &["get", "profiles"]));
            done(&cluster.plumb(kubeconfig, &["ipam", "show"]));
            let found = done(&cluster.plumb(kubeconfig, &["install", "--crds", "--apply", "--dry-run"]));
            assert!(found.lines().all(|line| line.starts_with("unchanged ")), "{found}");
        }
        refused(&cluster.plumb(&reader, &["delete", "ippool", "pods"]), &["cannot "]);
        refused(
            &cluster.plumb(&reader, &["label", "node", "node-a", "rack=b", "--overwrite"]),
            &["cannot patch"],
        );
        done(&cluster.plumb(&operator, &["delete", "ippool", "pods"]));
        for token in [of_reader, of_operator] {
            let api = cluster.server.api_as(&token);
            for layout in LAYOUTS {
                let resource = layout.plural(Kind::IpamConfiguration);
                let asked = json!({ "verb": "list", "group": layout.group(), "resource": resource });
                let review = json!({ "spec": { "resourceAttributes": asked } });
                let review =
                    api.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review).unwrap();
                assert_eq!(review["status"]["allowed"], true, "either group can be looked at: {review}");
            }
            assert_eq!(api.get("/api/v1/secrets").unwrap().status, 403);
            assert_eq!(api.request("DELETE", "/api/v1/nodes/node-a", None).unwrap().status, 403);
        }
    }
}
