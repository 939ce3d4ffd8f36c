//! Another router that is none of ours: FRR's bgpd, in an AS of its own, with a password.

use std::path::Path;

use plan::bgp::SecretKey;
use serde_json::{Value, json};
use testkit::process::{Process, command, wait_until};

use crate::town::Town;

/// Daemons of FRR do not lie on the search path.
const BGPD: &str = "/usr/lib/frr/bgpd";
const PASSWORD: &str = "between-us";
const OWN: &str = "203.0.113.0/24";

struct Frr {
    router: Process,
    node: lab::Node,
    folder: std::path::PathBuf,
}

impl Frr {
    /// One that waits for every node of the town.
    fn start(town: &Town, password: &str) -> Frr {
        let node = town.plug_in("tor", 100);
        let folder = town.lab.folder().join("frr");
        std::fs::create_dir_all(&folder).unwrap();
        let mut config = "router bgp 65000\n bgp router-id 10.0.0.100\n no bgp ebgp-requires-policy\n \
                          no bgp network import-check\n"
            .to_owned();
        for speaker in &town.speakers {
            let address = speaker.address();
            config.push_str(&format!(
                " neighbor {address} remote-as 64512\n neighbor {address} passive\n neighbor {address} password {password}\n"
            ));
        }
        config.push_str(&format!(" address-family ipv4 unicast\n  network {OWN}\n exit-address-family\n"));
        let path = folder.join("bgpd.conf");
        std::fs::write(&path, config).unwrap();
        let mut router = command("ip");
        router.args(["netns", "exec", node.namespace().name(), BGPD]);
        // Alone: no zebra, no routes in the kernel, no user of its own.
        router.args(["-n", "-Z", "-S", "--log", "stdout", "-P", "0", "-f"]).arg(&path);
        router.arg("-i").arg(folder.join("pid")).arg("--vty_socket").arg(&folder);
        router.stdout(std::fs::File::create(folder.join("log")).unwrap());
        Frr { router: Process::spawn(router).unwrap(), node, folder }
    }

    fn ask(&self, question: &str) -> Value {
        let folder = self.folder.display().to_string();
        let words = ["--vty_socket", &folder, "-c", question];
        let output = self.node.namespace().run(Path::new("vtysh"), &words).unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// Every network that it knows, with the addresses it would send to.
    fn learned(&self) -> Vec<(String, Vec<String>)> {
        let table = self.ask("show bgp ipv4 unicast json");
        let next = |paths: &Value| {
            let of_path = |path: &Value| path["nexthops"][0]["ip"].as_str().unwrap_or_default().to_owned();
            paths.as_array().into_iter().flatten().map(of_path).collect::<Vec<_>>()
        };
        let routes = table["routes"].as_object().cloned().unwrap_or_default();
        let mut learned: Vec<_> = routes
            .iter()
            .filter(|(net, _)| *net != OWN)
            .map(|(net, paths)| (net.clone(), next(paths)))
            .collect();
        learned.sort();
        learned
    }
}

#[test]
fn frr_with_a_password_learns_exactly_our_prefixes_and_its_routes_arrive() {
    let test = "frr_with_a_password_learns_exactly_our_prefixes_and_its_routes_arrive";
    let Some(mut town) = Town::new(test, 3) else { return };
    if !Path::new(BGPD).exists() || !testkit::process::on_path("vtysh") {
        return testkit::skip(test, "there is no FRR here");
    }
    let key = SecretKey { name: "tor".to_owned(), key: "password".to_owned() };
    town.view.secrets.insert(key, PASSWORD.to_owned());
    town.peer(
        "tor",
        json!({
            "peerIP": "10.0.0.100", "asNumber": 65000,
            "password": {"secretKeyRef": {"name": "tor", "key": "password"}},
        }),
    );
    // First one that knows another password: nobody talks to it.
    let stranger = Frr::start(&town, "another");
    town.start();
    wait_until("the mesh", || {
        let up = |(_, state): &(String, String)| state == "Established";
        town.speakers
            .iter()
            .all(|speaker| speaker.sessions().iter().filter(|session| up(session)).count() == 4)
    })
    .unwrap();
    assert_eq!(stranger.learned(), []);
    let Frr { router, node, .. } = stranger;
    drop(router);
    drop(node);
    town.unplug(100);
    let outside = Frr::start(&town, PASSWORD);
    town.wait_until_established();
    let expected: Vec<(String, Vec<String>)> = town
        .speakers
        .iter()
        .map(|speaker| (speaker.block_v4().to_string(), vec![speaker.address().to_string()]))
        .collect();
    let waited = wait_until("all blocks outside", || outside.learned() == expected);
    assert!(waited.is_ok(), "{:?}", outside.learned());
    for speaker in &town.speakers {
        wait_until("the route from outside", || {
            speaker.kernel_routes("-4").contains(&format!("{OWN} via 10.0.0.100"))
        })
        .unwrap();
        assert_eq!(speaker.kernel_routes("-4").lines().count(), 1, "the pools' routes are the agent's");
    }
}
