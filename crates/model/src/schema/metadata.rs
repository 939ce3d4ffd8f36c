//! What every document has: its type, and object metadata as Kubernetes defines it.

use super::table::{Field, List, Object, Type, field, flag, int, list, map, object, sub, text};

/// A whole document: what every one has, and these.
pub(super) const fn document(fields: &'static [Field]) -> Object {
    object(fields).besides(&EVERY_DOCUMENT)
}

static EVERY_DOCUMENT: Object = object(&[text("apiVersion"), text("kind"), sub("metadata", &OBJECT_META)]);

static OBJECT_META: Object = object(&[
    text("name"),
    text("generateName"),
    text("namespace"),
    text("selfLink"),
    text("uid"),
    text("resourceVersion"),
    int("generation", 0, i64::MAX),
    text("creationTimestamp"),
    text("deletionTimestamp"),
    int("deletionGracePeriodSeconds", 0, i64::MAX),
    map("labels", &Type::Text),
    map("annotations", &Type::Text),
    list("ownerReferences", &OWNER_REFERENCES),
    list("finalizers", &List::of(Type::Text)),
    field("managedFields", Type::Any),
]);

static OWNER_REFERENCES: List = List::of(Type::Object(&OWNER_REFERENCE));

static OWNER_REFERENCE: Object = object(&[
    text("apiVersion"),
    text("kind"),
    text("name"),
    text("uid"),
    flag("controller"),
    flag("blockOwnerDeletion"),
]);

/// Conditions as Kubernetes' own types have them.
pub(super) static CONDITIONS: List = List::of(Type::Object(&CONDITION));

static CONDITION: Object = object(&[
    text("type").required(),
    field("status", Type::OneOf(&["True", "False", "Unknown"])).required(),
    int("observedGeneration", 0, i64::MAX),
    text("lastTransitionTime").required(),
    text("reason").required(),
    text("message").written(),
]);
