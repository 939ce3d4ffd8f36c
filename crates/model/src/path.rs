//! Where a value stands in a document: `spec.ports[0].name`.

use std::fmt;

/// The way from the top of a document to one value. Grows and shrinks while a document is walked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
}

impl FieldPath {
    pub fn root() -> FieldPath {
        FieldPath::default()
    }

    /// The path of `key` below this one.
    pub fn key(&self, key: &str) -> FieldPath {
        let mut path = self.clone();
        path.push_key(key);
        path
    }

    /// The path of the item at `index` below this one.
    pub fn index(&self, index: usize) -> FieldPath {
        let mut path = self.clone();
        path.push_index(index);
        path
    }

    pub fn push_key(&mut self, key: &str) {
        self.0.push(Step::Key(key.to_owned()));
    }

    pub fn push_index(&mut self, index: usize) {
        self.0.push(Step::Index(index));
    }

    pub fn pop(&mut self) {
        self.0.pop();
    }

    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key) if !is_plain(key) => write!(f, "[{key:?}]")?,
                Step::Key(key) if position == 0 => f.write_str(key)?,
                Step::Key(key) => write!(f, ".{key}")?,
            }
        }
        Ok(())
    }
}

/// Label keys such as `projectcalico.org/namespace` would read as several steps.
fn is_plain(key: &str) -> bool {
    !key.is_empty()
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'<'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_read_like_field_access() {
        let spec = FieldPath::root().key("spec");
        assert_eq!(spec.key("ports").index(0).key("name").to_string(), "spec.ports[0].name");
        let labels = FieldPath::root().key("metadata").key("labels");
        assert_eq!(labels.key("a.b/c").to_string(), r#"metadata.labels["a.b/c"]"#);
        assert_eq!(FieldPath::root().index(2).key("kind").to_string(), "[2].kind");
    }
}
