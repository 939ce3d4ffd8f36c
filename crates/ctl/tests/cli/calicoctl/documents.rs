//! YAML, JSON, tables and templates as Go writes them.

use serde_json::Value;

use super::{case, check, run};
use crate::harness::{Desk, machine_has_own_config};

const POLICY: &str = "\
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: g, labels: {b: '1', a: 'yes'}}
spec:
  Order: 1000000
  SELECTOR: role == 'db' && !has(x)
  doNotTrack: false
  ingress:
  - {action: Allow, protocol: '6', source: {}, destination: {ports: ['80', '90:100', named], nets: [10.0.0.0/8]}}
";

const FELIX: &str = "\
apiVersion: projectcalico.org/v3
kind: FelixConfiguration
metadata: {name: node.n}
spec: {reportingInterval: 90s, wireguardKeepAlive: '0', interfacePrefix: '', failsafeInboundHostPorts: []}
";

/// A document without what differs from run to run.
fn masked(text: &str) -> String {
    let is_own = |line: &&str| {
        let field = line.trim_start().trim_start_matches('"');
        !["uid", "resourceVersion", "creationTimestamp"].iter().any(|name| field.starts_with(name))
    };
    text.lines().filter(is_own).collect::<Vec<_>>().join("\n")
}

#[test]
fn documents_are_those_of_gos_encoders() {
    if machine_has_own_config("documents_are_those_of_gos_encoders") {
        return;
    }
    let desk = Desk::on_sqlite();
    for manifest in [POLICY, FELIX] {
        assert_eq!(run(&desk, &["apply", "-f", "-"], manifest).code, Some(0));
    }
    let yaml = run(&desk, &["get", "gnp", "g", "-o", "yaml"], "");
    let expected = "\
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata:
  labels:
    a: \"yes\"
    b: \"1\"
    projectcalico.org/tier: default
  name: g
spec:
  ingress:
  - action: Allow
    destination:
      nets:
      - 10.0.0.0/8
      ports:
      - 80
      - 90:100
      - named
    protocol: 6
  order: 1000000
  selector: role == 'db' && !has(x)
  tier: default
  types:
  - Ingress";
    assert_eq!(masked(&yaml.stdout), expected);
    let felix = masked(&run(&desk, &["get", "felixconfig", "node.n", "-o", "yaml"], "").stdout);
    for line in [
        "  reportingInterval: 1m30s",
        "  wireguardKeepAlive: 0s",
        "  bpfLogLevel: \"\"",
        "  failsafeInboundHostPorts: []",
    ] {
        assert!(felix.lines().any(|found| found == line), "{line} is not in {felix}");
    }
    assert!(!felix.contains("interfacePrefix"), "{felix}");
    let json = run(&desk, &["get", "gnp", "g", "-o", "json"], "").stdout;
    assert!(
        json.starts_with("{\n  \"kind\": \"GlobalNetworkPolicy\",\n  \"apiVersion\"") && json.ends_with('}'),
        "{json}"
    );
    assert!(json.contains("role == 'db' \\u0026\\u0026 !has(x)"), "{json}");
    assert!(serde_json::from_str::<Value>(&json).is_ok());
    check(
        &desk,
        &[
            case(&["get", "gnp", "-o", "wide"]).prints(
                "NAME   TIER      ORDER   SELECTOR                  \ng      default   1e+06   role == 'db' && !has(x)   \n\n",
            ),
            case(&["get", "netsets", "-A"]).prints("NAMESPACE   NAME   \n\n"),
            case(&["get", "gnp", "-o", "go-template={{range .}}{{range .Items}}{{.ObjectMeta.Name}} {{.Spec.Order}} {{join .Spec.Types \",\"}}{{\"\\n\"}}{{end}}{{end}}"])
                .prints("g 1e+06 Ingress\n"),
            case(&["get", "gnp", "g", "-o", "go-template={{range .}}{{.Name}} {{len .Spec.Ingress}}{{end}}"]).prints("g 1"),
            case(&["get", "gnp", "-o", "go-template={{"]).fails("template: get:1: unclosed action\n"),
        ],
    );
    desk.file("names.tmpl", "{{range .}}{{range .Items}}{{.Name}};{{end}}{{end}}");
    check(&desk, &[case(&["get", "gnp", "-o", "go-template-file=names.tmpl"]).prints("g;")]);
}

#[test]
fn addresses_are_counted_in_calicoctls_tables() {
    if machine_has_own_config("addresses_are_counted_in_calicoctls_tables") {
        return;
    }
    let desk = Desk::on_sqlite();
    let pools = "\
{apiVersion: projectcalico.org/v3, kind: IPPool, metadata: {name: a}, spec: {cidr: 10.65.0.0/24}}
---
{apiVersion: projectcalico.org/v3, kind: IPPool, metadata: {name: six}, spec: {cidr: 'fd00::/64'}}
";
    assert_eq!(run(&desk, &["create", "-f", "-"], pools).code, Some(0));
    let usage = "\
+----------+--------------+------------+------------+--------------+-------------------+
| GROUPING | CIDR         | IPS TOTAL  | IPS IN USE | IPS RESERVED | IPS FREE          |
+----------+--------------+------------+------------+--------------+-------------------+
| IP Pool  | 10.65.0.0/24 |        256 |     0 (0%) |       0 (0%) |        256 (100%) |
| IP Pool  | fd00::/64    | 9.2234e+18 |     0 (0%) |       0 (0%) | 9.2234e+18 (100%) |
+----------+--------------+------------+------------+--------------+-------------------+
";
    check(
        &desk,
        &[
            case(&["ipam", "show"]).prints(usage),
            case(&["ipam", "show", "--ip=10.65.0.1"]).prints("10.65.0.1 is not assigned\n"),
            case(&["ipam", "split", "4", "--cidr=10.65.0.0/24"]).fails(
                "datastore is not locked. Run the `calicoctl datastore migrate lock` command in order split the IP pools\n",
            ),
            case(&["datastore", "migrate", "lock"]).prints("Datastore locked.\n"),
            case(&["ipam", "split", "2", "--name=a"]).prints(
                "IP Pool a was successfully split into 2 smaller pools.Created split-a-0 with CIDR 10.65.0.0/25.\nCreated \
                 split-a-1 with CIDR 10.65.0.128/25.\nPlease refer to the documentation for final steps.",
            ),
            case(&["datastore", "migrate", "unlock"]).prints("Datastore unlocked.\n"),
        ],
    );
}
