//! What a process costs: time on a CPU, wakeups, memory.

use std::fs;

use anyhow::{Context as _, Result};

/// What all threads of a process have done so far. Those that end just now are passed over.
#[derive(Clone, Copy, Debug, Default)]
pub struct Effort {
    pub cpu_ms: f64,
    pub wakeups: f64,
}

impl Effort {
    pub fn of(process: u32) -> Result<Effort> {
        let mut effort = Effort::default();
        for task in fs::read_dir(format!("/proc/{process}/task"))? {
            // Time on a CPU in ns, time waiting for one, and how often it was given one.
            let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else { continue };
            let mut numbers = text.split_whitespace().map(str::parse::<f64>);
            let mut next = || numbers.next().context("three numbers in schedstat");
            effort.cpu_ms += next()?? / 1e6;
            next()??;
            effort.wakeups += next()??;
        }
        Ok(effort)
    }
}

/// Memory that a process has to itself or shares, and that is really there.
pub fn resident_bytes(process: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()).context("VmRSS in the status")?;
    Ok(kilobytes.parse::<u64>()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_worked_and_has_memory() {
        let own = std::process::id();
        assert!(Effort::of(own).unwrap().cpu_ms > 0.0);
        assert!(resident_bytes(own).unwrap() > 100_000);
    }
}
