//! What the credential that the plugin gets can do beyond its node.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use model::kube::access::{NODE_USER_PREFIX, NODES_GROUP};
use serde_json::Value;

use super::KUBECONFIG;

/// Groups of administrators, as certificates name them.
const ADMINISTRATORS: [&str; 2] = ["system:masters", "kubeadm:cluster-admins"];

/// What to say of a kubeconfig with one context. Nothing if its credential names a node: the admission policies hold it to that.
pub(super) fn warning(kubeconfig: &str) -> Option<String> {
    let kubeconfig: Value = serde_json::from_str(kubeconfig).unwrap_or_default();
    let user = &kubeconfig["users"][0]["user"];
    let text = |field: &str| user[field].as_str();
    let certificate = text("client-certificate-data").and_then(|data| STANDARD.decode(data).ok());
    let certificate = certificate.map(|pem| plain(&pem)).unwrap_or_default();
    let from_file = || std::fs::read_to_string(text("tokenFile")?).ok();
    let token = text("token").map(str::to_owned).or_else(from_file);
    let is_certified = [NODES_GROUP, NODE_USER_PREFIX].iter().all(|word| holds(&certificate, word));
    if token.as_deref().map_or(is_certified, is_bound_to_node) {
        return None;
    }
    let rights = match ADMINISTRATORS.iter().find(|group| holds(&certificate, group)) {
        Some(group) => {
            format!("makes root on this node an administrator of the cluster, by the group {group}")
        }
        None => "names no node, so root on this node has all rights of its user, for every node".to_owned(),
    };
    Some(format!(
        "warning: the credential in {KUBECONFIG} {rights}; install with a token that is bound to this node: \
         docs/kubernetes.md#the-agents-credential"
    ))
}

/// The bytes of a certificate, in which its subject's words stand as they are.
fn plain(pem: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(pem);
    let lines: String = text.lines().filter(|line| !line.starts_with("-----")).collect();
    STANDARD.decode(lines).unwrap_or_default()
}

fn holds(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|window| window == word.as_bytes())
}

/// As the API server writes it into a token. Whether the token is genuine is the server's matter.
fn is_bound_to_node(token: &str) -> bool {
    let claims = token.split('.').nth(1).and_then(|claims| URL_SAFE_NO_PAD.decode(claims).ok());
    let claims: Value = claims.and_then(|claims| serde_json::from_slice(&claims).ok()).unwrap_or_default();
    claims["kubernetes.io"]["node"]["name"].is_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(user: Value) -> String {
        let kubeconfig = json!({ "users": [{ "name": "a", "user": user }] });
        warning(&kubeconfig.to_string()).unwrap_or_default()
    }

    fn certified(subject: &str) -> Value {
        let body = STANDARD.encode(format!("\x30\x0c{subject}\x03"));
        let pem = format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n");
        json!({ "client-certificate-data": STANDARD.encode(pem) })
    }

    #[test]
    fn only_what_names_a_node_is_taken_silently() {
        let token = |claims: Value| format!("e30.{}.x", URL_SAFE_NO_PAD.encode(claims.to_string()));
        let bound = token(json!({ "kubernetes.io": { "node": { "name": "node-a" } } }));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &bound).unwrap();
        let silent = [
            json!({ "token": bound }),
            json!({ "tokenFile": file.path() }),
            certified("plumb:nodes plumb:node:node-a"),
        ];
        for user in silent {
            assert_eq!(said(user.clone()), "", "{user}");
        }
        let of_account =
            token(json!({ "kubernetes.io": { "serviceaccount": { "name": "plumb-operator" } } }));
        for user in [json!({ "token": of_account }), json!({ "token": "x" }), json!({}), certified("jane")] {
            assert!(said(user.clone()).contains("names no node"), "{user}");
        }
        for group in ADMINISTRATORS {
            assert!(
                said(certified(group))
                    .contains(&format!("an administrator of the cluster, by the group {group}"))
            );
        }
        // A token counts before a certificate does.
        let mut both = certified("system:masters");
        both["token"] = bound.into();
        assert_eq!(said(both), "");
    }
}
