//! The plugin killed in the middle of its work: the runtime's next DEL finds everything that is left.

#[expect(dead_code, reason = "shared with the other tests of pods, which use more of it")]
mod common;

use std::time::Duration;

use common::{Bench, DelOutcome as _};
use testkit::Dice;

/// How long calls are left alone: kept near the time they take, however busy the machine is.
struct Window {
    longest: Duration,
    dice: Dice,
    caught: usize,
}

impl Window {
    fn new(test: &str) -> Window {
        eprintln!("seed {}", testkit::seed());
        let dice = Dice::for_purpose(testkit::seed(), test);
        Window { longest: Duration::from_millis(40), dice, caught: 0 }
    }

    /// Calls the plugin and kills it after a while.
    fn call_and_kill(&mut self, bench: &Bench, verb: &str, pod: &lab::Pod) {
        let mut child = bench.call(verb, pod).spawn(&bench.node).unwrap();
        let micros = u64::try_from(self.longest.as_micros()).unwrap_or(u64::MAX).max(1);
        std::thread::sleep(Duration::from_micros(self.dice.roll(micros)));
        let was_running = child.try_wait().unwrap().is_none();
        child.kill().unwrap();
        child.wait().unwrap();
        self.caught += usize::from(was_running);
        self.longest = if was_running { self.longest * 11 / 10 } else { self.longest / 2 };
    }
}

#[test]
fn a_killed_add_leaves_only_what_the_next_del_finds() {
    let Some(bench) = Bench::new("a_killed_add_leaves_only_what_the_next_del_finds") else { return };
    let mut window = Window::new("add");
    let neighbour = bench.pod("shop", "neighbour");
    let address = bench.add(&neighbour).address().unwrap();
    let rounds = testkit::count(15, 200);
    for _ in 0..rounds {
        let pod = bench.pod("shop", "web-0");
        window.call_and_kill(&bench, "ADD", &pod);
        bench.del(&pod).result_of_del();
        bench.assert_books_match_pods(&[(&neighbour, address)]);
        assert_eq!(pod.netns().ip(&["-br", "link"]).unwrap().lines().count(), 1);
    }
    assert!(window.caught > 0, "no call was caught at work");
    assert!(neighbour.netns().can_ping(bench.node.address()).unwrap());
    println!("{} of {rounds} ADDs were killed at work", window.caught);
}

#[test]
fn a_killed_del_is_finished_by_the_next() {
    let Some(bench) = Bench::new("a_killed_del_is_finished_by_the_next") else { return };
    let mut window = Window::new("del");
    for _ in 0..testkit::count(8, 100) {
        let pod = bench.pod("shop", "web-0");
        bench.add(&pod).result().unwrap();
        window.call_and_kill(&bench, "DEL", &pod);
        bench.del(&pod).result_of_del();
        bench.assert_nothing_left();
    }
    assert!(window.caught > 0, "no call was caught at work");
}

#[test]
fn an_add_that_was_killed_can_be_repeated() {
    let Some(bench) = Bench::new("an_add_that_was_killed_can_be_repeated") else { return };
    let mut window = Window::new("that");
    for _ in 0..testkit::count(8, 100) {
        let pod = bench.pod("shop", "web-0");
        window.call_and_kill(&bench, "ADD", &pod);
        let address = bench.add(&pod).address().unwrap();
        bench.assert_books_match_pods(&[(&pod, address)]);
        assert!(pod.netns().can_ping(bench.node.address()).unwrap());
        bench.del(&pod).result_of_del();
        bench.assert_nothing_left();
    }
}
