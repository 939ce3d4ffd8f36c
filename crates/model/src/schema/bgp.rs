//! BGPConfiguration, BGPPeer and BGPFilter.

use super::metadata::document;
use super::table::{
    List, Object, Type, any_case, duration, field, flag, int, list, object, one_of, sub, text, text_of,
};
use crate::validate::formats;

/// Priorities of routes, as the kernel has them, without the two that mean something else.
const PRIORITY_MAX: i64 = 2_147_483_646;

pub(super) static CONFIGURATION: Object = document(&[sub("spec", &CONFIGURATION_SPEC).written()]);

static CONFIGURATION_SPEC: Object = object(&[
    any_case("logSeverityScreen", &["Trace", "Debug", "Info", "Warning", "Error", "Fatal"]),
    flag("nodeToNodeMeshEnabled"),
    field("asNumber", Type::AsNumber),
    list("serviceLoadBalancerIPs", &SERVICE_NETWORKS),
    list("serviceExternalIPs", &SERVICE_NETWORKS),
    list("serviceClusterIPs", &SERVICE_NETWORKS),
    one_of("serviceLoadBalancerAggregation", &["Enabled", "Disabled"]).kept(),
    list("communities", &List::of(Type::Object(&COMMUNITY)).max(500)),
    list("prefixAdvertisements", &List::of(Type::Object(&PREFIX_ADVERTISEMENT)).max(500)),
    int("listenPort", 1, 65535).dropped(),
    sub("nodeMeshPassword", &PASSWORD),
    duration("nodeMeshMaxRestartTime", formats::duration),
    one_of("bindMode", &["None", "NodeIP"]).kept(),
    list("ignoredInterfaces", &List::set(Type::TextOf(formats::ignored_interface))),
    text_of("localWorkloadPeeringIPV4", formats::ip_v4),
    text_of("localWorkloadPeeringIPV6", formats::ip_v6),
    one_of("programClusterRoutes", &["Enabled", "Disabled", "EnabledIPIPOnly", "EnabledNoEncapOnly"]).kept(),
    int("ipv4NormalRoutePriority", 1, PRIORITY_MAX),
    int("ipv6NormalRoutePriority", 1, PRIORITY_MAX),
]);

static SERVICE_NETWORKS: List = List::of(Type::Object(&SERVICE_NETWORK));

static SERVICE_NETWORK: Object = object(&[text_of("cidr", formats::cidr_masked)]);

static COMMUNITY: Object = object(&[
    field("name", Type::Sized(0, 253, formats::name)).required(),
    field("value", Type::Sized(0, 40, formats::community)).required(),
]);

static PREFIX_ADVERTISEMENT: Object = object(&[
    text_of("cidr", formats::cidr_masked).required(),
    // Each is a community or the name of one; that a name is defined is a rule over two fields.
    list("communities", &List::of(Type::Text).max(50)).required(),
]);

static PASSWORD: Object = object(&[sub("secretKeyRef", &SECRET_KEY)]);

static SECRET_KEY: Object = object(&[text("name"), text("key").required(), flag("optional")]);

pub(super) static PEER: Object = document(&[sub("spec", &PEER_SPEC).written()]);

static PEER_SPEC: Object = object(&[
    field("node", Type::Sized(0, 253, formats::name)),
    field("nodeSelector", Type::Sized(0, 1024, formats::selector)),
    field("peerIP", Type::Sized(0, 64, formats::ip_with_port)),
    field("asNumber", Type::AsNumber).dropped(),
    field("localASNumber", Type::AsNumber),
    field("peerSelector", Type::Sized(0, 1024, formats::selector)),
    flag("keepOriginalNextHop").dropped(),
    one_of("nextHopMode", &["Auto", "Self", "Keep"]).kept(),
    sub("password", &PASSWORD),
    one_of("sourceAddress", &["UseNodeIP", "None"]),
    duration("maxRestartTime", formats::duration),
    duration("keepaliveTime", formats::duration),
    int("numAllowedLocalASNumbers", i32::MIN as i64, i32::MAX as i64),
    int("ttlSecurity", 0, 255),
    field("reachableBy", Type::Sized(0, 64, formats::ip)),
    list("filters", &List::of(Type::TextOf(formats::name))),
    field("localWorkloadSelector", Type::Sized(0, 1024, formats::selector)),
    one_of("reversePeering", &["Auto", "Manual"]).kept(),
]);

pub(super) static FILTER: Object = document(&[sub("spec", &FILTER_SPEC).written()]);

static FILTER_SPEC: Object = object(&[
    list("exportV4", &RULES_V4),
    list("importV4", &RULES_V4),
    list("exportV6", &RULES_V6),
    list("importV6", &RULES_V6),
]);

static RULES_V4: List = List::of(Type::Object(&RULE_V4));
static RULES_V6: List = List::of(Type::Object(&RULE_V6));

static RULE_V4: Object = object(&[
    field("cidr", Type::Sized(0, 18, formats::cidr_masked_v4)),
    sub("prefixLength", &PREFIX_LENGTH_V4),
])
.besides(&RULE);

static RULE_V6: Object = object(&[
    field("cidr", Type::Sized(0, 43, formats::cidr_masked_v6)),
    sub("prefixLength", &PREFIX_LENGTH_V6),
])
.besides(&RULE);

static PREFIX_LENGTH_V4: Object = object(&[int("min", 0, 32), int("max", 0, 32)]);
static PREFIX_LENGTH_V6: Object = object(&[int("min", 0, 128), int("max", 0, 128)]);

static RULE: Object = object(&[
    one_of("source", &["RemotePeers"]),
    field("interface", Type::Sized(0, 15, formats::interface_pattern)),
    one_of("matchOperator", &["Equal", "NotEqual", "In", "NotIn"]),
    one_of("peerType", &["eBGP", "iBGP"]),
    sub("communities", &COMMUNITY_MATCH),
    list("asPathPrefix", &List::of(Type::AsNumber)),
    int("priority", 1, PRIORITY_MAX),
    one_of("action", &["Accept", "Reject"]).required(),
    list("operations", &OPERATIONS),
]);

static OPERATIONS: List = List::of(Type::Object(&OPERATION)).min(1).max(10);

static COMMUNITY_MATCH: Object =
    object(&[list("values", &List::of(Type::Sized(0, 32, formats::community)).min(1).max(1)).required()]);

static OPERATION: Object = object(&[
    sub("addCommunity", &ADD_COMMUNITY),
    sub("prependASPath", &PREPEND_AS_PATH),
    sub("setPriority", &SET_PRIORITY),
]);

static ADD_COMMUNITY: Object = object(&[field("value", Type::Sized(0, 32, formats::community)).required()]);
static PREPEND_AS_PATH: Object =
    object(&[list("prefix", &List::of(Type::AsNumber).min(1).max(10)).required()]);
static SET_PRIORITY: Object = object(&[int("value", 1, PRIORITY_MAX).required()]);
