//! How threads share a CPU: short time slices for those that work little and are waited for, a small
//! share for those that work long.

use std::io;

/// The shortest slice the kernel grants.
const SHORTEST_NS: u64 = 100_000;

/// Asks for short time slices for the calling thread: on a busy machine it then runs soon after it is
/// woken, and not longer overall. Its nice value stays. Without effect before Linux 6.12, and for a
/// thread that is not scheduled as ordinary ones are.
///
/// # Errors
/// What the kernel says.
pub fn take_short_ones() -> io::Result<()> {
    let mut now = of_this_thread()?;
    if now.sched_policy != libc::SCHED_OTHER as u32 {
        return Ok(());
    }
    now.sched_runtime = SHORTEST_NS;
    // SAFETY: the struct lives through the call, and was filled in by the kernel.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const now, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Takes a smaller share for the calling thread where others want the CPU too: an answer under way goes
/// before a body that is being read.
///
/// # Errors
/// What the kernel says.
pub fn give_way() -> io::Result<()> {
    // About a third of the weight of a thread at nice 0.
    const NICE: i32 = 5;
    // SAFETY: a plain system call; on Linux, 0 is the calling thread.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn of_this_thread() -> io::Result<libc::sched_attr> {
    let size = size_of::<libc::sched_attr>();
    // SAFETY: all-zero is a valid value of this plain struct, and the kernel writes at most its size.
    unsafe {
        let mut attributes: libc::sched_attr = std::mem::zeroed();
        match libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) {
            0 => Ok(attributes),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_slice_changes() {
        // In a thread of its own, for which it stays so.
        let changed = std::thread::spawn(|| {
            let before = of_this_thread().unwrap();
            take_short_ones().unwrap();
            (before, of_this_thread().unwrap())
        });
        let (before, after) = changed.join().unwrap();
        assert_eq!(
            (after.sched_policy, after.sched_nice, after.sched_priority),
            (before.sched_policy, before.sched_nice, before.sched_priority)
        );
        // 0 on a kernel that keeps no slice per thread.
        assert!(matches!(after.sched_runtime, 0 | SHORTEST_NS), "{}", after.sched_runtime);
    }
}
