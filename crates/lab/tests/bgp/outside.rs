//! A router that is none of ours: GoBGP, in an AS of its own.

use serde_json::{Value, json};
use testkit::process::{Process, command, wait_until};

use crate::town::Town;

const CONFIG: &str = r#"
[global.config]
  as = 65000
  router-id = "10.0.0.100"
  port = 179
[global.apply-policy.config]
  default-import-policy = "accept-route"
  default-export-policy = "accept-route"
"#;

/// A GoBGP that waits for every node of the town.
struct Outside {
    _router: Process,
    node: lab::Node,
}

impl Outside {
    fn start(town: &Town) -> Outside {
        let node = town.plug_in("tor", 100);
        let mut config = CONFIG.to_owned();
        for speaker in &town.speakers {
            config.push_str(&format!(
                "[[neighbors]]\n  [neighbors.config]\n    neighbor-address = \"{}\"\n    peer-as = 64512\n  [neighbors.transport.config]\n    passive-mode = true\n",
                speaker.address()
            ));
        }
        let path = town.lab.folder().join("gobgpd.toml");
        std::fs::write(&path, config).unwrap();
        let mut router = command("ip");
        router
            .args([
                "netns",
                "exec",
                node.namespace().name(),
                "gobgpd",
                "--api-hosts",
                "127.0.0.1:50051",
                "-f",
            ])
            .arg(&path);
        router.stdout(std::fs::File::create(town.lab.folder().join("gobgpd.log")).unwrap());
        Outside { _router: Process::spawn(router).unwrap(), node }
    }

    fn ask(&self, arguments: &[&str]) -> Option<String> {
        let output = self.node.namespace().run(std::path::Path::new("gobgp"), arguments).ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Every network that it knows, with those who told it.
    fn learned(&self) -> Vec<(String, Vec<String>)> {
        let Some(text) = self.ask(&["-j", "global", "rib"]) else { return Vec::new() };
        let table: Value = serde_json::from_str(&text).unwrap_or_default();
        let from = |paths: &Value| {
            let of_path = |path: &Value| path["neighbor-ip"].as_str().unwrap_or("itself").to_owned();
            let mut from: Vec<String> = paths.as_array().into_iter().flatten().map(of_path).collect();
            from.sort();
            from
        };
        table.as_object().into_iter().flatten().map(|(net, paths)| (net.clone(), from(paths))).collect()
    }
}

#[test]
fn a_router_outside_learns_exactly_our_prefixes_and_its_routes_arrive() {
    let test = "a_router_outside_learns_exactly_our_prefixes_and_its_routes_arrive";
    let Some(mut town) = Town::new(test, 3) else { return };
    if !testkit::process::on_path("gobgpd") {
        return testkit::skip(test, "there is no gobgpd here");
    }
    town.peer("tor", json!({"peerIP": "10.0.0.100", "asNumber": 65000}));
    let outside = Outside::start(&town);
    town.start();
    town.wait_until_established();
    let expected: Vec<(String, Vec<String>)> = town
        .speakers
        .iter()
        .map(|speaker| (speaker.block_v4().to_string(), vec![speaker.address().to_string()]))
        .collect();
    let waited = wait_until("all blocks outside", || outside.learned() == expected);
    assert!(waited.is_ok(), "{:?}", outside.learned());
    wait_until("its own route to be known outside", || {
        outside.ask(&["global", "rib", "add", "203.0.113.0/24", "nexthop", "10.0.0.100"]).is_some()
    })
    .unwrap();
    for speaker in &town.speakers {
        wait_until("the route from outside", || {
            speaker.kernel_routes("-4").contains("203.0.113.0/24 via 10.0.0.100")
        })
        .unwrap();
        assert_eq!(speaker.kernel_routes("-4").lines().count(), 1, "the pools' routes are the agent's");
    }
}
