//! Repair tasks against the real kernel: done, done already, refused because it is not as the plan says, taken back.

mod devices;
mod networks;
mod single;
mod tunnels;

use std::path::PathBuf;

use host::{Host, ReadySandbox, TaskContext};
use lab::{Lab, Node, Pod, Programs};
use model::{DeviceName, Sandbox};
use plan::task::{KernelChange, NextHop, RepairTask, TaskOutcome};
use plan::{Attachment, Maker, NodeFacts, PodWiring};

const ADDRESS: &str = "10.244.0.5";

/// A node with one pod that our code wired, and the runtime that lists it.
struct Bench {
    // Before the lab, so that namespaces go before the folder.
    node: Node,
    pod: Pod,
    wiring: PodWiring,
    context: TaskContext,
    _lab: Lab,
}

impl Bench {
    fn new(test: &str) -> Option<Bench> {
        let bench = Bench::bare(test)?;
        bench.on_node(|host| {
            let mut pod = host.open_pod(bench.pod.netns().path()).unwrap();
            host.ensure(&mut pod, &bench.wiring).unwrap();
        });
        Some(bench)
    }

    /// The pod has no network yet.
    fn bare(test: &str) -> Option<Bench> {
        if let Some(reason) = lab::missing() {
            testkit::skip(test, &reason);
            return None;
        }
        let lab = Lab::new(Programs::of_test().unwrap()).unwrap();
        let (node, pod) = (lab.node("node").unwrap(), lab.pod("default", "web-0").unwrap());
        let context = TaskContext { ready: Some(vec![ready(&pod)]), maker: Maker::Ours };
        let wiring = wiring(&pod);
        Some(Bench { node, pod, wiring, context, _lab: lab })
    }

    fn on_node<T: Send>(&self, act: impl FnOnce(&mut Host) -> T + Send) -> T {
        self.node.namespace().visit(|| act(&mut Host::here().unwrap())).unwrap()
    }

    fn run(&self, task: &RepairTask) -> TaskOutcome {
        self.on_node(|host| host.run_task(task, &self.context))
    }

    /// Done now, and done already the second time. What takes it back.
    #[track_caller]
    fn does(&self, task: &RepairTask) -> RepairTask {
        let done = self.run(task);
        let TaskOutcome::Done { undo: Some(undo) } = done else { panic!("{task}: {done:?}") };
        assert_eq!(self.run(task), TaskOutcome::Already, "{task}");
        *undo
    }

    /// The same, and back again, twice: it ends as it began.
    #[track_caller]
    fn does_and_takes_back(&self, task: &RepairTask) {
        let undo = self.does(task);
        let again = self.does(&undo);
        let back = self.does(&again);
        self.does(&back);
    }

    /// Nothing was touched, for this reason.
    #[track_caller]
    fn refuses(&self, task: &RepairTask, reason: &str) {
        let before = self.state();
        match self.run(task) {
            TaskOutcome::Surprise { said } => assert!(said.contains(reason), "{task}: {said}"),
            other => panic!("{task}: {other:?}"),
        }
        assert_eq!(self.state(), before, "{task}");
    }

    /// Everything that `ip` shows, on the node and inside, except what the kernel does by itself and in its own time.
    fn state(&self) -> Vec<String> {
        let commands: [&[&str]; 5] = [
            &["-o", "link"],
            &["-o", "address"],
            &["route", "show", "table", "main"],
            &["-6", "route", "show", "table", "main"],
            &["neigh", "show", "nud", "permanent"],
        ];
        let look = |namespace: &lab::Namespace| {
            commands.map(|command| without_kernels_own(&namespace.ip(command).unwrap()))
        };
        [look(self.node.namespace()), look(self.pod.netns())].concat()
    }

    fn node_ip(&self, command: &str) -> String {
        self.node.namespace().ip(&command.split(' ').collect::<Vec<_>>()).unwrap()
    }

    fn pod_ip(&self, command: &str) -> String {
        self.pod.netns().ip(&command.split(' ').collect::<Vec<_>>()).unwrap()
    }

    fn device(&self) -> String {
        self.wiring.host.device.to_string()
    }
}

/// Carriers come up late, and with them link-local addresses and routes, which then wait to be found unique.
fn without_kernels_own(shown: &str) -> String {
    const LATE: [&str; 5] = ["LOWER_UP", "NO-CARRIER", "M-DOWN", "tentative", "linkdown"];
    let mut kept = String::new();
    for line in shown.lines().filter(|line| !line.contains("fe80:") && !line.contains("ff00::/8")) {
        let mut words = line.split([' ', ',']).map(|word| word.trim_matches(['<', '>']));
        while let Some(word) = words.next() {
            match word {
                // The next one says which.
                "state" => drop(words.next()),
                word if word.is_empty() || LATE.contains(&word) => {}
                word => kept.extend([word, " "]),
            }
        }
        kept.push('\n');
    }
    kept
}

#[test]
fn what_the_kernel_does_by_itself_is_not_compared() {
    let early = "2: cali1@if2: <NO-CARRIER,BROADCAST,UP,M-DOWN> mtu 1450 state LOWERLAYERDOWN mode DEFAULT\n";
    let late = "2: cali1@if2: <BROADCAST,UP,LOWER_UP> mtu 1450 state UP mode DEFAULT\nfe80::/64 dev cali1\n";
    assert_eq!(without_kernels_own(early), without_kernels_own(late));
    let other = late.replace("1450", "1500");
    assert_ne!(without_kernels_own(early), without_kernels_own(&other));
    assert_ne!(without_kernels_own(early), without_kernels_own(&early.replace("UP,M", "M")));
}

fn ready(pod: &Pod) -> ReadySandbox {
    let netns = Some(PathBuf::from(pod.netns().path()));
    ReadySandbox { container_id: pod.container_id.clone(), netns }
}

fn wiring(pod: &Pod) -> PodWiring {
    let sandbox = Sandbox::new(Lab::NETWORK, &pod.container_id, "eth0").unwrap();
    let attachment = Attachment {
        device: DeviceName::of_pod("cali", "default", "web-0").unwrap(),
        mac: sandbox.mac(),
        sandbox,
        mtu: 1450,
        addresses: vec![ADDRESS.parse().unwrap()],
        pod_forwards: false,
        pod_routes: Vec::new(),
    };
    PodWiring::new(&attachment, &NodeFacts { rp_filter: 0, has_ipv6: true }).unwrap()
}

fn through(device: &str) -> NextHop {
    NextHop { device: Some(device.to_owned()), ..NextHop::default() }
}

fn route(destination: &str, from: Option<NextHop>, to: Option<NextHop>) -> RepairTask {
    RepairTask::here(KernelChange::Route { destination: destination.parse().unwrap(), from, to })
}
