//! ClusterInformation, KubeControllersConfiguration and CalicoNodeStatus.

use super::metadata::document;
use super::table::{
    List, Object, Type, duration, field, flag, int, list, map, number, object, one_of, sub, text, text_of,
};
use crate::validate::formats;

pub(super) static INFORMATION: Object = document(&[sub("spec", &INFORMATION_SPEC).written()]);

static INFORMATION_SPEC: Object = object(&[
    text("clusterGUID"),
    text("clusterType"),
    text("calicoVersion"),
    flag("datastoreReady"),
    text("variant"),
]);

pub(super) static CONTROLLERS: Object =
    document(&[sub("spec", &CONTROLLERS_SPEC).written(), sub("status", &CONTROLLERS_STATUS).written()]);

static CONTROLLERS_SPEC: Object = object(&[
    one_of("logSeverityScreen", &["None", "Debug", "Info", "Warning", "Error", "Fatal", "Panic"]),
    one_of("healthChecks", MODES),
    duration("etcdV3CompactionPeriod", formats::duration),
    int("prometheusMetricsPort", 0, 65535),
    sub("controllers", &CONTROLLER_SET).written().required(),
    int("debugProfilePort", 0, 65535),
]);

const MODES: &[&str] = &["Enabled", "Disabled"];

static CONTROLLER_SET: Object = object(&[
    sub("node", &NODE_CONTROLLER),
    sub("policy", &PERIODIC_CONTROLLER),
    sub("workloadEndpoint", &PERIODIC_CONTROLLER),
    sub("serviceAccount", &PERIODIC_CONTROLLER),
    sub("namespace", &PERIODIC_CONTROLLER),
    sub("loadBalancer", &LOAD_BALANCER_CONTROLLER),
    sub("migration", &MIGRATION_CONTROLLER),
    // v3.32 called it so.
    sub("policyMigration", &POLICY_MIGRATION_CONTROLLER),
]);

static NODE_CONTROLLER: Object = object(&[
    duration("reconcilerPeriod", formats::duration),
    one_of("syncLabels", MODES),
    sub("hostEndpoint", &AUTO_HOST_ENDPOINT),
    duration("leakGracePeriod", formats::duration),
]);

static AUTO_HOST_ENDPOINT: Object = object(&[
    one_of("autoCreate", MODES),
    one_of("createDefaultHostEndpoint", MODES),
    list("templates", &List::of(Type::Object(&HOST_ENDPOINT_TEMPLATE))),
]);

static HOST_ENDPOINT_TEMPLATE: Object = object(&[
    field("generateName", Type::Sized(0, 253, formats::name)).required(),
    list("interfaceCIDRs", &List::set(Type::TextOf(formats::cidr_or_ip))),
    text_of("interfacePattern", formats::regular_expression),
    map("labels", &Type::TextOf(formats::label_value)),
    map("annotations", &Type::Text),
    text_of("nodeSelector", formats::selector),
]);

static PERIODIC_CONTROLLER: Object = object(&[duration("reconcilerPeriod", formats::duration)]);
static LOAD_BALANCER_CONTROLLER: Object =
    object(&[one_of("assignIPs", &["AllServices", "RequestedServicesOnly"])]);
static MIGRATION_CONTROLLER: Object = object(&[one_of("policyNameMigrator", MODES)]);
static POLICY_MIGRATION_CONTROLLER: Object = object(&[one_of("enabled", MODES)]);

static CONTROLLERS_STATUS: Object =
    object(&[sub("runningConfig", &CONTROLLERS_SPEC), map("environmentVars", &Type::Text)]);

pub(super) static NODE_STATUS: Object =
    document(&[sub("spec", &NODE_STATUS_SPEC).written(), sub("status", &NODE_STATUS_STATUS).written()]);

static NODE_STATUS_SPEC: Object = object(&[
    text_of("node", formats::name).required(),
    list("classes", &List::set(Type::OneOf(&["Agent", "BGP", "Routes"]))).required(),
    int("updatePeriodSeconds", 0, 86400).required(),
]);

static NODE_STATUS_STATUS: Object = object(&[
    text("lastUpdated"),
    sub("agent", &AGENT_STATUS).written(),
    sub("bgp", &BGP_STATUS).written(),
    sub("routes", &ROUTES_STATUS).written(),
]);

static AGENT_STATUS: Object =
    object(&[sub("birdV4", &DAEMON_STATUS).written(), sub("birdV6", &DAEMON_STATUS).written()]);

static DAEMON_STATUS: Object = object(&[
    one_of("state", &["Ready", "NotReady"]),
    text("version"),
    text("routerID"),
    text("lastBootTime"),
    text("lastReconfigurationTime"),
]);

static BGP_STATUS: Object = object(&[
    number("numberEstablishedV4").written().required(),
    number("numberNotEstablishedV4").written().required(),
    number("numberEstablishedV6").written().required(),
    number("numberNotEstablishedV6").written().required(),
    list("peersV4", &List::of(Type::Object(&PEER_STATUS))),
    list("peersV6", &List::of(Type::Object(&PEER_STATUS))),
]);

static PEER_STATUS: Object = object(&[
    text_of("peerIP", formats::ip),
    one_of("type", &["NodeMesh", "NodePeer", "GlobalPeer"]),
    one_of("state", &["Idle", "Connect", "Active", "OpenSent", "OpenConfirm", "Established", "Close"]),
    text("since"),
]);

static ROUTES_STATUS: Object = object(&[
    list("routesV4", &List::of(Type::Object(&ROUTE_STATUS))),
    list("routesV6", &List::of(Type::Object(&ROUTE_STATUS))),
]);

static ROUTE_STATUS: Object = object(&[
    one_of("type", &["FIB", "RIB"]),
    text("destination"),
    text("gateway"),
    text("interface"),
    sub("learnedFrom", &LEARNED_FROM).written(),
]);

static LEARNED_FROM: Object = object(&[
    one_of("sourceType", &["Kernel", "Static", "Direct", "NodeMesh", "BGPPeer"]),
    text_of("peerIP", formats::ip),
]);
