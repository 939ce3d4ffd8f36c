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

/// How much of its time a process has been in the kernel, in milliseconds. The kernel samples that a hundred times a second: it is
/// good for sums over many pieces of work.
pub fn kernel_ms(process: u32) -> Result<f64> {
    const MS_PER_TICK: f64 = 10.0;
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name, in brackets, may hold anything. Behind it stand the state as the third field and the time as the fifteenth.
    let rest = stat.rsplit_once(')').context("a name in stat")?.1;
    let ticks = rest.split_whitespace().nth(12).context("the time in the kernel in stat")?;
    Ok(ticks.parse::<f64>()? * MS_PER_TICK)
}

/// Memory that a process has to itself or shares, and that is really there.
pub fn resident_bytes(process: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()).context("VmRSS in the status")?;
    Ok(kilobytes.parse::<u64>()? * 1024)
}

/// How many threads a process has now.
pub fn thread_count(process: u32) -> Result<usize> {
    Ok(fs::read_dir(format!("/proc/{process}/task"))?.count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_worked_and_has_memory() {
        let own = std::process::id();
        assert!(Effort::of(own).unwrap().cpu_ms > 0.0);
        assert!(resident_bytes(own).unwrap() > 100_000);
        assert!(thread_count(own).unwrap() >= 1);
        let before = kernel_ms(own).unwrap();
        // Until it shows: each write is a moment in the kernel.
        let mut sink = fs::OpenOptions::new().write(true).open("/dev/null").unwrap();
        while kernel_ms(own).unwrap() <= before {
            (0..1000).for_each(|_| std::io::Write::write_all(&mut sink, &[0; 64]).unwrap());
        }
    }
}
