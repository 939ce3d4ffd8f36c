//! A node's rules for packets.

use evidence::firewall::Firewall;
use host::HostError;
use host::between::nft;
use serde_json::Value;

/// Why the rules are not known.
#[derive(Debug, thiserror::Error)]
pub(super) enum FirewallError {
    #[error("nft cannot be asked")]
    Refused(#[from] HostError),
    #[error("the rules that nft lists cannot be understood")]
    NoJson(#[from] serde_json::Error),
    #[error("there are too many rules")]
    TooMany,
}

/// Of the calling thread's namespace. `None` where there is no nft: its rules, if any, are nobody's to see.
pub(super) fn here() -> Result<Option<Firewall>, FirewallError> {
    let Some(text) = nft::ruleset()? else { return Ok(None) };
    let mut firewall = read(&text)?;
    firewall.has_legacy_rules = nft::has_legacy_rules();
    Ok(Some(firewall))
}

fn read(text: &str) -> Result<Firewall, FirewallError> {
    // Without any rule, an nft of some years ago prints nothing at all.
    if text.trim().is_empty() {
        return Ok(Firewall::default());
    }
    Firewall::read(&serde_json::from_str::<Value>(text)?).ok_or(FirewallError::TooMany)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nft_prints_is_read_or_said_to_be_unreadable() {
        assert_eq!(read("").unwrap(), Firewall::default());
        let text = r#"{"nftables": [{"metainfo": {"version": "1.0.6"}},
            {"chain": {"family": "ip", "table": "filter", "name": "FORWARD", "hook": "forward", "policy": "drop"}}]}"#;
        let firewall = read(text).unwrap();
        assert!(firewall.chains[0].hook.as_ref().unwrap().drops_the_rest, "{firewall:?}");
        assert!(matches!(read("Error: syntax"), Err(FirewallError::NoJson(_))));
        assert!(matches!(read("{}"), Err(FirewallError::TooMany)));
    }

    #[test]
    fn this_machines_rules_are_read() {
        match here() {
            Ok(Some(_)) => {}
            Ok(None) => eprintln!("not tried: there is no nft"),
            // As an ordinary user.
            Err(error) => assert!(matches!(error, FirewallError::Refused(_)), "{error}"),
        }
    }
}
