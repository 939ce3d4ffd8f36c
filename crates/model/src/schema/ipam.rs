//! IPAM's own records as operators see them: IPAMBlock, BlockAffinity, IPAMHandle, IPAMConfiguration.

use super::metadata::document;
use super::table::{List, Object, Type, field, flag, int, list, map, object, one_of, sub, text, text_of};
use crate::validate::formats;

pub(super) static BLOCK: Object = document(&[sub("spec", &BLOCK_SPEC)]);

static BLOCK_SPEC: Object = object(&[
    text_of("cidr", formats::cidr).required(),
    text_of("affinity", formats::affinity),
    text("affinityClaimTime"),
    flag("strictAffinity").required(),
    list("allocations", &List::of(Type::Nullable(&Type::Int(0, i64::MAX)))).required(),
    list("unallocated", &List::of(Type::Int(0, i64::MAX))).required(),
    list("attributes", &List::of(Type::Object(&ATTRIBUTE))).required(),
    field("sequenceNumber", Type::Counter),
    map("sequenceNumberForAllocation", &Type::Counter),
    flag("deleted"),
]);

static ATTRIBUTE: Object = object(&[
    text("handle_id"),
    map("secondary", &Type::Text),
    map("alternateOwnerAttrs", &Type::Text),
    text("releasedAt"),
]);

pub(super) static AFFINITY: Object = document(&[sub("spec", &AFFINITY_SPEC)]);

static AFFINITY_SPEC: Object = object(&[
    one_of("state", &["confirmed", "pending", "pendingDeletion"]).required(),
    text("node").required(),
    text("type"),
    text_of("cidr", formats::cidr).required(),
    flag("deleted"),
]);

pub(super) static HANDLE: Object = document(&[sub("spec", &HANDLE_SPEC)]);

static HANDLE_SPEC: Object =
    object(&[text("handleID").required(), map("block", &Type::Int(0, i64::MAX)).required(), flag("deleted")]);

pub(super) static CONFIGURATION: Object = document(&[sub("spec", &CONFIGURATION_SPEC)]);

static CONFIGURATION_SPEC: Object = object(&[
    flag("strictAffinity"),
    flag("autoAllocateBlocks"),
    int("maxBlocksPerHost", 0, 1_000_000).dropped(),
    one_of("kubeVirtVMAddressPersistence", &["Enabled", "Disabled"]).kept(),
    int("ipCooldownSeconds", 0, 1200).dropped(),
]);
