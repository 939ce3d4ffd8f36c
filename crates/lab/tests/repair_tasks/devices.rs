//! Pods' devices on the node: removed when nobody lives behind them, and never otherwise.

use std::process::{Child, Command, Stdio};

use plan::task::{KernelChange, RepairTask, Veth};

use crate::Bench;

/// As the doctor would have seen it.
fn seen(bench: &Bench, device: &str) -> Veth {
    let survey = bench.on_node(|_| host::survey::Survey::here().unwrap());
    let link = survey.links.into_iter().find(|link| link.name == device).expect("it is there");
    Veth { index: Some(link.index), alias: link.alias, mac: link.mac, mtu: Some(link.mtu), is_up: link.up }
}

fn removal(device: &str, from: Veth) -> RepairTask {
    RepairTask::here(KernelChange::Device { device: device.to_owned(), from: Some(from), to: None })
}

#[test]
fn one_that_leads_nowhere_goes_and_comes_back() {
    let Some(bench) = Bench::new("one_that_leads_nowhere_goes_and_comes_back") else { return };
    bench.node_ip("link add cali0000000000a mtu 1400 type veth peer name stray");
    bench.node_ip("link set cali0000000000a up alias left-over");
    let from = seen(&bench, "cali0000000000a");
    let undo = bench.does(&removal("cali0000000000a", from.clone()));
    bench.does_and_takes_back(&undo);
    bench.does(&undo);
    let back = seen(&bench, "cali0000000000a");
    assert_eq!(Veth { index: from.index, ..back.clone() }, from);
    assert_ne!(back.index, from.index);
    bench.refuses(&removal("cali0000000000a", from), "is another one");
}

/// The namespace was forgotten by whoever made it, and nobody lives there.
#[test]
fn one_that_leads_into_a_deserted_namespace_goes() {
    let Some(mut bench) = Bench::new("one_that_leads_into_a_deserted_namespace_goes") else { return };
    bench.context.ready = Some(Vec::new());
    let task = removal(&bench.device(), seen(&bench, &bench.device()));
    let undo = bench.does(&task);
    assert!(!bench.pod_ip("-o link").contains("eth0"));
    bench.does(&undo);
}

#[test]
fn one_whose_sandbox_is_ready_stays() {
    let Some(mut bench) = Bench::new("one_whose_sandbox_is_ready_stays") else { return };
    let device = bench.device();
    let task = removal(&device, seen(&bench, &device));
    bench.refuses(&task, "is ready");
    // Without an alias, as Calico makes them, and also when the runtime tells no place for that one.
    bench.node_ip(&format!("link set {device} alias calico"));
    let task = removal(&device, seen(&bench, &device));
    bench.refuses(&task, "which is ready");
    // A runtime that restarts says nothing.
    bench.context.ready = None;
    bench.refuses(&task, "the runtime cannot be asked");
}

#[test]
fn one_that_leads_to_a_process_stays() {
    let Some(mut bench) = Bench::new("one_that_leads_to_a_process_stays") else { return };
    bench.context.ready = Some(Vec::new());
    let task = removal(&bench.device(), seen(&bench, &bench.device()));
    let inhabitant = Inhabitant::of(&bench);
    bench.refuses(&task, "lives where it leads");
    drop(inhabitant);
    bench.does(&task);
}

#[test]
fn what_is_no_pods_device_stays() {
    let Some(bench) = Bench::new("what_is_no_pods_device_stays") else { return };
    bench.node_ip("link add uplink type veth peer name other");
    bench.refuses(&removal("uplink", seen(&bench, "uplink")), "is no pod's device");
    bench.node_ip("link add cali0000000000b type bridge");
    bench.refuses(&removal("cali0000000000b", seen(&bench, "cali0000000000b")), "is no pod's device");
    bench.refuses(&removal(&bench.device(), Veth::default()), "does not say which");
    let inside = RepairTask::inside(bench.pod.container_id.as_str(), removal("eth0", Veth::default()).change);
    bench.refuses(&inside, "on the node");
}

/// A process in the pod's namespace.
struct Inhabitant(Child);

impl Inhabitant {
    /// It ends with the test, whose end closes its input. A signal at its parent's death would come too early: its
    /// parent is the thread that visits the namespace.
    fn of(bench: &Bench) -> Inhabitant {
        let start = || Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        Inhabitant(bench.pod.netns().visit(start).unwrap().unwrap())
    }
}

impl Drop for Inhabitant {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
