//! Node.

use super::metadata::document;
use super::table::{List, Object, Type, field, list, object, one_of, sub, text, text_of};
use crate::validate::formats;

pub(super) static NODE: Object =
    document(&[sub("spec", &NODE_SPEC).written(), sub("status", &NODE_STATUS).written()]);

static NODE_SPEC: Object = object(&[
    sub("bgp", &BGP),
    text_of("ipv4VXLANTunnelAddr", formats::ip_v4),
    text_of("vxlanTunnelMACAddr", formats::mac),
    text_of("ipv6VXLANTunnelAddr", formats::ip_v6),
    text_of("vxlanTunnelMACAddrV6", formats::mac),
    list("orchRefs", &List::of(Type::Object(&ORCHESTRATOR_REFERENCE))),
    sub("wireguard", &WIREGUARD),
    list("addresses", &List::of(Type::Object(&ADDRESS))),
    list("interfaces", &List::of(Type::Object(&INTERFACE))),
]);

static BGP: Object = object(&[
    field("asNumber", Type::AsNumber),
    text_of("ipv4Address", formats::cidr_or_ip_v4),
    text_of("ipv6Address", formats::cidr_or_ip_v6),
    text_of("ipv4IPIPTunnelAddr", formats::ip_v4),
    text_of("routeReflectorClusterID", formats::ip_v4),
]);

static ORCHESTRATOR_REFERENCE: Object = object(&[text("nodeName"), text("orchestrator").written()]);

static WIREGUARD: Object = object(&[
    text_of("interfaceIPv4Address", formats::ip_v4),
    text_of("interfaceIPv6Address", formats::ip_v6),
]);

static ADDRESS: Object = object(&[
    text_of("address", formats::cidr_or_ip).required(),
    one_of("type", &["CalicoNodeIP", "InternalIP", "ExternalIP"]),
]);

static INTERFACE: Object = object(&[text("name"), list("addresses", &List::of(Type::Text))]);

static NODE_STATUS: Object = object(&[
    text_of("wireguardPublicKey", formats::wireguard_key),
    text_of("wireguardPublicKeyV6", formats::wireguard_key),
    list("podCIDRs", &List::of(Type::Text)),
]);
