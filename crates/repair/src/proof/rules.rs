//! The rules that keep the living, one by one. In a plan they hold each other up, so that the loss of one would not show there.

use super::healthy;
use super::mishaps::{
    Known, NODE, leave_kernel, leave_orchestrator, leave_records, leave_runtime, pod, without_node,
};
use crate::witness::{Suspect, Testimony};
use crate::{Ground, Scope};
use doctor::{Case, Options};
use evidence::Evidence;

fn suspect(pod: &Known) -> Suspect<'_> {
    Suspect {
        container_id: Some(&pod.id),
        node: Some(NODE.into()),
        pod: Some(pod.name.clone()),
        uid: None,
        device: None,
        addresses: vec![pod.address],
        since: None,
    }
}

/// What the runtime and the kernel say of the pod.
fn said(change: impl Fn(&mut Evidence, &Known)) -> [String; 2] {
    let mut evidence = healthy();
    let pod = pod(&evidence);
    change(&mut evidence, &pod);
    let options = Options::default();
    let lines = Testimony::of(&Case::new(&evidence, &options), &suspect(&pod)).lines();
    [lines[1].clone(), lines[2].clone()]
}

#[test]
fn a_runtime_that_lists_nothing_while_pods_have_devices_says_nothing() {
    let [runtime, _] = said(|evidence, pod| {
        leave_kernel(evidence, pod);
        evidence.node_mut(NODE).sandboxes = Some(Vec::new());
    });
    assert!(runtime.starts_with("runtime reports nothing"), "{runtime}");
    let [runtime, _] = said(|evidence, _| {
        let node = evidence.node_mut(NODE);
        node.sandboxes = Some(Vec::new());
        node.kernel.links = Some(Vec::new());
    });
    assert!(runtime.starts_with("runtime reports it gone"), "{runtime}");
}

#[test]
fn a_kernel_that_nobody_looked_at_says_nothing() {
    let [_, kernel] = said(|evidence, _| drop(evidence.nodes.remove(&NODE.into())));
    assert!(kernel.starts_with("kernel reports nothing"), "{kernel}");
    let [_, kernel] = said(leave_kernel);
    assert!(kernel.starts_with("kernel reports it gone"), "{kernel}");
}

/// The records have it on a node that does not exist: a stale nodename file.
#[test]
fn a_sandbox_that_a_runtime_runs_lives_wherever_the_records_put_it() {
    let is_gone = |runs: bool, scope: Scope| {
        let mut evidence = healthy();
        let pod = pod(&evidence);
        leave_orchestrator(&mut evidence, &pod);
        leave_kernel(&mut evidence, &pod);
        if !runs {
            leave_runtime(&mut evidence, &pod);
        }
        let options = Options::default();
        let ground = Ground::new(&evidence, &options, &scope);
        let suspect = Suspect { node: Some("template".into()), ..suspect(&pod) };
        assert!(ground.is_dead(&"template".into()));
        ground.is_gone(&suspect).is_ok()
    };
    // Not even an operator's word is against that.
    for scope in [Scope::Everything, Scope::Node("template".into())] {
        assert!(!is_gone(true, scope.clone()), "{scope:?}");
        assert!(is_gone(false, scope.clone()), "{scope:?}");
    }
}

#[test]
fn both_looks_must_say_gone() {
    let (mut gone, options, scope) = (healthy(), Options::default(), Scope::Everything);
    let pod = pod(&gone);
    leave_orchestrator(&mut gone, &pod);
    leave_runtime(&mut gone, &pod);
    leave_kernel(&mut gone, &pod);
    let is_gone =
        |evidence: &Evidence| Ground::new(evidence, &options, &scope).is_gone(&suspect(&pod)).is_ok();
    assert!(is_gone(&with_earlier(&gone, &gone)));
    assert!(!is_gone(&with_earlier(&healthy(), &gone)));
    assert!(!is_gone(&with_earlier(&gone, &healthy())));
}

fn with_earlier(earlier: &Evidence, now: &Evidence) -> Evidence {
    Evidence { earlier: Some(Box::new(earlier.clone())), ..now.clone() }
}

#[test]
fn a_node_is_gone_only_if_it_was_so_in_both_looks_and_nobody_answers_for_it() {
    let (gone, back, options) = (without_node(), healthy(), Options::default());
    let is_dead =
        |evidence: &Evidence, scope: &Scope| Ground::new(evidence, &options, scope).is_dead(&NODE.into());
    let everything = Scope::Everything;
    assert!(is_dead(&with_earlier(&gone, &gone), &everything));
    assert!(!is_dead(&with_earlier(&back, &gone), &everything));
    assert!(!is_dead(&with_earlier(&gone, &back), &everything));
    let given_up = Scope::Node(NODE.into());
    assert!(is_dead(&with_earlier(&back, &gone), &given_up));
    assert!(!is_dead(&back, &given_up), "its agent answers");
}

#[test]
fn an_address_that_anybody_has_is_used() {
    let mut evidence = healthy();
    let pod = pod(&evidence);
    let (options, scope) = (Options::default(), Scope::Everything);
    let who = |evidence: &Evidence| Ground::new(evidence, &options, &scope).is_unused(pod.address);
    assert!(who(&evidence).unwrap_err().starts_with("endpoint "));
    leave_records(&mut evidence, &pod);
    assert!(who(&evidence).unwrap_err().starts_with("pod "));
    leave_orchestrator(&mut evidence, &pod);
    assert!(who(&evidence).unwrap_err().contains("inside"));
    leave_kernel(&mut evidence, &pod);
    who(&evidence).unwrap();
}
