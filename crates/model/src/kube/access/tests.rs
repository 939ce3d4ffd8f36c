use std::collections::BTreeSet;

use serde_json::Value;

use super::*;
use crate::kube::{Layout, definitions};

const LAYOUTS: [Layout; 2] = [Layout::V1, Layout::V3];
const PAGE: &str = include_str!("../../../../../docs/kubernetes.md");

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn of_kind<'a>(manifests: &'a [Value], kind: &str) -> Vec<&'a Value> {
    manifests.iter().filter(|manifest| manifest["kind"] == kind).collect()
}

/// Every resource and operation that some policy looks at: group, resource, operation.
fn guarded(layout: Layout) -> BTreeSet<(String, String, String)> {
    let policies = policies(layout, NAMESPACE);
    let rules = policies.iter().filter_map(|policy| policy.pointer("/spec/matchConstraints/resourceRules"));
    let mut guarded = BTreeSet::new();
    for rule in rules.filter_map(Value::as_array).flatten() {
        for (group, resource) in
            texts(&rule["apiGroups"]).into_iter().zip(std::iter::repeat(&rule["resources"]))
        {
            for resource in texts(resource) {
                for operation in texts(&rule["operations"]) {
                    guarded.insert((group.to_owned(), resource.to_owned(), operation.to_owned()));
                }
            }
        }
    }
    guarded
}

#[test]
fn whatever_an_agent_may_write_a_policy_looks_at() {
    for layout in LAYOUTS {
        let (manifests, guarded) = (accounts_and_roles(layout, NAMESPACE), guarded(layout));
        let mut writes = 0;
        for role in of_kind(&manifests, "ClusterRole") {
            let name = role["metadata"]["name"].as_str().unwrap();
            for rule in role["rules"].as_array().unwrap().iter().filter(|_| name.starts_with("plumb-node")) {
                for verb in texts(&rule["verbs"]) {
                    let operation = match verb {
                        "get" | "list" | "watch" | RECLAIM => continue,
                        "create" => "CREATE",
                        "update" | "patch" => "UPDATE",
                        "delete" => "DELETE",
                        other => panic!("{other} needs a thought"),
                    };
                    for resource in texts(&rule["resources"]) {
                        let group = texts(&rule["apiGroups"])[0].to_owned();
                        let wanted = (group, resource.to_owned(), operation.to_owned());
                        assert!(guarded.contains(&wanted), "{name}: {wanted:?}");
                        writes += 1;
                    }
                }
            }
        }
        assert!(writes > 15, "{writes}");
    }
}

#[test]
fn roles_and_policies_name_resources_that_exist() {
    for layout in LAYOUTS {
        let defined: BTreeSet<String> = definitions(layout)
            .iter()
            .map(|definition| definition["spec"]["names"]["plural"].as_str().unwrap().to_owned())
            .collect();
        let of_roles = roles().iter().flat_map(|role| role.rules).flat_map(|rule| rule.resources(layout));
        let of_policies = guarded(layout).into_iter().map(|(_, resource, _)| resource);
        let core = [
            "nodes",
            "pods",
            "namespaces",
            "serviceaccounts",
            "leases",
            "deployments",
            "customresourcedefinitions",
            "apiservices",
            "networkpolicies",
            "clusternetworkpolicies",
            "adminnetworkpolicies",
            "baselineadminnetworkpolicies",
            "endpointslices",
        ];
        for resource in of_roles.chain(of_policies) {
            let name = resource.split('/').next().unwrap();
            assert!(defined.contains(name) || core.contains(&name), "{resource}");
        }
    }
}

#[test]
fn policies_are_whole() {
    for layout in LAYOUTS {
        let policies = policies(layout, "somewhere");
        let text = Value::from(policies.clone()).to_string();
        for word in ["{group}", "{version}", "{ipamconfigs}"] {
            assert!(!text.contains(word), "{word} was left");
        }
        assert!(text.contains("system:serviceaccount:somewhere:plumb-node"));
        let bound: Vec<&Value> = of_kind(&policies, "ValidatingAdmissionPolicyBinding")
            .into_iter()
            .map(|binding| &binding["spec"]["policyName"])
            .collect();
        let all = of_kind(&policies, "ValidatingAdmissionPolicy");
        assert_eq!(bound, all.iter().map(|policy| &policy["metadata"]["name"]).collect::<Vec<_>>());
        for policy in all {
            assert_eq!(policy["spec"]["validations"][0]["expression"], "variables.node != ''");
            assert_eq!(policy["spec"]["failurePolicy"], "Fail");
        }
    }
}

/// What the page for operators says of every rule.
fn row(role: &Role, rule: &Rule) -> String {
    let resources = match rule.is_of_every_record() {
        true => "every kind of Calico's".to_owned(),
        false => {
            rule.resources(Layout::V1).iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        }
    };
    format!("| `{}` | {} | {resources} | {} |", role.name, rule.verbs().join(", "), rule.why())
}

#[test]
fn the_page_has_every_rule_and_every_policy() {
    for role in roles() {
        for rule in role.rules {
            let row = row(role, rule);
            assert!(PAGE.contains(&row), "docs/kubernetes.md lacks this row:\n{row}");
        }
    }
    for policy in of_kind(&policies(Layout::V1, NAMESPACE), "ValidatingAdmissionPolicy") {
        let description = policy["metadata"]["annotations"]["kubernetes.io/description"].as_str().unwrap();
        let row = format!("| `{}` | {description} |", policy["metadata"]["name"].as_str().unwrap());
        assert!(PAGE.contains(&row), "docs/kubernetes.md lacks this row:\n{row}");
    }
    let rows =
        PAGE.lines().filter(|line| line.starts_with("| `plumb-") && !line.contains("| agents (")).count();
    let rules: usize = roles().iter().map(|role| role.rules.len()).sum();
    let accounts = 3;
    assert_eq!(rows, rules + 6 + accounts, "the page has a row for a rule or policy that is gone");
}
