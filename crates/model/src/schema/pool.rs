//! IPPool and IPReservation.

use super::metadata::{CONDITIONS, document};
use super::table::{List, Object, Type, field, flag, int, list, object, one_of, sub};
use crate::validate::formats;

pub(super) static POOL: Object = document(&[sub("spec", &POOL_SPEC).written(), sub("status", &POOL_STATUS)]);

static POOL_SPEC: Object = object(&[
    field("cidr", Type::Sized(0, 48, formats::cidr_masked)).required(),
    one_of("vxlanMode", ENCAPSULATION),
    one_of("ipipMode", ENCAPSULATION),
    flag("natOutgoing").dropped(),
    flag("disabled").dropped(),
    flag("disableBGPExport").dropped(),
    // Which range applies depends on the network's family: a rule over two fields.
    int("blockSize", 0, i64::MAX).dropped(),
    field("nodeSelector", Type::Sized(0, 1024, formats::selector)),
    field("namespaceSelector", Type::Sized(0, 1024, formats::selector)),
    list("allowedUses", &List::set(Type::OneOf(&["Workload", "Tunnel", "LoadBalancer"])).max(10)),
    one_of("assignmentMode", &["Automatic", "Manual"]).kept(),
]);

const ENCAPSULATION: &[&str] = &["Never", "Always", "CrossSubnet"];

static POOL_STATUS: Object = object(&[list("conditions", &CONDITIONS)]);

pub(super) static RESERVATION: Object = document(&[sub("spec", &RESERVATION_SPEC).written()]);

static RESERVATION_SPEC: Object = object(&[list("reservedCIDRs", &List::set(Type::TextOf(formats::cidr)))]);
