//! Rules of others that drop what is forwarded: packets of pods are.

use host::between::nft;
use serde_json::Value;

use super::line::Line;

const NAME: &str = "firewall";

pub(super) fn line() -> Line {
    let rules = match nft::ruleset() {
        Ok(Some(rules)) => rules,
        Ok(None) => {
            return Line::warn(NAME, "not checked: there is no nft", "run this where nftables is installed");
        }
        Err(error) => return Line::warn(NAME, format!("not checked: {error}"), "run this as root"),
    };
    let dropping = dropping_chains(&rules);
    if !dropping.is_empty() {
        return Line::warn(
            NAME,
            format!("{} drops what no rule accepts", dropping.join(", ")),
            "accept forwarded packets from and to the pods' networks there (kube-proxy does so for iptables)",
        );
    }
    match nft::has_legacy_rules() {
        true => Line::warn(
            NAME,
            "there are rules of iptables-legacy, which nft does not show",
            "look at iptables-legacy -S FORWARD",
        ),
        false => Line::ok(NAME, "no rules that drop forwarded packets by default"),
    }
}

/// Chains of others on the way of forwarded packets whose policy is to drop.
fn dropping_chains(rules: &str) -> Vec<String> {
    let rules: Value = serde_json::from_str(rules).unwrap_or_default();
    let objects = rules["nftables"].as_array().into_iter().flatten();
    let chains = objects.filter_map(|object| object.get("chain"));
    let text = |chain: &Value, field: &str| chain[field].as_str().unwrap_or_default().to_owned();
    let is_dropping =
        |chain: &&Value| chain["hook"] == "forward" && chain["policy"] == "drop" && chain["table"] != "plumb";
    let named = |chain: &Value| {
        format!("chain {} of table {} {}", text(chain, "name"), text(chain, "family"), text(chain, "table"))
    };
    chains.filter(is_dropping).map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_chains_on_the_way_of_forwarded_packets_count() {
        let chain = |table: &str, hook: &str, policy: &str| serde_json::json!({ "chain": { "family": "ip", "table": table, "name": "C", "hook": hook, "policy": policy } });
        let rules = |chains: &[Value]| serde_json::json!({ "nftables": chains }).to_string();
        let fine = [
            chain("filter", "input", "drop"),
            chain("filter", "forward", "accept"),
            chain("plumb", "forward", "drop"),
        ];
        assert!(dropping_chains(&rules(&fine)).is_empty());
        assert_eq!(
            dropping_chains(&rules(&[chain("filter", "forward", "drop")])),
            ["chain C of table ip filter"]
        );
        assert!(dropping_chains("not json").is_empty() && dropping_chains("{}").is_empty());
    }
}
