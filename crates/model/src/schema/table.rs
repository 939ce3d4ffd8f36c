//! The words that the tables are written in.

use serde_json::Value;

/// Says which rule a text breaks.
pub type Check = fn(&str) -> Result<(), String>;
/// The same for a value that may be a number or a text.
pub type EitherCheck = fn(&Value) -> Result<(), String>;

#[derive(Clone, Copy, Debug)]
pub enum Type {
    /// Any text.
    Text,
    /// A text that passes a check.
    TextOf(Check),
    /// A span of time that passes a check. Stored as Go spells it: `90s` is `1m30s`.
    Duration(Check),
    /// A text of at least and at most so many bytes that passes a check.
    Sized(usize, usize, Check),
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// One of these words, in any mixture of upper and lower case.
    OneOfAnyCase(&'static [&'static str]),
    Bool,
    /// A whole number in this range.
    Int(i64, i64),
    /// A whole number that may need all 64 bits, such as a sequence number.
    Counter,
    /// A number with or without fraction.
    Float,
    /// A number or a text.
    Either(EitherCheck),
    /// A number up to 255, or a text that may be a name for one: protocols, DSCP marks. Digits are stored as a number.
    NamedNumber(EitherCheck),
    /// A number, or two joined by a dot, or either as text. Stored as one number.
    AsNumber,
    /// A port, a range such as `80:90`, or a port's name. A single port is stored as a number.
    Port,
    List(&'static List),
    /// Keys of the author's choice, values of one type.
    Map(&'static Type),
    Object(&'static Object),
    /// A value that may also be null, which is then kept.
    Nullable(&'static Type),
    /// Whatever it is.
    Any,
}

#[derive(Clone, Copy, Debug)]
pub struct List {
    pub item: Type,
    pub items_min: usize,
    pub items_max: usize,
    /// No item may stand there twice.
    pub unique: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Object {
    own: &'static [Field],
    /// What it has in common with others.
    base: Option<&'static Object>,
}

#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub name: &'static str,
    pub ty: Type,
    pub required: bool,
    pub zero: Zero,
}

/// What Calico's types make of a field that holds the zero of its type: an empty text, false, 0, an empty list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zero {
    /// It counts as absent and is not stored.
    Dropped,
    /// It is a value like any other.
    Kept,
    /// The field is written in any case, with its zero if it holds nothing else.
    Written,
}

impl Object {
    pub fn fields(&self) -> impl Iterator<Item = &'static Field> {
        std::iter::successors(Some(*self), |object| object.base.copied()).flat_map(|object| object.own)
    }

    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields().find(|field| field.name == name)
    }

    /// The same in any mixture of upper and lower case, as Go's JSON reader matches names; the exact one wins.
    pub fn field_in_any_case(&self, name: &str) -> Option<&'static Field> {
        self.field(name).or_else(|| self.fields().find(|field| field.name.eq_ignore_ascii_case(name)))
    }

    /// With the fields of another one.
    pub(super) const fn besides(self, base: &'static Object) -> Object {
        Object { base: Some(base), ..self }
    }
}

impl Field {
    /// An empty list is there: Calico writes required lists in any case, such as those of an empty block.
    pub(super) const fn required(self) -> Field {
        let zero = match self.ty {
            Type::List(_) => Zero::Kept,
            _ => self.zero,
        };
        Field { required: true, zero, ..self }
    }

    pub(super) const fn dropped(self) -> Field {
        Field { zero: Zero::Dropped, ..self }
    }

    pub(super) const fn kept(self) -> Field {
        Field { zero: Zero::Kept, ..self }
    }

    pub(super) const fn written(self) -> Field {
        Field { zero: Zero::Written, ..self }
    }
}

impl List {
    pub(super) const fn of(item: Type) -> List {
        List { item, items_min: 0, items_max: usize::MAX, unique: false }
    }

    pub(super) const fn set(item: Type) -> List {
        List { unique: true, ..List::of(item) }
    }

    pub(super) const fn min(self, items_min: usize) -> List {
        List { items_min, ..self }
    }

    pub(super) const fn max(self, items_max: usize) -> List {
        List { items_max, ..self }
    }
}

pub(super) const fn object(fields: &'static [Field]) -> Object {
    Object { own: fields, base: None }
}

/// Texts, lists and maps are plain values in most of Calico's types, and so dropped if empty; all else are pointers.
pub(super) const fn field(name: &'static str, ty: Type) -> Field {
    let zero = match ty {
        Type::Text
        | Type::TextOf(_)
        | Type::Sized(..)
        | Type::OneOf(_)
        | Type::OneOfAnyCase(_)
        | Type::List(_)
        | Type::Map(_) => Zero::Dropped,
        _ => Zero::Kept,
    };
    Field { name, ty, required: false, zero }
}

pub(super) const fn text(name: &'static str) -> Field {
    field(name, Type::Text)
}

pub(super) const fn text_of(name: &'static str, check: Check) -> Field {
    field(name, Type::TextOf(check))
}

pub(super) const fn duration(name: &'static str, check: Check) -> Field {
    field(name, Type::Duration(check))
}

pub(super) const fn one_of(name: &'static str, words: &'static [&'static str]) -> Field {
    field(name, Type::OneOf(words))
}

pub(super) const fn any_case(name: &'static str, words: &'static [&'static str]) -> Field {
    field(name, Type::OneOfAnyCase(words))
}

pub(super) const fn flag(name: &'static str) -> Field {
    field(name, Type::Bool)
}

pub(super) const fn int(name: &'static str, min: i64, max: i64) -> Field {
    field(name, Type::Int(min, max))
}

/// A whole number without limits of its own.
pub(super) const fn number(name: &'static str) -> Field {
    int(name, i64::MIN, i64::MAX)
}

pub(super) const fn list(name: &'static str, list: &'static List) -> Field {
    field(name, Type::List(list))
}

pub(super) const fn sub(name: &'static str, object: &'static Object) -> Field {
    field(name, Type::Object(object))
}

pub(super) const fn map(name: &'static str, values: &'static Type) -> Field {
    field(name, Type::Map(values))
}

pub(super) const fn named_number(name: &'static str, check: EitherCheck) -> Field {
    field(name, Type::NamedNumber(check))
}

pub(super) const fn either(name: &'static str, check: EitherCheck) -> Field {
    field(name, Type::Either(check))
}
