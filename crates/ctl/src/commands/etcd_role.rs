//! `plumb datastore etcd-role NODE`: what an agent's user may do in an etcd with authentication, as commands for etcdctl.

use std::io::Write as _;

use model::NodeName;
use model::access::{Access, Grant, GrantedNamespaces, node_grants};

use crate::cli::EtcdRole;
use crate::failure::{Failure, Failures};

pub(super) fn run(wanted: &EtcdRole) -> Result<(), Failures> {
    let node = &wanted.node;
    NodeName::from(node.as_str())
        .check()
        .map_err(|error| Failure::usage(format!("{node:?} is not a node name: {error}")))?;
    let is_plain =
        |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    // They become words of a shell.
    if let Some(odd) = wanted.namespace.iter().chain([node]).find(|name| name.is_empty() || !is_plain(name)) {
        return Err(Failure::usage(format!("{odd:?} is not a valid Kubernetes name")).into());
    }
    let namespaces = match (wanted.all_namespaces, wanted.namespace.is_empty()) {
        (true, _) => GrantedNamespaces::All,
        (false, false) => GrantedNamespaces::Some(wanted.namespace.clone()),
        (false, true) => {
            let failure = Failure::usage("no namespaces given");
            return Err(failure
                .hint("name each namespace whose pods may run on the node with -n, or use -A, which lets the node write the endpoints of all nodes")
                .into());
        }
    };
    let grants = node_grants(node, &namespaces).map_err(|error| Failure::of(&error))?;
    std::io::stdout().lock().write_all(script(node, &grants).as_bytes()).map_err(Failure::from)?;
    Ok(())
}

fn script(node: &str, grants: &[Grant]) -> String {
    let role = format!("plumb-node-{node}");
    let mut text = format!(
        "# Permissions of the agent of node {node} in an etcd with authentication. Run as etcd's root user; may be repeated.\n\
         # Afterwards: etcdctl user add {node} && etcdctl user grant-role {node} {role}\n\
         # (with client certificates: etcdctl user add {node} --no-password, and {node} as the certificate's common name).\n\
         set -e\n\
         etcdctl role get {role} >/dev/null 2>&1 || etcdctl role add {role}\n"
    );
    let mut last = "";
    for grant in grants {
        let access = match grant.access {
            Access::Read => "read",
            Access::ReadWrite => "readwrite",
        };
        if grant.why != last {
            text.push_str(&format!("# {access}: {}\n", grant.why));
            last = grant.why;
        }
        let prefix = if grant.is_prefix() { " --prefix" } else { "" };
        let end = grant.etcd_end().map_or_else(String::new, |end| format!(" {end}"));
        text.push_str(&format!(
            "etcdctl role grant-permission{prefix} {role} {access} {}{end}\n",
            grant.etcd_text()
        ));
    }
    text
}
