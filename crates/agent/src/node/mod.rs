//! `plumbd node`: the agent of a node.
//!
//! ```text
//!   plugins ──▶ server ──▶ cni verbs ──▶ book, store        collector ◀── runtime, kernel, records
//!                 │            │ journal                        │ removes what has no owner
//!   queue worker ─┘            ▼                                ▼
//!   (DELs left over)        kernel ◀── reconciler ◀── netlink notifications
//! ```
//!
//! Stopping it leaves the data path as it is; so does killing it.

mod protocol;
mod server;
mod settings;
mod start;
mod stop;
mod sweep;

use std::process::ExitCode;

pub(crate) use settings::{NodeArguments, parse_duration};

/// The work is the kernel's and the store's, and those have threads of their own. With a second one here, nearly every step
/// of a call would have to wake it up first, which takes longer than the step.
const WORKER_THREADS: usize = 1;
/// Calls wait for the kernel on these; each costs memory.
const BLOCKING_THREADS_MAX: usize = 16;

/// Runs the agent until it is told to stop.
pub(crate) fn run(arguments: NodeArguments) -> ExitCode {
    host::share_heaps();
    start_log(&arguments.log);
    if let Err(error) = stop::in_time() {
        tracing::error!("cannot listen for signals: {error}");
        return ExitCode::FAILURE;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .enable_all()
        .build();
    let outcome = match runtime {
        // Not on the calling thread, which would be one more to wake up for each connection.
        Ok(runtime) => {
            let running = runtime.spawn(start::run(arguments));
            let outcome = runtime.block_on(running).unwrap_or_else(|error| Err(error.into()));
            // Threads that wait for a program or a disk are not waited for.
            runtime.shutdown_background();
            outcome
        }
        Err(error) => Err(error.into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start_log(level: &str) {
    let filter = tracing_subscriber::EnvFilter::builder().parse_lossy(level);
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
}

/// The call in a frame of the socket, for the fuzz target: what is asked, with or without a frame around it.
#[cfg(fuzzing)]
pub(crate) fn request_of(bytes: &[u8]) -> Option<crate::cni::CallRequest> {
    let framed = u32::try_from(bytes.len()).ok()?.to_be_bytes().into_iter().chain(bytes.iter().copied());
    let framed: Vec<u8> = framed.collect();
    [bytes, &framed].into_iter().find_map(|mut stream| {
        let asked = std::pin::pin!(protocol::read_request(&mut stream));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        // All there is to read is there: nothing waits.
        match asked.poll(&mut context) {
            std::task::Poll::Ready(Ok(Some(protocol::Asked::Call(call)))) => Some(call),
            _ => None,
        }
    })
}
