//! Commits of stores without transactions.

use crate::{Change, Committed, Revision, StoreError};

/// Makes the changes in their order and stops at the first that fails, saying how far it came.
pub(crate) async fn one_by_one<Made>(
    changes: Vec<Change>,
    step: impl Fn(Change) -> Made,
) -> Result<Committed, StoreError>
where
    Made: Future<Output = Result<Revision, StoreError>>,
{
    let mut revisions = Vec::with_capacity(changes.len());
    for change in changes {
        match step(change).await {
            Ok(revision) => revisions.push(revision),
            Err(error) if revisions.is_empty() => return Err(error),
            Err(error) => {
                let done = Committed { revisions };
                return Err(StoreError::Stopped { done, source: Box::new(error) });
            }
        }
    }
    Ok(Committed { revisions })
}
