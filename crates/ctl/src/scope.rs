//! What the words of a command line mean: kinds, names, namespaces.

use std::fmt;

use model::ipam::CONFIG_NAME;
use model::{Key, Kind, Resource};

use crate::cli::Subject;
use crate::failure::Failure;

pub(crate) const DEFAULT_NAMESPACE: &str = "default";

/// The kind an operator means by a word.
pub(crate) fn kind(word: &str) -> Result<Kind, Failure> {
    Kind::from_command_line(word).ok_or_else(|| {
        let kinds: Vec<String> = Kind::all().map(|kind| kind.name().to_ascii_lowercase()).collect();
        Failure::usage(format!("resource type '{word}' is not supported"))
            .hint(format!("use one of {}", kinds.join(", ")))
    })
}

/// The resources a command line names: one kind and its names, or several `kind/name`.
pub(crate) fn subjects(subject: &Subject) -> Result<(Kind, Vec<String>), Failure> {
    let word = subject.kind.as_deref().unwrap_or_default();
    let Some((kind_word, first)) = word.split_once('/') else {
        let kind = kind(word)?;
        subject.names.iter().try_for_each(|name| check_name(kind, name))?;
        return Ok((kind, subject.names.clone()));
    };
    let kind = kind(kind_word)?;
    let mut names = vec![first.to_owned()];
    for other in &subject.names {
        match other.split_once('/') {
            Some((word, name)) if Kind::from_command_line(word) == Some(kind) => names.push(name.to_owned()),
            _ => {
                return Err(Failure::usage(format!(
                    "{other}: expected {kind_word}/NAME, as the first argument"
                )));
            }
        }
    }
    names.iter().try_for_each(|name| check_name(kind, name))?;
    Ok((kind, names))
}

/// Refuses what can be no name at all, in the words of a command line.
pub(crate) fn check_name(kind: Kind, name: &str) -> Result<(), Failure> {
    name_problem(kind, name).map_or(Ok(()), |problem| Err(Failure::usage(problem)))
}

/// What is wrong with a name. A slash would make the key of another record of it.
fn name_problem(kind: Kind, name: &str) -> Option<String> {
    let is_free_text = matches!(kind, Kind::IpamBlock | Kind::BlockAffinity | Kind::IpamHandle);
    if name.is_empty() {
        Some("resource name may not be empty".to_owned())
    } else if !is_free_text && name.contains('/') {
        Some(format!("{name:?} is not a name: it must not contain a slash"))
    } else {
        None
    }
}

/// A resource asked for by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) kind: Kind,
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
}

impl Named {
    pub(crate) fn of(resource: &Resource) -> Named {
        let metadata = &resource.metadata;
        Named { kind: resource.kind, namespace: metadata.namespace.clone(), name: metadata.name.clone() }
    }

    /// Where such a resource is stored, unless its kind has a place of its own.
    pub(crate) fn key(&self) -> Key {
        Key::Resource { kind: self.kind, namespace: self.namespace.clone(), name: self.name.clone() }
    }

    /// That there is no such resource, in calicoctl's words.
    pub(crate) fn missing(&self) -> Failure {
        let failure = Failure::new(format!("resource does not exist: {self}"))
            .in_calicoctl(format!("resource does not exist: {self} with error: <nil>"));
        match self.kind {
            Kind::IpamConfiguration if self.name == CONFIG_NAME => {
                failure.hint("without it the defaults apply: strictAffinity false, autoAllocateBlocks true")
            }
            _ => failure,
        }
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{}({namespace}/{})", self.kind, self.name),
            None => write!(f, "{}({})", self.kind, self.name),
        }
    }
}

/// Where namespaced resources are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Namespace(String),
    AllNamespaces,
    /// Nothing was said.
    Unsaid,
}

impl Scope {
    pub(crate) fn new(namespace: Option<&str>, all_namespaces: bool) -> Result<Scope, Failure> {
        match (namespace, all_namespaces) {
            (Some(_), true) => {
                Err(Failure::usage("cannot use both --namespace and --all-namespaces flags at the same time"))
            }
            (Some(""), false) => Err(Failure::usage("the namespace must not be empty")),
            (Some(name), false) if name.contains('/') => {
                Err(Failure::usage(format!("{name:?} is not a namespace: it must not contain a slash")))
            }
            (Some(name), false) => Ok(Scope::Namespace(name.to_owned())),
            (None, true) => Ok(Scope::AllNamespaces),
            (None, false) => Ok(Scope::Unsaid),
        }
    }

    /// Whether tables begin with the namespace.
    pub(crate) fn is_said(&self) -> bool {
        *self != Scope::Unsaid
    }

    /// The namespace of one resource of a kind, if the kind has any.
    pub(crate) fn of_one(&self, kind: Kind) -> Result<Option<String>, Failure> {
        match (kind.is_namespaced(), self) {
            (true, Scope::Namespace(name)) => Ok(Some(name.clone())),
            (true, Scope::Unsaid) => Ok(Some(DEFAULT_NAMESPACE.to_owned())),
            (true, Scope::AllNamespaces) => {
                Err(Failure::usage("cannot use --all-namespaces flag for getting a single resource")
                    .hint("name the namespace with -n")
                    .in_calicoctl("cannot use --all-namespace flag for getting a single resource"))
            }
            (false, Scope::Unsaid) => Ok(None),
            (false, _) => Err(Failure::usage(format!("{kind} is not namespaced"))),
        }
    }

    pub(crate) fn named(&self, kind: Kind, names: Vec<String>) -> Result<Vec<Named>, Failure> {
        let namespace = self.of_one(kind)?;
        Ok(names.into_iter().map(|name| Named { kind, namespace: namespace.clone(), name }).collect())
    }

    /// Which record a resource of a file means.
    pub(crate) fn record_of(&self, resource: &mut Resource) -> Result<Named, Failure> {
        self.place(resource)?;
        // Endpoints may leave their name to be computed.
        resource.fill_defaults();
        match name_problem(resource.kind, &resource.metadata.name) {
            Some(problem) => Err(Failure::new(problem)),
            None => Ok(Named::of(resource)),
        }
    }

    /// Puts a resource of a file into its namespace.
    pub(crate) fn place(&self, resource: &mut Resource) -> Result<(), Failure> {
        let said = resource.metadata.namespace.take().filter(|namespace| !namespace.is_empty());
        let kind = resource.kind;
        resource.metadata.namespace = match (kind.is_namespaced(), said, self) {
            (false, Some(_), _) => {
                return Err(Failure::new(format!(
                    "namespace should not be specified for a non-namespaced resource. {kind} is not a namespaced \
                     resource"
                )));
            }
            (true, Some(said), Scope::Namespace(wanted)) if said != *wanted => {
                return Err(Failure::new(format!(
                    "resource namespace does not match client namespace. {said} != {wanted}"
                )));
            }
            (true, Some(said), _) => Some(said),
            (_, None, _) => self.of_one(kind)?,
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespaced(namespace: Option<&str>) -> Resource {
        let mut resource = Resource::new(Kind::NetworkSet, "x");
        resource.metadata.namespace = namespace.map(str::to_owned);
        resource
    }

    #[test]
    fn namespaces_are_filled_in_and_contradictions_refused() {
        let shop = Scope::Namespace("shop".into());
        for (scope, said, expected) in [
            (&Scope::Unsaid, None, Some("default")),
            (&Scope::Unsaid, Some("a"), Some("a")),
            (&shop, None, Some("shop")),
            (&shop, Some("shop"), Some("shop")),
            (&shop, Some("other"), None),
        ] {
            let mut resource = namespaced(said);
            let placed = scope.place(&mut resource).ok().and(resource.metadata.namespace.as_deref());
            assert_eq!(placed, expected, "{scope:?} {said:?}");
        }
        let mut pool = Resource::new(Kind::IpPool, "p");
        assert!(Scope::Unsaid.place(&mut pool).is_ok());
        assert!(shop.place(&mut pool).is_err());
        pool.metadata.namespace = Some("shop".into());
        assert!(Scope::Unsaid.place(&mut pool).is_err());
    }

    #[test]
    fn kind_and_name_may_be_one_word() {
        let subject = |words: &[&str]| {
            let names = words[1..].iter().map(|word| (*word).to_owned()).collect();
            subjects(&Subject { kind: Some(words[0].to_owned()), names })
        };
        assert_eq!(subject(&["pool/a", "ippool/b"]).unwrap(), (Kind::IpPool, vec!["a".into(), "b".into()]));
        assert_eq!(subject(&["pool", "a"]).unwrap(), (Kind::IpPool, vec!["a".into()]));
        assert_eq!(subject(&["block", "10.0.0.0/26"]).unwrap().1, ["10.0.0.0/26"]);
        assert!(subject(&["pool/a", "node/b"]).is_err());
        assert!(subject(&["pool", "a/b"]).is_err());
        assert!(subject(&["pool", ""]).is_err());
        assert!(subject(&["pod"]).is_err());
    }
}
