//! `plumbd node`: the agent of a node.
//!
//! ```text
//!   plugins ──▶ server ──▶ cni verbs ──▶ book, store        collector ◀── runtime, kernel, records
//!                 │            │ journal                        │ removes what has no owner
//!   DEL queue ────┘            ▼                                ▼
//!                           kernel ◀── reconciler ◀── netlink notifications
//! ```
//!
//! Stopping or killing it leaves the data path as it is.

mod protocol;
mod server;
mod settings;
mod start;
mod stop;
mod sweep;

use std::process::ExitCode;

pub(crate) use settings::NodeArguments;

/// Kernel and store have threads of their own. With a second one here, nearly every step of a call would first have to wake it, which takes
/// longer than the step.
const WORKER_THREADS: usize = 1;
/// Calls wait for the kernel on these threads; each costs memory.
const BLOCKING_THREADS_MAX: usize = 16;

/// Runs the agent until a signal stops it.
pub(crate) fn run(arguments: NodeArguments) -> ExitCode {
    host::share_heaps();
    host::take_short_turns();
    crate::log::start(&arguments.log);
    if let Err(error) = stop::in_time() {
        tracing::error!(%error, "cannot listen for signals");
        return ExitCode::FAILURE;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .enable_all()
        .build();
    let outcome = match runtime {
        // Not on the calling thread, which would be one more to wake for each connection.
        Ok(runtime) => {
            let running = runtime.spawn(start::run(arguments));
            let outcome = runtime.block_on(running).unwrap_or_else(|error| Err(error.into()));
            // Does not wait for threads that a program or a disk blocks.
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

/// The call in bytes from the socket, with or without a frame, for the fuzz target.
#[cfg(fuzzing)]
pub(crate) fn request_of(bytes: &[u8]) -> Option<wire::Call> {
    let framed = u32::try_from(bytes.len()).ok()?.to_be_bytes().into_iter().chain(bytes.iter().copied());
    let framed: Vec<u8> = framed.collect();
    [bytes, &framed].into_iter().find_map(|mut stream| {
        let asked = std::pin::pin!(protocol::read_request(&mut stream));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        // All bytes are there, so nothing waits.
        match asked.poll(&mut context) {
            std::task::Poll::Ready(Ok(Some(protocol::Request::Call(call)))) => Some(call),
            _ => None,
        }
    })
}
