//! The nftables rules themselves: a single call loads all of them, and rules that cannot be loaded are reported.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use model::Kind;
use serde_json::{Value, json};
use testkit::process::command;

use crate::common::{Bench, DelOutcome as _};
use crate::running::wait_until;

fn nft(bench: &Bench, words: &[&str]) -> String {
    let output = bench.node.namespace().run(Path::new("nft"), words).unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn without_an_agent_each_call_loads_whatever_rule_is_missing() {
    let Some(bench) = Bench::new("without_an_agent_each_call_loads_whatever_rule_is_missing") else { return };
    let pod = bench.pod("shop", "web-0");
    let listed = || nft(&bench, &["-s", "list", "table", "inet", "plumb"]);
    let add = || bench.call("ADD", &pod).run(&bench.node).unwrap().result().unwrap();
    add();
    let whole = listed();
    for rule in ["udp dport 4789 drop", "ip protocol ", "fib saddr . iif oif missing drop"] {
        assert!(whole.contains(rule), "{rule}: {whole}");
    }
    for chain in ["pods", "pods-tunnels", "pods-prerouting", "pods-input", "pods-forward"] {
        bench.del(&pod).result_of_del();
        nft(&bench, &["flush", "chain", "inet", "plumb", chain]);
        assert_ne!(listed(), whole);
        add();
        assert_eq!(listed(), whole, "{chain} was empty");
    }
    bench.del(&pod).result_of_del();
    bench.assert_nothing_left();
}

/// An nft that refuses the cluster's rules while the file is there, as one does whose kernel module is missing; gives a PATH.
fn nft_that_may_fail(folder: &Path) -> String {
    let real = std::env::var("PATH").unwrap_or_default();
    let (program, fails) = (folder.join("nft"), folder.join("fails"));
    let script = format!(
        "#!/bin/sh\nPATH={real}\n\
         [ -e {} ] && [ \"$1\" = -f ] && {{ echo 'Could not process rule: Operation not supported' >&2; exit 1; }}\n\
         exec nft \"$@\"\n",
        fails.display()
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{real}", folder.display())
}

fn findings(bench: &Bench) -> Vec<String> {
    let mut plumb = command(bench.programs().plumb());
    plumb.args(["doctor", "-o", "json", "--node", bench.node.name(), "--agent-socket"]).arg(bench.socket());
    plumb.env("DATASTORE_TYPE", "sqlite").env("SQLITE_PATH", bench.lab.store_path());
    let output = plumb.output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let codes = report["findings"].as_array().unwrap().iter();
    codes.map(|finding| finding["code"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn rules_that_cannot_be_loaded_are_reported_until_they_are() {
    let Some(bench) = Bench::new("rules_that_cannot_be_loaded_are_reported_until_they_are") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = nft_that_may_fail(folder.path());
    let agent = bench.agent(&[("PATH", &path)]);
    std::fs::write(folder.path().join("fails"), "").unwrap();
    // The rules that pods need are loaded; those of this pool cannot be.
    bench.put(Kind::IpPool, "more", json!({"cidr": "10.245.0.0/24", "natOutgoing": true}));
    let readiness = || bench.page("readiness");
    wait_until(|| readiness().contains("cannot load the nftables rules of the cluster"), || agent.log());
    assert!(readiness().starts_with("HTTP/1.1 503"), "{}", readiness());
    assert!(readiness().contains("Operation not supported"), "{}", readiness());
    let probe = bench.pod("probe", "probe");
    let status = || {
        let call = bench.agent_call("STATUS", &probe).with_netconf("cniVersion", "1.1.0");
        call.run(&bench.node).unwrap()
    };
    let refused = status();
    assert_eq!(refused.error().unwrap().0, 50);
    assert!(refused.stdout.contains("Operation not supported"), "{}", refused.stdout);
    let metrics = bench.page("metrics");
    assert!(metrics.contains("plumb_not_ready{condition=\"cluster-rules\"} 1"), "{metrics}");
    assert_eq!(bench.metric("nat_failed"), 1);
    let found = findings(&bench);
    assert!(found.contains(&"rules-not-loaded".to_owned()), "{found:?}");
    std::fs::remove_file(folder.path().join("fails")).unwrap();
    wait_until(|| status().success, || format!("{}{}", readiness(), agent.log()));
    assert!(readiness().starts_with("HTTP/1.1 200"), "{}", readiness());
    assert_eq!(bench.metric("nat_failed"), 0);
    assert!(!findings(&bench).contains(&"rules-not-loaded".to_owned()));
    assert!(nft(&bench, &["list", "table", "inet", "plumb"]).contains("10.245.0.0/24"));
    agent.stop();
}
