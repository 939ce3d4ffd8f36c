//! Policies, staged and enforced; tiers, profiles, network sets.

use super::metadata::{CONDITIONS, document};
use super::table::{
    Field, List, Object, Type, either, field, flag, int, list, map, named_number, object, one_of, sub, text,
    text_of,
};
use crate::validate::formats;

const SELECTOR: Type = Type::Sized(0, 1024, formats::selector);

pub(super) static NETWORK_POLICY: Object = document(&[sub("spec", &POLICY).written()]);
pub(super) static GLOBAL_NETWORK_POLICY: Object = document(&[sub("spec", &GLOBAL_POLICY).written()]);
pub(super) static STAGED_NETWORK_POLICY: Object =
    document(&[sub("spec", &object(&[STAGED_ACTION]).besides(&POLICY)).written()]);
pub(super) static STAGED_GLOBAL_NETWORK_POLICY: Object =
    document(&[sub("spec", &object(&[STAGED_ACTION]).besides(&GLOBAL_POLICY)).written()]);

/// What every policy of Calico's own kinds has.
static POLICY: Object = object(&[
    text_of("tier", formats::name),
    ORDER,
    list("ingress", &RULES),
    list("egress", &RULES),
    field("selector", SELECTOR),
    list("types", &TYPES),
    field("serviceAccountSelector", SELECTOR),
    list("performanceHints", &List::set(Type::OneOf(&["AssumeNeededOnEveryNode"]))),
]);

static GLOBAL_POLICY: Object = object(&[
    flag("doNotTrack").dropped(),
    flag("preDNAT").dropped(),
    flag("applyOnForward").dropped(),
    field("namespaceSelector", SELECTOR),
])
.besides(&POLICY);

const STAGED_ACTION: Field = one_of("stagedAction", &["Set", "Delete", "Learn", "Ignore"]);
const ORDER: Field = field("order", Type::Float);

static TYPES: List = List::set(Type::OneOf(&["Ingress", "Egress"])).min(1).max(2);
static RULES: List = List::of(Type::Object(&RULE)).max(1024);

static RULE: Object = object(&[
    one_of("action", &["Allow", "Deny", "Log", "Pass"]).required(),
    field("ipVersion", Type::Int(4, 6)),
    named_number("protocol", formats::protocol),
    sub("icmp", &ICMP),
    named_number("notProtocol", formats::protocol),
    sub("notICMP", &ICMP),
    sub("source", &ENTITY).dropped(),
    sub("destination", &ENTITY).dropped(),
    sub("http", &HTTP),
    sub("metadata", &object(&[map("annotations", &Type::Text)])),
]);

static ICMP: Object = object(&[int("type", 0, 254), int("code", 0, 255)]);

static ENTITY: Object = object(&[
    list("nets", &List::set(Type::TextOf(formats::network)).max(256)),
    field("selector", SELECTOR),
    field("namespaceSelector", SELECTOR),
    sub("services", &SERVICE),
    list("ports", &List::of(Type::Port).max(50)),
    list("notNets", &List::set(Type::TextOf(formats::network)).max(256)),
    field("notSelector", SELECTOR),
    list("notPorts", &List::of(Type::Port).max(50)),
    sub("serviceAccounts", &SERVICE_ACCOUNTS),
]);

static SERVICE: Object = object(&[
    field("name", Type::Sized(0, 253, formats::name)),
    field("namespace", Type::Sized(0, 253, formats::name)),
]);

static SERVICE_ACCOUNTS: Object =
    object(&[list("names", &List::set(Type::Text)), text_of("selector", formats::selector)]);

static HTTP: Object = object(&[
    list("methods", &List::set(Type::Text).max(20)),
    list("paths", &List::of(Type::Object(&HTTP_PATH)).max(20)),
]);

static HTTP_PATH: Object = object(&[
    field("exact", Type::Sized(0, 1024, formats::http_path)),
    field("prefix", Type::Sized(0, 1024, formats::http_path)),
]);

pub(super) static PROFILE: Object = document(&[sub(
    "spec",
    &object(&[
        list("ingress", &List::of(Type::Object(&RULE))),
        list("egress", &List::of(Type::Object(&RULE))),
        map("labelsToApply", &Type::TextOf(formats::label_value)),
    ]),
)
.written()]);

pub(super) static TIER: Object = document(&[
    sub("spec", &object(&[ORDER, one_of("defaultAction", &["Pass", "Deny"]).kept()])).written(),
    sub("status", &object(&[list("conditions", &CONDITIONS)])).written(),
]);

/// NetworkSet and GlobalNetworkSet alike.
pub(super) static NETWORK_SET: Object =
    document(&[
        sub("spec", &object(&[list("nets", &List::set(Type::TextOf(formats::cidr_or_ip)))])).written()
    ]);

pub(super) static STAGED_KUBERNETES_NETWORK_POLICY: Object = document(&[sub(
    "spec",
    &object(&[
        STAGED_ACTION,
        sub("podSelector", &LABEL_SELECTOR).written(),
        list("ingress", &List::of(Type::Object(&KUBERNETES_INGRESS))),
        list("egress", &List::of(Type::Object(&KUBERNETES_EGRESS))),
        list("policyTypes", &TYPES),
    ]),
)
.written()]);

static KUBERNETES_INGRESS: Object = object(&[
    list("ports", &List::of(Type::Object(&KUBERNETES_PORT))),
    list("from", &List::of(Type::Object(&KUBERNETES_PEER))),
]);

static KUBERNETES_EGRESS: Object = object(&[
    list("ports", &List::of(Type::Object(&KUBERNETES_PORT))),
    list("to", &List::of(Type::Object(&KUBERNETES_PEER))),
]);

static KUBERNETES_PORT: Object = object(&[
    one_of("protocol", &["TCP", "UDP", "SCTP"]),
    either("port", formats::kubernetes_port),
    int("endPort", 1, 65535),
]);

static KUBERNETES_PEER: Object = object(&[
    sub("podSelector", &LABEL_SELECTOR),
    sub("namespaceSelector", &LABEL_SELECTOR),
    sub("ipBlock", &IP_BLOCK),
]);

static IP_BLOCK: Object = object(&[
    text_of("cidr", formats::cidr).required(),
    list("except", &List::of(Type::TextOf(formats::cidr))),
]);

static LABEL_SELECTOR: Object = object(&[
    map("matchLabels", &Type::TextOf(formats::label_value)),
    list("matchExpressions", &List::of(Type::Object(&LABEL_EXPRESSION))),
]);

static LABEL_EXPRESSION: Object = object(&[
    text("key").required(),
    one_of("operator", &["In", "NotIn", "Exists", "DoesNotExist"]).required(),
    list("values", &List::of(Type::Text)),
]);
