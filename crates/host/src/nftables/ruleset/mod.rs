//! [`policy::ruleset`] in the kernel: its changes as a transaction, and what the kernel holds as a ruleset.

mod lift;
mod lower;
mod member;
mod meta;

use policy::ruleset::{self, Name, Ruleset};

use super::object::Step;
use super::{Nftables, RefusedChange, TransactionError};
use crate::HostError;

/// A table as the kernel has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadBack {
    pub ruleset: Ruleset,
    /// Of all rules of the namespace, when this was read.
    pub generation: u32,
    /// What is in the tables and cannot be in a ruleset of ours, in words. Such a table is to be made again as a whole.
    pub strange: Vec<String>,
}

/// Why a difference is not in the kernel.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// Since the generation that the caller knows, somebody changed some rules.
    #[error("the nftables rules of this node changed in between")]
    Moved,
    /// The positions are those of the changes that were given, and the first one is the cause.
    #[error("the kernel refused to {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Refused(Vec<RefusedChange>),
    #[error(transparent)]
    Host(#[from] HostError),
}

impl Nftables {
    /// Applies all changes in one step. With a generation, only if the kernel still has that one.
    pub fn change(&mut self, changes: &[ruleset::Change], generation: Option<u32>) -> Result<(), ApplyError> {
        let mut steps = Vec::new();
        let mut origins = Vec::new();
        for (position, change) in changes.iter().enumerate() {
            lower::steps(change, |change| {
                steps.push(Step { table: change_table(changes, position), change });
                origins.push(position);
            });
        }
        self.apply(&steps, generation).map_err(|error| match error {
            TransactionError::Moved => ApplyError::Moved,
            TransactionError::Host(error) => ApplyError::Host(error),
            TransactionError::Refused(refused) => {
                let origin = |position: usize| origins.get(position).copied();
                let refused = refused
                    .into_iter()
                    .map(|refused| RefusedChange { position: refused.position.and_then(origin), ..refused });
                ApplyError::Refused(refused.collect())
            }
        })
    }

    /// These tables as the kernel has them. One that is not there is not in the ruleset either.
    pub fn read_back(&mut self, tables: &[Name]) -> Result<ReadBack, HostError> {
        let mut found = ReadBack::default();
        for name in tables {
            let Some(listed) = self.list(name)? else { continue };
            let lifted = lift::table(&listed);
            found.strange.extend(lifted.strange.into_iter().map(|words| format!("table {name}: {words}")));
            found.ruleset.tables.insert(name.clone(), lifted.table);
        }
        found.generation = self.generation()?;
        Ok(found)
    }
}

fn change_table(changes: &[ruleset::Change], position: usize) -> String {
    changes.get(position).map(|change| change.table().to_string()).unwrap_or_default()
}
