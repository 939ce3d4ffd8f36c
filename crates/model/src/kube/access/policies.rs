//! The admission policies, made from `policies.yaml` and `network.yaml`.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{NODE_ACCOUNT, NODE_USER_PREFIX, NODES_GROUP};
use crate::Kind;
use crate::kube::Layout;

const POLICIES: &str = include_str!("policies.yaml");
const NETWORK: &str = include_str!("network.yaml");

/// What is particular to one policy.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Policy {
    name: String,
    description: String,
    rules: Vec<Value>,
    /// Where the text of the network is that the record is about.
    network: Option<String>,
    variables: Vec<Value>,
    validations: Vec<Validation>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Validation {
    message: String,
    expression: String,
}

/// Every policy, each followed by its binding. `namespace` is that of the agents' account.
pub fn policies(layout: Layout, namespace: &str) -> Vec<Value> {
    let text = POLICIES
        .replace("{group}", layout.group())
        .replace("{version}", layout.version())
        .replace("{ipamconfigs}", layout.plural(Kind::IpamConfiguration));
    // A constant, and tests read it.
    let mut policies: Vec<Policy> =
        serde_saphyr::from_str(&text).expect("policies.yaml is a list of policies");
    for rule in policies.iter_mut().flat_map(|policy| &mut policy.rules) {
        // The default, said so that applying it again changes nothing.
        rule["scope"] = "*".into();
    }
    policies.into_iter().flat_map(|policy| [policy.manifest(namespace), policy.binding()]).collect()
}

impl Policy {
    fn manifest(&self, namespace: &str) -> Value {
        let named = Validation {
            message: "the credential names no node: use a token that is bound to a pod or to a node"
                .to_owned(),
            expression: "variables.node != ''".to_owned(),
        };
        let validations: Vec<Value> =
            std::iter::once(&named).chain(&self.validations).map(Validation::manifest).collect();
        let mut variables = vec![json!({ "name": "node", "expression": node_of_credential() })];
        variables.extend(self.network.as_deref().map(of_network).into_iter().flatten());
        variables.extend(self.variables.iter().cloned());
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {
                "name": self.name, "annotations": { "kubernetes.io/description": self.description },
            },
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": { "resourceRules": self.rules },
                "matchConditions": [{ "name": "is-node-agent", "expression": is_node_agent(namespace) }],
                "variables": variables,
                "validations": validations,
            },
        })
    }

    fn binding(&self) -> Value {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": { "name": self.name },
            "spec": { "policyName": self.name, "validationActions": ["Deny"] },
        })
    }
}

impl Validation {
    fn manifest(&self) -> Value {
        json!({ "message": self.message, "expression": self.expression, "reason": "Forbidden" })
    }
}

/// The variables about the network whose text is there.
fn of_network(text: &str) -> Vec<Value> {
    let mut variables = vec![json!({ "name": "cidr", "expression": text })];
    // A constant, and tests read it.
    let others: Vec<Value> = serde_saphyr::from_str(NETWORK).expect("network.yaml is a list of variables");
    variables.extend(others);
    variables
}

/// Whom the policies are about. Everybody else is left to RBAC.
fn is_node_agent(namespace: &str) -> String {
    format!(
        "request.userInfo.username == 'system:serviceaccount:{namespace}:{NODE_ACCOUNT}' \
         || '{NODES_GROUP}' in request.userInfo.?groups.orValue([])"
    )
}

/// The node that the API server has seen in the token, or that a certificate's user name says.
fn node_of_credential() -> String {
    let start = NODE_USER_PREFIX.len();
    format!(
        "request.userInfo.?extra[?'authentication.kubernetes.io/node-name'].orValue([\
         request.userInfo.username.startsWith('{NODE_USER_PREFIX}') ? request.userInfo.username.substring({start}) : ''])[0]"
    )
}
