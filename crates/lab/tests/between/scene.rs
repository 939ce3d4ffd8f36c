//! A lab with a pod on each node, and what pods can do to each other.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use host::NetNs;
use lab::Programs;
use lab::cluster::{Mode, OwnCluster, Plan, Topology};
use lab::kubelet::{KubeletRequest, NewPod, PodReport};
use testkit::PATIENCE;

/// Of pods in labs with IPv6 and VXLAN; the smallest there is.
const MTU: u32 = 1430;
const PACKETS: &str = "3";
const TCP_BYTES: usize = 256 * 1024;

pub(crate) struct Scene {
    pub(crate) lab: OwnCluster,
    /// One for each node, in their order.
    pub(crate) pods: Vec<PodReport>,
}

pub(crate) fn plan(nodes: usize, mode: Mode, topology: Topology, ipv6: bool) -> Plan {
    Plan { nodes, mode, topology, ipv6, ..Plan::new(&Programs::of_test().unwrap()) }
}

impl Scene {
    /// `None`, with the reason reported, where a lab cannot run.
    pub(crate) fn new(test: &str, plan: impl FnOnce() -> Plan) -> Option<Scene> {
        if let Some(reason) = lab::missing() {
            testkit::skip(test, &reason);
            return None;
        }
        let lab = OwnCluster::up(plan(), &|_| {}).unwrap();
        let mut pods = Vec::new();
        for node in lab.description().nodes.clone() {
            pods.push(add(&lab, &node.name, &format!("web-{}", node.name)));
        }
        Some(Scene { lab, pods })
    }

    pub(crate) fn node(&self, index: usize) -> &str {
        &self.lab.description().nodes[index].name
    }

    /// A command in the network of the pod on a node.
    pub(crate) fn in_pod(&self, index: usize) -> Command {
        self.lab.command_in(self.node(index), &self.pods[index].netns).unwrap()
    }

    /// Every pod sends small and full packets to every other and gets each of them answered, and carries a good deal over TCP.
    #[track_caller]
    pub(crate) fn assert_all_talk(&self) {
        let pairs: Vec<(usize, usize)> = (0..self.pods.len())
            .flat_map(|from| (0..self.pods.len()).filter(move |to| *to != from).map(move |to| (from, to)))
            .collect();
        for (from, to) in &pairs {
            self.wait_for_answer(*from, *to);
        }
        let mut pings = Vec::new();
        for (from, to) in &pairs {
            for address in &self.pods[*to].addresses {
                for size in [56, full_size(address)] {
                    pings.push((
                        format!("{} bytes from {from} to {to} ({address})", size),
                        self.ping(*from, address, size),
                    ));
                }
            }
        }
        for (what, child) in pings {
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(said.contains(&format!("{PACKETS} received")), "{what}: {said}{}", self.evidence());
        }
        for (from, to) in pairs {
            for address in &self.pods[to].addresses {
                self.assert_tcp(from, to, address.parse().unwrap());
            }
        }
    }

    /// A route to a new block takes a moment; after that nothing may be lost.
    #[track_caller]
    fn wait_for_answer(&self, from: usize, to: usize) {
        for address in &self.pods[to].addresses {
            let mut ping = self.in_pod(from);
            ping.args(["ping", "-n", "-q", "-c", "1", "-w", "30", "-i", "0.2", address])
                .stdout(Stdio::null());
            assert!(
                ping.status().unwrap().success(),
                "{from} gets no answer from {address}{}",
                self.evidence()
            );
        }
    }

    fn ping(&self, from: usize, address: &str, size: u32) -> Child {
        let mut ping = self.in_pod(from);
        ping.args([
            "ping",
            "-n",
            "-q",
            "-c",
            PACKETS,
            "-i",
            "0.2",
            "-W",
            "5",
            "-M",
            "do",
            "-s",
            &size.to_string(),
            address,
        ]);
        ping.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    }

    #[track_caller]
    fn assert_tcp(&self, from: usize, to: usize, address: IpAddr) {
        let listener = self.inside(to, || TcpListener::bind((address, 0)).unwrap());
        let there = listener.local_addr().unwrap();
        let echo = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut heard = vec![0; TCP_BYTES];
            stream.read_exact(&mut heard).unwrap();
            stream.write_all(&heard).unwrap();
        });
        let mut stream = self.inside(from, || TcpStream::connect_timeout(&there, PATIENCE).unwrap());
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let said: Vec<u8> = (0..TCP_BYTES).map(|index| (index % 251) as u8).collect();
        stream.write_all(&said).unwrap();
        let mut heard = vec![0; TCP_BYTES];
        stream.read_exact(&mut heard).unwrap();
        assert!(heard == said, "{from} hears something else from {there}");
        echo.join().unwrap();
    }

    /// Runs in the network of a pod.
    fn inside<T: Send>(&self, index: usize, act: impl FnOnce() -> T + Send) -> T {
        self.inside_of(index, index, act)
    }

    /// The same for a pod that was added later, on this node.
    pub(crate) fn inside_of<T: Send>(&self, node: usize, index: usize, act: impl FnOnce() -> T + Send) -> T {
        let netns = self.pods[index].netns.trim_start_matches('/');
        let path = self.lab.root_of(self.node(node)).unwrap().join(netns);
        NetNs::open(&path).unwrap().visit(act).unwrap()
    }

    /// What nodes hold, for whoever must find out why.
    pub(crate) fn evidence(&self) -> String {
        let mut text = String::new();
        for node in &self.lab.description().nodes {
            text.push_str(&format!("\n=== {}\n", node.name));
            for words in [&["ip", "route"][..], &["ip", "-6", "route"], &["ip", "-br", "address"]] {
                text.push_str(&self.lab.run_on(&node.name, words).unwrap_or_default());
            }
            text.push_str(&self.lab.log_tail(&node.name, "agent", 8));
        }
        text
    }

    /// `plumb apply` of a manifest.
    pub(crate) fn apply(&self, manifest: &str) {
        let mut command = self.lab.command_on(self.node(0)).unwrap();
        command.args(["plumb", "apply", "-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(manifest.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "{manifest}");
    }

    /// What `ip route` shows of routes to other nodes.
    pub(crate) fn routes(&self, index: usize) -> String {
        self.lab.run_on(self.node(index), &["ip", "route", "show", "proto", "113"]).unwrap()
    }
}

pub(crate) fn add(lab: &OwnCluster, node: &str, name: &str) -> PodReport {
    let pod = NewPod::new(&name.parse().unwrap());
    lab.kubelet(node, &KubeletRequest::Add { pods: vec![pod], waits: true }).unwrap().pop().unwrap()
}

/// The payload of a ping that just fits.
fn full_size(address: &str) -> u32 {
    if address.contains(':') { MTU - 48 } else { MTU - 28 }
}
