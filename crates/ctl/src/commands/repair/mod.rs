//! `plumb repair`: findings become a plan, the plan is shown or done, and can be taken back.

mod apply;
mod look;
mod past;
mod pending;
mod tell;

use std::path::PathBuf;

use repair::{Scope, ScopeError};

use super::doctor::unknown_code;
use crate::cli::Global;
use crate::cli::repair::Repair;
use crate::failure::{Failure, Failures};

/// Where histories are kept unless somebody says otherwise.
const HISTORY: &str = "/var/lib/plumb/repairs";

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Plan(Scope),
    Undo(String),
    Resume(String),
    History,
    Show(String),
}

pub(crate) async fn run(global: &Global, repair: &Repair) -> Result<(), Failures> {
    match asked(&repair.words)? {
        Asked::Plan(scope) if repair.apply => apply::run(global, repair, &scope).await,
        Asked::Plan(scope) => look::show(global, repair, &scope).await,
        Asked::Undo(id) => past::undo(global, repair, &id).await,
        Asked::Resume(id) => apply::resume(global, repair, &id).await,
        Asked::History => past::list(repair),
        Asked::Show(id) => past::show(repair, &id),
    }
}

fn history_folder(repair: &Repair) -> PathBuf {
    repair.history.clone().unwrap_or_else(|| PathBuf::from(HISTORY))
}

fn asked(words: &[String]) -> Result<Asked, Failure> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Ok(match words[..] {
        [] => Asked::Plan(Scope::Everything),
        ["undo", id] => Asked::Undo(id.to_owned()),
        ["resume", id] => Asked::Resume(id.to_owned()),
        ["show", id] => Asked::Show(id.to_owned()),
        ["history"] => Asked::History,
        [verb @ ("undo" | "resume" | "show")] => {
            return Err(Failure::usage(format!(
                "plumb repair {verb} needs the ID of a repair, as plumb repair history lists them"
            )));
        }
        // A plan's file calls it so; on a command line it is the absence of a scope.
        ["everything"] => return Err(refusal(ScopeError::Unknown("everything".to_owned()))),
        _ => Asked::Plan(words.join(" ").parse().map_err(refusal)?),
    })
}

fn refusal(error: ScopeError) -> Failure {
    match error {
        ScopeError::Code(unknown) => unknown_code(&unknown),
        ScopeError::NoNode | ScopeError::NoCode => Failure::usage(error.to_string()),
        ScopeError::Unknown(words) => Failure::usage(format!("unknown scope or subcommand {words:?}"))
            .hint("scopes are ipam, endpoints, node NAME, node NAME gone, finding CODE…; subcommands are undo ID, resume ID, history, show ID"),
    }
}

#[cfg(test)]
mod tests {
    use model::FindingCode;

    use super::*;

    fn understood(text: &str) -> Result<Asked, Failure> {
        asked(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn words_are_scopes_or_what_to_do_with_a_past_repair() {
        assert_eq!(understood("").unwrap(), Asked::Plan(Scope::Everything));
        assert_eq!(understood("node a").unwrap(), Asked::Plan(Scope::Node("a".into())));
        let codes = [FindingCode::AddressLeaked, FindingCode::HandleUnused].into();
        assert_eq!(
            understood("finding handle-unused address-leaked").unwrap(),
            Asked::Plan(Scope::Codes(codes))
        );
        assert_eq!(understood("undo 1-2").unwrap(), Asked::Undo("1-2".to_owned()));
        for wrong in ["node", "finding", "undo", "ipam endpoints", "finding no-such-code", "everything"] {
            assert!(understood(wrong).is_err(), "{wrong}");
        }
    }
}
