//! Waiting for a state, never for a duration.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// How long anything in a lab is waited for: against hanging only, and as long as on a machine whose cores are all busy. A lab
/// is no test, so this does not come from testkit.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);
const PAUSE: Duration = Duration::from_millis(50);

/// Looks again and again until it is so; then what was seen. In vain: why it was not so at last.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match look() {
            Ok(found) => return Ok(found),
            Err(error) if error.is::<Hopeless>() => return Err(error),
            Err(error) if Instant::now() > deadline => {
                return Err(error)
                    .with_context(|| format!("timed out after {} s waiting for {what}", PATIENCE.as_secs()));
            }
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// Waiting longer would not help.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Hopeless(pub(crate) String);

#[cfg(test)]
mod tests {
    use anyhow::{bail, ensure};

    use super::*;

    #[test]
    fn it_waits_as_long_as_there_is_hope() {
        let mut looks = 0;
        let found = wait_for("the third look", || {
            looks += 1;
            ensure!(looks >= 3, "too early");
            Ok(looks)
        });
        assert_eq!(found.unwrap(), 3);
        let given_up: Result<()> = wait_for("nothing", || bail!(Hopeless("it is dead".to_owned())));
        assert_eq!(given_up.unwrap_err().to_string(), "it is dead");
    }
}
