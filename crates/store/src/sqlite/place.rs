//! On which CPU the writing thread works: not on that of whoever commits, who mostly has something else to do meanwhile.
//!
//! A kernel may let a woken thread wait for the one that woke it, even beside an idle CPU, if it takes the machine for
//! busy. All of this is advice: where it cannot be followed, everything works all the same.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::Pid;
use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// No CPU has this number.
const NOWHERE: usize = usize::MAX;

#[derive(Debug)]
pub(super) struct Place {
    thread: OnceLock<Pid>,
    /// What the process may use, if it has a choice.
    allowed: Option<CpuSet>,
    /// The CPU that the thread keeps off.
    kept_off: AtomicUsize,
}

impl Place {
    pub(super) fn new() -> Place {
        let allowed = sched_getaffinity(None).ok().filter(|cpus| cpus.count() > 1);
        Place { thread: OnceLock::new(), allowed, kept_off: AtomicUsize::new(NOWHERE) }
    }

    /// It is the calling thread that is to be placed.
    pub(super) fn take(&self) {
        let _ = self.thread.set(gettid());
    }

    /// Keeps it off the CPU of the calling thread.
    pub(super) fn keep_off(&self) {
        let (Some(thread), Some(allowed)) = (self.thread.get(), &self.allowed) else { return };
        let here = sched_getcpu();
        if here >= CpuSet::MAX_CPU || self.kept_off.swap(here, Ordering::Relaxed) == here {
            return;
        }
        let mut cpus = *allowed;
        cpus.unset(here);
        let _ = sched_setaffinity(Some(*thread), &cpus);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use super::*;

    #[test]
    fn it_keeps_off() {
        let place = Arc::new(Place::new());
        let Some(allowed) = place.allowed else { return };
        let (placed, is_placed) = mpsc::channel::<()>();
        let (taken, is_taken) = mpsc::channel();
        let thread = std::thread::spawn({
            let place = Arc::clone(&place);
            move || {
                place.take();
                taken.send(()).unwrap();
                let _ = is_placed.recv();
                sched_getaffinity(None).unwrap()
            }
        });
        is_taken.recv().unwrap();
        place.keep_off();
        let here = place.kept_off.load(Ordering::Relaxed);
        drop(placed);
        let cpus = thread.join().unwrap();
        assert!(!cpus.is_set(here) && cpus.count() == allowed.count() - 1);
    }
}
