//! Tables, messages and refusals.

use super::{Case, calicoctl, case, check, on_both_stores};
use crate::harness::{Desk, PLUMB, finish, machine_has_own_config};

const POOLS: &str = "\
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: a}
spec: {cidr: 10.0.0.0/16}
---
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: b}
spec: {cidr: 10.0.0.0/24}
---
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: c}
spec: {cidr: 10.1.0.0/24}
";
const POOL: &str =
    "{apiVersion: projectcalico.org/v3, kind: IPPool, metadata: {name: a}, spec: {cidr: 10.0.0.0/16}}";
const NODE: &str = "{apiVersion: projectcalico.org/v3, kind: Node, metadata: {name: n}, spec: {}}";

const CRUD: &[Case] = &[
    // The second overlaps the first; the others are written.
    case(&["create", "-f", "-"]).reads(POOLS).prints("Partial success: created the first 2 out of 3 'IPPool' resources:\n").fails(
        "hit error: [error with field IPPool.Spec.CIDR = '10.0.0.0/24' (IPPool(b) CIDR overlaps with IPPool(a) CIDR 10.0.0.0/16)]\n",
    ),
    case(&["get", "ippools"]).prints(
        "NAME   CIDR          SELECTOR   \na      10.0.0.0/16   all()      \nc      10.1.0.0/24   all()      \n\n",
    ),
    case(&["get", "ippool", "a", "c", "-o", "custom-columns=NAME,NAT"])
        .prints("NAME   NAT     \na      false   \n\nNAME   NAT     \nc      false   \n\n"),
    case(&["get", "ippool", "a", "nowhere"])
        .prints("NAME   CIDR          SELECTOR   \na      10.0.0.0/16   all()      \n\n")
        .fails("resource does not exist: IPPool(nowhere) with error: <nil>\n"),
    case(&["get", "ippool", "nowhere", "-o", "yaml"])
        .prints("null\n")
        .fails("resource does not exist: IPPool(nowhere) with error: <nil>\n"),
    case(&["create", "-f", "-"])
        .reads(POOL)
        .fails("failed to create 'IPPool' resource: [resource already exists: IPPool(a) with error: <nil>]\n"),
    case(&["create", "-f", "-", "--skip-exists"]).reads(POOL).prints("Successfully created 1 'IPPool' resource(s)\n"),
    case(&["apply", "-f", "-"]).reads(POOL).prints("Successfully applied 1 'IPPool' resource(s)\n"),
    case(&["replace", "-f", "-"]).reads(NODE).prints("Partial success: replaced the first 1 out of 1 'Node' resources:\n").fails(
        "hit error: resource does not exist: Node(n) with error: <nil>\n",
    ),
    case(&["label", "ippool", "a", "k=v"]).prints("Successfully set label k on ippool a\n"),
    case(&["label", "ippool", "a", "k=w"]).fails(
        "failed to update label of ippool a, key k is already present. please use '--overwrite' to set a new value\n",
    ),
    case(&["label", "ippool", "a", "k=w", "--overwrite"]).prints("Successfully updated label k on ippool a\n"),
    case(&["label", "ippool", "a", "k", "--remove"]).prints("Successfully removed label k from ippool a\n"),
    case(&["label", "ippool", "a", "k", "--remove"])
        .fails("cannot remove label of ippool a, key k does not exist\n"),
    case(&["label", "ippool", "zz", "k=v"]).fails("ippool zz not found\n"),
    case(&["label", "foo", "x", "k=v"]).fails("failed to get foo x, error resource type 'foo' is not supported\n"),
    case(&["label", "clusterinfo", "default", "k=v"])
        .fails("failed to update clusterinfo default, label not changed\n"),
    case(&["patch", "ippool", "a", "-p", "{\"spec\":{\"natOutgoing\":true}}"])
        .prints("Successfully patched 1 'IPPool' resource\n"),
    case(&["patch", "ippool", "a", "-p", "{\"spec\":{\"foo\":1}}"])
        .fails("field in document is not recognized or is in the wrong location: foo\n"),
    case(&["patch", "ippool", "a", "-p", "[{\"op\":\"add\"}]", "--type", "json"])
        .fails("hit error: performing strategic merge patch: invalid JSON document\n"),
    case(&["patch", "ippool", "a", "-p", "{\"spec\":{\"cidr\":\"1.0.0.0/8\"}}"]).fails(
        "hit error: updating existing resource: error with field IPPool.Spec.CIDR = '1.0.0.0/8' (IPPool CIDR cannot be modified)\n",
    ),
    case(&["delete", "ippool", "a", "nowhere"]).prints("Successfully deleted 1 'IPPool' resource(s)\n").fails(
        "Failed to delete 'IPPool' resource: resource does not exist: IPPool(nowhere) with error: <nil>\n\n",
    ),
    case(&["delete", "ippool", "nowhere", "--skip-not-exists"])
        .prints("Successfully deleted 1 'IPPool' resource(s)\n"),
    case(&["delete", "ippool"]).fails(
        "Failed to delete 'IPPool' resource: resource does not exist: IPPool() with error: <nil>\n\n",
    ),
    case(&["delete", "tier", "default"]).fails(
        "Failed to delete 'Tier' resource: operation Delete is not supported on default: Cannot delete default tier\n\n",
    ),
    case(&["delete", "clusterinfo", "default"]).fails(
        "Failed to delete 'ClusterInformation' resource: operation delete is not supported on ClusterInformation\n\n",
    ),
    case(&["get", "tiers"])
        .prints("NAME            ORDER   \nkube-admin      1000    \ndefault         1e+06   \nkube-baseline   1e+07   \n\n"),
];

#[test]
fn resources_are_changed_in_calicoctls_words() {
    on_both_stores("resources_are_changed_in_calicoctls_words", CRUD);
}

const USAGE: &[Case] = &[
    case(&["get", "foo"]).fails("failed to get resources: resource type 'foo' is not supported\n"),
    case(&["get", "ippool", ""]).fails("failed to get resources: resource name may not be empty\n"),
    case(&["delete", "foo", "x"]).fails("resource type 'foo' is not supported\n"),
    case(&["get", "ippool", "-o", "foo"]).fails("unrecognized output format 'foo'\n"),
    case(&["get", "ippool", "-o", "custom-columns"]).fails("need to specify at least one column\n"),
    case(&["get", "ippool", "-o", "go-template"]).fails("need to specify a template\n"),
    case(&["get", "ippool", "-o", "go-template-file"]).fails("need to specify a template file\n"),
    case(&["get", "ippool", "-o", "go-template-file=nofile"])
        .fails("open nofile: no such file or directory\n"),
    case(&["get", "np", "-n", "x", "-A"])
        .fails("cannot use both --namespace and --all-namespaces flags at the same time\n"),
    case(&["get", "--foo"]).fails("unknown flag: --foo\n"),
    case(&["foo"]).fails("unknown command \"foo\" for \"calicoctl\"\n"),
    case(&["convert", "-f", "x"]).fails("unknown command \"convert\" for \"calicoctl\"\n"),
    case(&["-l", "foo", "get", "node"])
        .fails("unknown log level: foo, expected one of: panic, fatal, error, warn, info, debug\n"),
    case(&["create", "-f", "nofile"])
        .fails("failed to execute command: open nofile: no such file or directory\n"),
    case(&["create", "-f", "-"]).fails("no resources specified in file -\n"),
    case(&["create", "-f", "-", "--skip-empty"]).prints("No resources specified\n"),
    case(&["validate", "-f", "-"]).reads(POOL).prints("Successfully validated 1 'IPPool' resource(s)\n"),
    case(&["ipam", "configure"]).fails("at least one configuration option must be specified\n"),
    case(&["ipam", "configure", "--strictaffinity=foo"])
        .fails("invalid value. Use true or false to set strictaffinity\n"),
    case(&["node", "run", "--dryrun", "--init-system"])
        .fails("calico/node is not run by plumb: set up the agent of this node with plumb install\n"),
];

#[test]
fn a_wrong_command_line_ends_as_calicoctls() {
    if !machine_has_own_config("a_wrong_command_line_ends_as_calicoctls") {
        let desk = Desk::on_sqlite();
        desk.apply(POOL);
        check(&desk, USAGE);
    }
}

macro_rules! of {
    ($kind:literal, $name:literal, $spec:literal) => {
        concat!(
            "{apiVersion: projectcalico.org/v3, kind: ",
            $kind,
            ", metadata: {name: ",
            $name,
            "}, spec: ",
            $spec,
            "}"
        )
    };
}

const INVALID: &[Case] = &[
    case(&["create", "-f", "-"])
        .reads(of!("IPPool", "h", "{sidr: 10.0.0.0/16}"))
        .fails("field in document is not recognized or is in the wrong location: sidr\n"),
    case(&["create", "-f", "-"]).reads(of!("IPPool", "h", "{cidr: 10.77.0.1/16}")).fails(
        "failed to create 'IPPool' resource: [error with field IPPool.Spec.CIDR = '10.77.0.0/16' (IPPool CIDR is not strictly \
         masked)]\n",
    ),
    case(&["create", "-f", "-"]).reads(of!("IPPool", "h", "{cidr: 10.77.0.0/16, ipipMode: foo}")).fails(
        "failed to create 'IPPool' resource: [error with field spec.ipipMode (supported values: \"Never\", \"Always\", \
         \"CrossSubnet\")]\n",
    ),
    // The type is a pointer in Go, so an empty word is a word.
    case(&["create", "-f", "-"]).reads(of!("IPPool", "h", "{cidr: 10.77.0.0/16, assignmentMode: \"\"}")).fails(
        "failed to create 'IPPool' resource: [error with field spec.assignmentMode (supported values: \"Automatic\", \
         \"Manual\")]\n",
    ),
    case(&["create", "-f", "-"]).reads(of!("IPPool", "h", "{cidr: 10.77.0.0/16, blockSize: 18}")).fails(
        "failed to create 'IPPool' resource: [error with field spec (blockSize must be between 20 and 32 for IPv4 pools, and \
         between 116 and 128 for IPv6 pools)]\n",
    ),
    case(&["create", "-f", "-"]).reads(of!("IPPool", "h", "{cidr: 10.77.0.0/16, natOutgoing: maybe}")).fails(
        "failed to execute command: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal string into Go struct \
         field IPPoolSpec.spec.natOutgoing of type bool\n",
    ),
    case(&["create", "-f", "-"]).reads(of!("Pool", "h", "{}")).fails(
        "failed to execute command: unknown resource type (Pool) and/or version (projectcalico.org/v3)\n",
    ),
    case(&["create", "-f", "-"]).reads(of!("IPPool", "H_", "{cidr: 10.77.0.0/16}")).fails(
        "failed to create 'IPPool' resource: [error with field Metadata.Name = 'H_' (name must consist of lower case \
         alphanumeric characters, '-' or '.' (regex: [a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*))]\n",
    ),
    case(&["create", "-f", "-"]).reads(of!("BGPPeer", "p", "{peerIP: foo}")).fails(
        "failed to create 'BGPPeer' resource: [error with field PeerIP = 'foo' (Reason: failed to validate Field: PeerIP \
         because of Tag: IP:port )]\n",
    ),
    case(&["create", "-f", "-"]).reads(of!("BGPPeer", "p", "{peerIP: 1.2.3.4, filters: [x]}")).fails(
        "failed to create 'BGPPeer' resource: [error with field BGPPeer.Spec.Filters = '[x]' (BGPFilter(s) not found)]\n",
    ),
    case(&["create", "-f", "-"]).reads(of!("BGPConfiguration", "node.n", "{asNumber: 1}")).fails(
        "failed to create 'BGPConfiguration' resource: [error with field BGPConfiguration.Spec.ASNumber (Cannot set ASNumber on \
         a non default BGP Configuration.)]\n",
    ),
    case(&["create", "-f", "-"]).reads(of!("Node", "n", "{bgp: {}}")).fails(
        "failed to create 'Node' resource: [error with field BGP = '&{<nil>    }' (Spec.BGP should not be empty)]\n",
    ),
    case(&["create", "-f", "-"]).reads(of!("HostEndpoint", "h", "{node: x}")).fails(
        "failed to create 'HostEndpoint' resource: [error with field spec (at least one of interfaceName or expectedIPs must \
         be specified)]\n",
    ),
    case(&["create", "-f", "-"]).reads(of!("GlobalNetworkPolicy", "g", "{tier: nope}")).fails(
        "failed to create 'GlobalNetworkPolicy' resource: [resource does not exist: Tier(nope) with error: <nil>]\n",
    ),
    case(&["create", "-f", "-"])
        .reads(of!("GlobalNetworkPolicy", "g", "{ingress: [{action: Allow, source: {nets: [10.0.0.1]}}]}"))
        .fails("failed to create 'GlobalNetworkPolicy' resource: [error with field Source.Nets = '10.0.0.1' (invalid CIDR)]\n"),
    case(&["create", "-f", "-"])
        .reads(of!("GlobalNetworkPolicy", "g", "{ingress: [{action: Allow, protocol: tcp}]}"))
        .fails("failed to create 'GlobalNetworkPolicy' resource: [error with field Protocol = 'tcp' (protocol name invalid)]\n"),
    case(&["create", "-f", "-"])
        .reads(of!("GlobalNetworkPolicy", "g", "{ingress: [{action: Allow, destination: {ports: [80]}}]}"))
        .fails(
            "failed to create 'GlobalNetworkPolicy' resource: [error with field Destination.Ports = '[80]' (rules with numeric \
             port or port range must set protocol to TCP or UDP or SCTP)]\n",
        ),
    case(&["create", "-f", "-"]).reads(of!("GlobalNetworkPolicy", "g", "{selector: foo =}")).fails(
        "failed to create 'GlobalNetworkPolicy' resource: [error with field Selector = 'foo =' (Reason: failed to validate \
         Field: Selector because of Tag: selector )]\n",
    ),
    case(&["create", "-f", "-"])
        .reads(of!("GlobalNetworkPolicy", "g", "{order: 1, doNotTrack: true, preDNAT: true}"))
        .fails(
            "failed to create 'GlobalNetworkPolicy' resource: [error with the following fields:\n-  spec (preDNAT and doNotTrack \
             cannot both be true)\n-  spec (applyOnForward must be true if either preDNAT or doNotTrack is true)\n]\n",
        ),
    case(&["create", "-f", "-"]).reads(of!("Tier", "default", "{order: 5}")).fails(
        "failed to create 'Tier' resource: [error with field Tier (default tier order must be 1000000)]\n",
    ),
    case(&["apply", "-f", "-"]).reads(of!("ClusterInformation", "default", "{}")).fails(
        "failed to apply 'ClusterInformation' resource: [operation apply is not supported on ClusterInformation: resource is \
         readonly]\n",
    ),
    case(&["create", "-f", "-"]).reads(of!("Profile", "projectcalico-default-allow", "{}")).fails(
        "failed to create 'Profile' resource: [resource already exists: projectcalico-default-allow with error: \
         projectcalico-default-allow already exists. The profile \"projectcalico-default-allow\" is default provided by \
         Calico]\n",
    ),
];

#[test]
fn broken_rules_are_told_as_calicoctl_tells_them() {
    if !machine_has_own_config("broken_rules_are_told_as_calicoctl_tells_them") {
        check(&Desk::on_sqlite(), INVALID);
    }
}

/// By its name, by kubectl's, and by the environment; and not otherwise.
#[test]
fn the_mode_is_on_where_it_is_asked_for() {
    let desk = Desk::on_sqlite();
    let said = |ran: crate::harness::Ran| (ran.code, ran.stderr);
    let strict = (Some(1), "unknown flag: --foo\n".to_owned());
    assert_eq!(said(finish(calicoctl(&desk).args(["get", "--foo"]))), strict);
    let link = desk.folder.path().join("kubectl-calico");
    std::os::unix::fs::symlink(PLUMB, &link).unwrap();
    assert_eq!(said(finish(desk.command(&link).args(["get", "--foo"]))), strict);
    let with =
        |value: &str| said(finish(desk.command(PLUMB).env("PLUMB_COMPAT", value).args(["get", "--foo"])));
    assert_eq!(with("calicoctl"), strict);
    let (code, text) = with("");
    assert!(code == Some(2) && text.starts_with("error: unexpected argument"), "{text}");
    let (code, text) = with("kubectl");
    assert!(code == Some(2) && text.contains("PLUMB_COMPAT=kubectl is not known"), "{text}");
    let off = said(finish(calicoctl(&desk).env("PLUMB_COMPAT", "plumb").args(["get", "--foo"])));
    assert_eq!(off.0, Some(2));
}
