//! `--busy`: keeps every core of the machine busy while the tests run, as a neighbour would.

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
        println!("busy: {count} threads spin on {cores} cores while the tests run");
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
    use super::*;

    #[test]
    fn the_load_ends_with_its_owner() {
        let load = Load::start();
        let stop = Arc::clone(&load.stop);
        assert!(load.threads.len() >= THREADS_PER_CORE);
        drop(load);
        assert_eq!(Arc::strong_count(&stop), 1, "no thread is left");
    }
}
