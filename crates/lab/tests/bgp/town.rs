//! Nodes on one network, each with a BIRD of its own.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use lab::{Lab, Node, Programs};
use model::{Cidr, Kind, Metadata, Resource};
use plan::bgp::{BgpFilter, BgpNode, BgpPeer, BgpPool, BgpSettings, BgpView};
use serde_json::{Map, Value, json};
use testkit::process::{Process, command, wait_until};

pub(crate) struct Town {
    pub(crate) speakers: Vec<Speaker>,
    /// Of the whole cluster; each node's own part is filled in for it.
    pub(crate) view: BgpView,
    pub(crate) fabric: Node,
    pub(crate) lab: Lab,
}

/// A node that speaks BGP.
pub(crate) struct Speaker {
    pub(crate) number: usize,
    pub(crate) config: PathBuf,
    pub(crate) more_blocks: Vec<Cidr>,
    socket: PathBuf,
    // Before its namespace.
    bird: Option<Process>,
    pub(crate) node: Node,
}

pub(crate) fn resource(kind: Kind, name: &str, labels: &[(&str, &str)], spec: Value) -> Resource {
    let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let labels: BTreeMap<String, String> = labels.collect();
    let metadata = Metadata { name: name.to_owned(), labels, ..Metadata::default() };
    Resource { kind, metadata, body: Map::from_iter([("spec".to_owned(), spec)]) }
}

pub(crate) fn pool(cidr: &str) -> BgpPool {
    BgpPool { cidr: cidr.parse().unwrap(), is_exported: true, is_birds: false }
}

impl Town {
    /// So many nodes, none of which speaks yet. `None`, with the reason reported, where that cannot be.
    pub(crate) fn new(test: &str, count: usize) -> Option<Town> {
        let reason = lab::missing()
            .or_else(|| (!testkit::process::on_path("bird")).then(|| "there is no bird here".to_owned()));
        if let Some(reason) = reason {
            testkit::skip(test, &reason);
            return None;
        }
        let lab = Lab::new(Programs::of_test().unwrap()).unwrap();
        let fabric = lab.node("fabric").unwrap();
        fabric.namespace().ip(&["link", "add", "br0", "type", "bridge"]).unwrap();
        fabric.namespace().ip(&["link", "set", "br0", "up"]).unwrap();
        let view = BgpView { pools: vec![pool("10.244.0.0/16"), pool("fd10::/64")], ..BgpView::default() };
        let mut town = Town { speakers: Vec::new(), view, fabric, lab };
        for number in 1..=count {
            town.add_speaker(number);
            town.node(number, json!({}), &[]);
        }
        Some(town)
    }

    fn add_speaker(&mut self, number: usize) {
        let node = self.plug_in(&format!("n{number}"), number);
        let folder = self.lab.folder();
        let (config, socket) = (folder.join(format!("{number}.conf")), folder.join(format!("{number}.ctl")));
        self.speakers.push(Speaker { number, config, more_blocks: Vec::new(), socket, bird: None, node });
    }

    /// A machine on the network, at 10.0.0.NUMBER and fd00::NUMBER.
    pub(crate) fn plug_in(&self, name: &str, number: usize) -> Node {
        let node = self.lab.node(name).unwrap();
        let (fabric, port) = (self.fabric.namespace(), format!("p{number}"));
        let namespace = node.namespace();
        fabric
            .ip(&["link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", namespace.name()])
            .unwrap();
        fabric.ip(&["link", "set", &port, "master", "br0", "up"]).unwrap();
        namespace.ip(&["address", "add", &format!("10.0.0.{number}/24"), "dev", "eth0"]).unwrap();
        namespace.ip(&["address", "add", &format!("fd00::{number}/64"), "dev", "eth0", "nodad"]).unwrap();
        namespace.ip(&["link", "set", "eth0", "up"]).unwrap();
        node
    }

    /// Takes the machine with this number off the network, if its namespace has not gone with its end already.
    pub(crate) fn unplug(&self, number: usize) {
        let _ = self.fabric.namespace().ip(&["link", "del", &format!("p{number}")]);
    }

    /// The record of a node.
    pub(crate) fn node(&mut self, number: usize, mut bgp: Value, labels: &[(&str, &str)]) {
        bgp["ipv4Address"] = json!(format!("10.0.0.{number}/24"));
        bgp["ipv6Address"] = json!(format!("fd00::{number}/64"));
        let name = format!("n{number}");
        let record = resource(Kind::Node, &name, labels, json!({"bgp": bgp}));
        self.view.nodes.insert(name, BgpNode::read(&record));
    }

    pub(crate) fn configure(&mut self, spec: Value) {
        let record = resource(Kind::BgpConfiguration, "default", &[], spec);
        self.view.settings = BgpSettings::read(Some(&record), []);
    }

    pub(crate) fn peer(&mut self, name: &str, spec: Value) {
        let record = resource(Kind::BgpPeer, name, &[], spec);
        self.view.peers.insert(name.to_owned(), BgpPeer::read(&record));
    }

    pub(crate) fn filter(&mut self, name: &str, spec: Value) {
        let record = resource(Kind::BgpFilter, name, &[], spec);
        self.view.filters.insert(name.to_owned(), BgpFilter::read(&record));
    }

    pub(crate) fn start(&mut self) {
        for number in 1..=self.speakers.len() {
            self.start_one(number);
        }
    }

    /// Starts a node's BIRD, or starts it anew.
    pub(crate) fn start_one(&mut self, number: usize) {
        self.write_config(number);
        let speaker = &mut self.speakers[number - 1];
        speaker.bird = None;
        let _ = std::fs::remove_file(&speaker.socket);
        let mut bird = command("ip");
        bird.args(["netns", "exec", speaker.node.namespace().name(), "bird", "-f", "-c"])
            .arg(&speaker.config);
        bird.arg("-s").arg(&speaker.socket);
        bird.stderr(std::fs::File::create(speaker.config.with_extension("log")).unwrap());
        speaker.bird = Some(Process::spawn(bird).unwrap());
        let waited = wait_until("BIRD's socket", || host::bird::ask(&speaker.socket, "show status").is_ok());
        assert!(waited.is_ok(), "{}", std::fs::read_to_string(speaker.config.with_extension("log")).unwrap());
    }

    pub(crate) fn reload(&self, number: usize) {
        self.write_config(number);
        let answer = self.speakers[number - 1].ask("configure");
        // It may still be at it where a session ends with it.
        assert!(answer.contains("Reconfigur"), "{answer}");
    }

    fn write_config(&self, number: usize) {
        let speaker = &self.speakers[number - 1];
        let mut blocks = vec![speaker.block_v4(), speaker.block_v6()];
        blocks.extend(&speaker.more_blocks);
        let view = BgpView { node: format!("n{number}"), blocks, ..self.view.clone() };
        std::fs::write(&speaker.config, view.decide().unwrap().config).unwrap();
    }

    /// Every session of every node.
    #[track_caller]
    pub(crate) fn wait_until_established(&self) {
        let is_up = |speaker: &Speaker| {
            let sessions = speaker.sessions();
            !sessions.is_empty() && sessions.iter().all(|(_, state)| state == "Established")
        };
        let waited = wait_until("all sessions", || self.speakers.iter().all(is_up));
        assert!(
            waited.is_ok(),
            "{:?}",
            self.speakers.iter().map(|speaker| speaker.ask("show protocols")).collect::<Vec<_>>()
        );
    }

    #[track_caller]
    pub(crate) fn assert_everybody_knows_every_block(&self) {
        for speaker in &self.speakers {
            let knows_all = || {
                let known = speaker.ask("show route");
                let mut all = self.speakers.iter().flat_map(|other| [other.block_v4(), other.block_v6()]);
                all.all(|block| known.contains(&format!("{block} ")))
            };
            let waited = wait_until("every block", knows_all);
            assert!(waited.is_ok(), "node {}: {}", speaker.number, speaker.ask("show route all"));
        }
    }
}

impl Speaker {
    pub(crate) fn address(&self) -> IpAddr {
        format!("10.0.0.{}", self.number).parse().unwrap()
    }

    pub(crate) fn block_v4(&self) -> Cidr {
        format!("10.244.{}.0/26", self.number).parse().unwrap()
    }

    pub(crate) fn block_v6(&self) -> Cidr {
        format!("fd10::{}00/122", self.number).parse().unwrap()
    }

    pub(crate) fn ask(&self, question: &str) -> String {
        host::bird::ask(&self.socket, question).unwrap()
    }

    /// Names and states of BGP's sessions, sorted.
    pub(crate) fn sessions(&self) -> Vec<(String, String)> {
        let rows = self.ask("show protocols");
        let of_row = |row: &str| {
            let words: Vec<&str> = row.split_whitespace().collect();
            let is_bgp = words.get(1) == Some(&"BGP");
            is_bgp.then(|| (words[0].to_owned(), words.get(5).copied().unwrap_or_default().to_owned()))
        };
        let mut sessions: Vec<_> = rows.lines().filter_map(of_row).collect();
        sessions.sort();
        sessions
    }

    /// Routes that BIRD wrote into the kernel.
    pub(crate) fn kernel_routes(&self, version: &str) -> String {
        self.node.namespace().ip(&[version, "route", "show", "proto", "bird"]).unwrap()
    }
}

/// The store that the agents of a town share.
pub(crate) struct Records {
    store: std::sync::Arc<dyn store::Store>,
    runtime: tokio::runtime::Runtime,
}

impl Town {
    pub(crate) fn store(&self) -> Records {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let config = store::StoreConfig::Sqlite { path: self.lab.store_path() };
        let store = runtime.block_on(store::open(&config, store::OpenMode::Existing)).unwrap();
        Records { store, runtime }
    }
}

impl Records {
    /// Makes a record, or puts another in its place.
    pub(crate) fn put(&self, resource: &Resource) {
        let key = resource.key();
        self.remove(&key);
        self.runtime.block_on(self.store.create(key, resource.encode())).unwrap();
    }

    pub(crate) fn remove(&self, key: &model::Key) {
        if let Some(known) = self.runtime.block_on(self.store.get(key)).unwrap() {
            self.runtime.block_on(self.store.delete(key.clone(), known.revision)).unwrap();
        }
    }
}
