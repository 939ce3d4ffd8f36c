//! What all words that are kept as they were read have in common. The rules of each stand with the word itself.

use std::fmt;
use std::marker::PhantomData;

use serde::de::Visitor;

/// The conversions at the edges of a word: from text and to text, with every value kept as it is. Whoever compares words decides
/// how, so equality, order and hash are not among them.
macro_rules! word {
    ($name:ident, $storage:ty) => {
        impl $name {
            /// As it was read: for printing, for keys and for other programs.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(&*self.0, f)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> $name {
                $name(<$storage>::from(text))
            }
        }

        impl From<&String> for $name {
            fn from(text: &String) -> $name {
                $name::from(text.as_str())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> $name {
                $name(<$storage>::from(text))
            }
        }

        impl From<&$name> for $name {
            fn from(word: &$name) -> $name {
                word.clone()
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                deserializer.deserialize_string(crate::word::Reader(std::marker::PhantomData))
            }
        }
    };
}

/// For words that are the same if their texts are: they can be looked up by, and compared with, a bare text.
macro_rules! plain_word {
    ($name:ident) => {
        crate::word::word!($name, std::sync::Arc<str>);

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, text: &str) -> bool {
                *self.0 == *text
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, text: &&str) -> bool {
                *self.0 == **text
            }
        }

        impl PartialEq<String> for $name {
            fn eq(&self, text: &String) -> bool {
                *self.0 == **text
            }
        }
    };
}

/// Reads a word without a text of its own in between.
pub(crate) struct Reader<W>(pub(crate) PhantomData<W>);

impl<W: for<'a> From<&'a str> + From<String>> Visitor<'_> for Reader<W> {
    type Value = W;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E>(self, text: &str) -> Result<W, E> {
        Ok(W::from(text))
    }

    fn visit_string<E>(self, text: String) -> Result<W, E> {
        Ok(W::from(text))
    }
}

pub(crate) use {plain_word, word};
