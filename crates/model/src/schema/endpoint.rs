//! WorkloadEndpoint and HostEndpoint.

use super::metadata::document;
use super::table::{List, Object, Type, field, int, list, named_number, object, sub, text_of};
use crate::validate::formats;

pub(super) static WORKLOAD: Object = document(&[sub("spec", &WORKLOAD_SPEC).written()]);

static WORKLOAD_SPEC: Object = object(&[
    text_of("orchestrator", formats::name),
    text_of("workload", formats::name),
    text_of("node", formats::name),
    text_of("containerID", formats::container_id),
    text_of("pod", formats::name),
    text_of("endpoint", formats::name),
    text_of("serviceAccountName", formats::name),
    list("ipNetworks", &List::of(Type::TextOf(formats::single_address))),
    list("ipNATs", &List::of(Type::Object(&NAT))),
    text_of("ipv4Gateway", formats::ip_v4),
    text_of("ipv6Gateway", formats::ip_v6),
    list("profiles", &List::of(Type::TextOf(formats::name))),
    text_of("interfaceName", formats::interface).required(),
    text_of("mac", formats::mac),
    list("ports", &List::of(Type::Object(&WORKLOAD_PORT))),
    list("allowSpoofedSourcePrefixes", &List::of(Type::TextOf(formats::cidr_or_ip))),
    sub("qosControls", &QOS_CONTROLS),
]);

static NAT: Object =
    object(&[text_of("internalIP", formats::ip).required(), text_of("externalIP", formats::ip).required()]);

static WORKLOAD_PORT: Object = object(&[
    text_of("name", formats::port_name),
    named_number("protocol", formats::protocol_with_ports).required(),
    int("port", 1, 65535).required(),
    int("hostPort", 0, 65535).written(),
    text_of("hostIP", formats::network).written(),
]);

/// Zero means "no limit" for each of these.
static QOS_CONTROLS: Object = object(&[
    int("ingressBandwidth", 0, i64::MAX).dropped(),
    int("ingressBurst", 0, i64::MAX).dropped(),
    int("ingressPeakrate", 0, i64::MAX).dropped(),
    int("ingressMinburst", 0, i64::MAX).dropped(),
    int("egressBandwidth", 0, i64::MAX).dropped(),
    int("egressBurst", 0, i64::MAX).dropped(),
    int("egressPeakrate", 0, i64::MAX).dropped(),
    int("egressMinburst", 0, i64::MAX).dropped(),
    int("ingressPacketRate", 0, i64::MAX).dropped(),
    int("ingressPacketBurst", 0, i64::MAX).dropped(),
    int("egressPacketRate", 0, i64::MAX).dropped(),
    int("egressPacketBurst", 0, i64::MAX).dropped(),
    int("ingressMaxConnections", 0, i64::MAX).dropped(),
    int("egressMaxConnections", 0, i64::MAX).dropped(),
    named_number("dscp", formats::dscp),
]);

pub(super) static HOST: Object = document(&[sub("spec", &HOST_SPEC).written()]);

static HOST_SPEC: Object = object(&[
    field("node", Type::Sized(0, 253, formats::name)).required(),
    field("interfaceName", Type::Sized(0, 15, formats::interface_or_all)),
    list("expectedIPs", &List::set(Type::TextOf(formats::ip))),
    list("profiles", &List::set(Type::TextOf(formats::name))),
    list("ports", &List::of(Type::Object(&HOST_PORT))),
]);

static HOST_PORT: Object = object(&[
    text_of("name", formats::port_name).required(),
    named_number("protocol", formats::protocol_with_ports).required(),
    int("port", 1, 65535).required(),
]);
