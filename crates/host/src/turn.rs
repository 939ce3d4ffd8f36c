//! How soon a thread of ours gets a core when it wakes up.

use rustix::process::getpriority_process;

/// The shortest turn that the kernel gives.
const TURN_NANOSECONDS: u64 = 100_000;

#[expect(unsafe_code, reason = "no crate here offers sched_setattr and sched_getattr")]
mod linux {
    use std::io;

    use libc::sched_attr;

    const EMPTY: sched_attr = sched_attr {
        size: size_of::<sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };

    pub(super) fn set_turn(nice: i32, nanoseconds: u64) -> io::Result<()> {
        let attributes = sched_attr { sched_nice: nice, sched_runtime: nanoseconds, ..EMPTY };
        // SAFETY: the kernel reads `attributes.size` bytes, which are all of it, and keeps no pointer.
        match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    #[cfg(test)]
    pub(super) fn turn() -> io::Result<u64> {
        let mut attributes = EMPTY;
        // SAFETY: the kernel writes at most `attributes.size` bytes, which are all of it, and keeps no pointer.
        match unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, attributes.size, 0) } {
            0 => Ok(attributes.sched_runtime),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Asks for short turns on a core, which come sooner: an agent works for a moment whenever it is called, while its caller waits.
/// It gets no more of the core than before. Threads that are started later inherit it.
///
/// Kernels before 6.12 ignore it, and whoever may not do this goes on without.
pub fn take_short_turns() {
    if let Ok(nice) = getpriority_process(None) {
        let _ = linux::set_turn(nice, TURN_NANOSECONDS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_short_and_inherited_and_the_priority_stays() {
        let test = "turns_are_short_and_inherited_and_the_priority_stays";
        std::thread::spawn(move || {
            let nice = getpriority_process(None).unwrap();
            take_short_turns();
            let turns =
                [linux::turn().unwrap(), std::thread::spawn(|| linux::turn().unwrap()).join().unwrap()];
            if turns == [0, 0] {
                return testkit::skip(test, "the kernel has no turns to set (6.12 is needed)");
            }
            assert_eq!(turns, [TURN_NANOSECONDS; 2]);
            assert_eq!(getpriority_process(None).unwrap(), nice);
        })
        .join()
        .unwrap();
    }
}
