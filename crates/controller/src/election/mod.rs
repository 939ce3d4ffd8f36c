//! One replica leads, and the others stand by.
//!
//! A leader renews its seat every [`Pace::retry`]. If it could not for [`Pace::renew_within`], it stops, before the seat is free for another
//! replica after [`Pace::lasts`]. So two replicas never act at the same time, as long as their clocks go at about the same speed; where they do
//! not, every change is a compare-and-swap all the same.

mod lease;
mod reign;
mod seat;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub use reign::Reign;
pub use seat::{EtcdSeat, FileSeat, KubeSeat, Seat, Taken};
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

/// The times of an election, as client-go has them.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How long a seat lasts that is not renewed.
    pub lasts: Duration,
    /// How long a leader goes on that could not renew it.
    pub renew_within: Duration,
    /// How often it is renewed, and how often others look.
    pub retry: Duration,
}

impl Pace {
    /// Why these times make no election; `None` if they do.
    pub fn problem(&self) -> Option<&'static str> {
        if self.renew_within >= self.lasts {
            return Some("--renew-deadline must be shorter than --lease-duration");
        }
        if self.retry.saturating_mul(2) > self.renew_within || self.retry.is_zero() {
            return Some("--retry-period must be more than 0 and at most half of --renew-deadline");
        }
        (self.lasts < Duration::from_secs(1)).then_some("--lease-duration must be at least 1s")
    }
}

/// What an election says of itself.
pub trait Spectator: Send + Sync {
    /// Who leads, or why that is not known.
    fn leads(&self, who: Result<&Taken, &str>);
}

/// Campaigns; never ends.
pub async fn campaign(seat: &mut dyn Seat, pace: Pace, reign: &Arc<Reign>, spectator: &dyn Spectator) {
    let mut led_by = None;
    loop {
        let started = Instant::now();
        // A leader's time may be shorter than that of a request. Another candidate has none to lose.
        let patience = reign.left().unwrap_or(pace.renew_within);
        match timeout(patience, seat.take_or_renew()).await {
            Ok(Ok(taken)) => {
                match taken {
                    // From before the request: that is the earliest moment at which the seat may count as renewed.
                    Taken::Ours => reign.extend(started + pace.renew_within),
                    Taken::Anothers(_) => reign.end(),
                }
                spectator.leads(Ok(&taken));
                if led_by.as_ref() != Some(&taken) {
                    match &taken {
                        Taken::Ours => info!("leads"),
                        Taken::Anothers(leader) => info!(%leader, "stands by"),
                    }
                    led_by = Some(taken);
                }
            }
            Ok(Err(error)) => {
                let words = model::text::on_one_line(&error);
                warn!(error = %words, is_leader = reign.left().is_some(), "cannot take part in the election");
                spectator.leads(Err(&words));
            }
            Err(_) => {
                debug!("the election was not answered in time");
                spectator.leads(Err("no answer in time"));
            }
        }
        if reign.left().is_none() && led_by == Some(Taken::Ours) {
            warn!("stopped acting: the lead was not renewed in time");
            led_by = None;
        }
        sleep(shaken(pace.retry)).await;
    }
}

/// Up to a fifth longer, so that replicas do not ask all at once.
fn shaken(pause: Duration) -> Duration {
    let lot = u32::from(uuid::Uuid::new_v4().as_bytes().first().copied().unwrap_or_default());
    pause + pause.saturating_mul(lot) / (5 * 256)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_make_no_election_are_refused() {
        let pace = |lasts, renew, retry| Pace {
            lasts: Duration::from_millis(lasts),
            renew_within: Duration::from_millis(renew),
            retry: Duration::from_millis(retry),
        };
        assert_eq!(pace(15_000, 10_000, 2_000).problem(), None);
        for wrong in [
            pace(10_000, 10_000, 2_000),
            pace(15_000, 10_000, 6_000),
            pace(15_000, 10_000, 0),
            pace(900, 500, 100),
        ] {
            assert!(wrong.problem().is_some(), "{wrong:?}");
        }
    }

    #[test]
    fn pauses_are_a_little_longer() {
        for _ in 0..100 {
            let pause = shaken(Duration::from_secs(10));
            assert!(pause >= Duration::from_secs(10) && pause < Duration::from_secs(12), "{pause:?}");
        }
    }
}
