//! Keeps every core of the machine busy, as a neighbour would: for `cargo xtask test --busy`, and for benches.

use std::hint::black_box;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

const THREADS_PER_CORE: usize = 2;

/// Threads that spin. They end when this is dropped, and with the process.
#[derive(Debug)]
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    pub(crate) fn start() -> Load {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let count = cores * THREADS_PER_CORE;
        println!("busy: {count} threads spin on {cores} cores");
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..count).map(|_| std::thread::spawn(spin(Arc::clone(&stop)))).collect();
        Load { stop, threads }
    }
}

fn spin(stop: Arc<AtomicBool>) -> impl FnOnce() {
    move || {
        let mut number: u64 = 1;
        while !stop.load(Ordering::Relaxed) {
            for _ in 0..100_000 {
                number = black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
            }
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It fails only if it panicked, which it cannot.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_load_ends_with_its_owner() {
        let load = super::Load::start();
        let stop = load.stop.clone();
        assert!(load.threads.len() >= super::THREADS_PER_CORE);
        drop(load);
        assert_eq!(std::sync::Arc::strong_count(&stop), 1, "no thread is left");
    }
}
