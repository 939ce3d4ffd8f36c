//! Work that is done beside each other.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// So many requests at most are under way at once. More would only wait in the server, which counts them per client.
const AT_ONCE: usize = 16;

/// Does all of it, a bounded number at a time. The outcomes are in the order of the work. Dropping it stops what is under way.
pub(crate) async fn beside<F>(work: impl IntoIterator<Item = F>) -> Vec<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let mut waiting = work.into_iter().enumerate();
    let mut running = JoinSet::new();
    let mut outcomes = Vec::new();
    loop {
        while running.len() < AT_ONCE
            && let Some((position, work)) = waiting.next()
        {
            running.spawn(async move { (position, work.await) });
        }
        match running.join_next().await {
            None => break,
            Some(Ok(outcome)) => outcomes.push(outcome),
            // Nobody aborts them while this waits.
            Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
        }
    }
    outcomes.sort_unstable_by_key(|(position, _)| *position);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

/// Starts all of it, a bounded number at a time. The outcomes come in whichever order they are there.
pub(crate) fn start<F>(work: impl IntoIterator<Item = F>) -> JoinSet<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let permits = Arc::new(Semaphore::new(AT_ONCE));
    let mut running = JoinSet::new();
    for work in work {
        let permits = Arc::clone(&permits);
        running.spawn(async move {
            let _permit = permits.acquire_owned().await;
            work.await
        });
    }
    running
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn outcomes_keep_their_order_and_the_number_is_bounded() {
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let work = (0..100).map(|number| {
            let (running, most) = (running.clone(), most.clone());
            async move {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                for _ in 0..(100 - number) {
                    tokio::task::yield_now().await;
                }
                running.fetch_sub(1, Ordering::SeqCst);
                number
            }
        });
        assert_eq!(beside(work).await, (0..100).collect::<Vec<_>>());
        assert_eq!(most.load(Ordering::SeqCst), AT_ONCE);
    }

    #[tokio::test]
    #[should_panic(expected = "on purpose")]
    async fn a_panic_is_passed_on() {
        beside([async { panic!("on purpose") }]).await;
    }
}
