//! What a resource names must be there: the tier of a new policy, the filters of a peer.

use model::Resource;
use model::validate::{Reference, Violation, references, refuse_deletion};
use store::StoreError;

use super::{Prepared, Writer};
use crate::failure::Failure;
use crate::reader;
use crate::report::Verb;
use crate::scope::Named;

/// Everything that these resources name and that neither is stored nor will be by the same command.
pub(super) async fn missing(
    writer: &Writer,
    prepared: &[Prepared],
    verb: Verb,
) -> Result<Vec<Failure>, Failure> {
    let mut failures = Vec::new();
    for one in prepared {
        // Nothing is asked of the store for the many resources that name nothing.
        if references(&one.resource, true).is_empty() {
            continue;
        }
        let is_new = match verb {
            Verb::Apply => reader::find(&writer.store, &Named::of(&one.resource)).await?.is_none(),
            verb => verb == Verb::Create,
        };
        failures.extend(one.failures(writer.missing_references(&one.resource, is_new).await?));
    }
    Ok(failures)
}

impl Writer {
    /// What a resource names and is not there.
    pub(super) async fn missing_references(
        &self,
        resource: &Resource,
        is_new: bool,
    ) -> Result<Vec<Violation>, StoreError> {
        let mut violations = Vec::new();
        for reference in references(resource, is_new) {
            if !self.is_there(&reference).await? {
                violations.push(reference.missing());
            }
        }
        Ok(violations)
    }

    async fn is_there(&self, reference: &Reference) -> Result<bool, StoreError> {
        // What may never be deleted is always there, or will be with the first write.
        Ok(refuse_deletion(&reference.key).is_some()
            || self.coming.borrow().contains(&reference.key)
            || self.store.get(&reference.key).await?.is_some())
    }
}
