//! Which CPUs the shards and the control core run on.

use std::io;

/// The CPUs chosen for the two planes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuPlan {
    /// One entry per shard: the CPU it is pinned to.
    pub data: Vec<usize>,
    /// CPUs of the control core; `None` lets it float over all allowed CPUs.
    pub control: Option<Vec<usize>>,
}

/// Why a requested placement is impossible.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum CpuError {
    /// A listed CPU is outside the affinity mask of the process.
    #[error(
        "{flag} names CPU {cpu}, but this process may only run on {allowed:?}; choose from those, \
         or widen the cpuset (taskset, cgroup cpuset.cpus, docker --cpuset-cpus)"
    )]
    NotAllowed {
        /// The flag that named it.
        flag: &'static str,
        /// The CPU.
        cpu: usize,
        /// The CPUs of the affinity mask.
        allowed: Vec<usize>,
    },
    /// Fewer CPUs than shards were named.
    #[error(
        "--shards {shards} needs {shards} CPUs, but --data-cpus names {named}; name more CPUs or \
         ask for fewer shards"
    )]
    TooFew {
        /// Shards asked for.
        shards: usize,
        /// CPUs named.
        named: usize,
    },
}

/// Plans shards and control core over `allowed`.
///
/// By default one control core is set aside when four or more CPUs are allowed; below that the
/// control thread floats and every CPU is a shard. More shards than CPUs share CPUs round robin.
pub fn plan(
    allowed: &[usize],
    quota: Option<usize>,
    shards: Option<usize>,
    data_cpus: Option<&[usize]>,
    control_cpus: Option<&[usize]>,
) -> Result<CpuPlan, CpuError> {
    check("--data-cpus", data_cpus, allowed)?;
    check("--control-cpus", control_cpus, allowed)?;
    let usable = quota.unwrap_or(usize::MAX).clamp(1, allowed.len().max(1));
    let control = match control_cpus {
        Some(cpus) => Some(cpus.to_vec()),
        None if usable >= 4 && data_cpus.is_none() => allowed.get(usable - 1).map(|&cpu| vec![cpu]),
        None => None,
    };
    let pool: Vec<usize> = match data_cpus {
        Some(cpus) => cpus.to_vec(),
        None => {
            let reserved = control.as_deref().unwrap_or_default();
            let free: Vec<usize> = allowed
                .iter()
                .copied()
                .filter(|cpu| !reserved.contains(cpu))
                .take(usable)
                .collect();
            if free.is_empty() { allowed.to_vec() } else { free }
        }
    };
    let count = shards.unwrap_or(pool.len()).max(1);
    if data_cpus.is_some() && count > pool.len() {
        return Err(CpuError::TooFew { shards: count, named: pool.len() });
    }
    let data = (0..count).map(|shard| pool[shard % pool.len()]).collect();
    Ok(CpuPlan { data, control })
}

fn check(flag: &'static str, cpus: Option<&[usize]>, allowed: &[usize]) -> Result<(), CpuError> {
    match cpus.unwrap_or_default().iter().find(|cpu| !allowed.contains(cpu)) {
        Some(&cpu) => Err(CpuError::NotAllowed { flag, cpu, allowed: allowed.to_vec() }),
        None => Ok(()),
    }
}

/// CPUs the affinity mask of this process allows, ascending.
pub fn allowed() -> io::Result<Vec<usize>> {
    // SAFETY: an all-zero cpu_set_t is a valid empty set, and the call writes at most its size.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0 {
            return Err(io::Error::last_os_error());
        }
        set
    };
    // SAFETY: every index is below CPU_SETSIZE.
    Ok((0..libc::CPU_SETSIZE as usize)
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
        .collect())
}

/// Whole CPUs that the cgroup's quota pays for (at least 1), `None` when there is no quota.
pub fn quota() -> Option<usize> {
    if let Ok(text) = std::fs::read_to_string("/sys/fs/cgroup/cpu.max") {
        return parse_cpu_max(&text);
    }
    let read = |name| {
        let text = std::fs::read_to_string(format!("/sys/fs/cgroup/cpu/{name}")).ok()?;
        text.trim().parse::<i64>().ok()
    };
    let (quota, period) = (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?);
    (quota > 0 && period > 0).then(|| ((quota / period) as usize).max(1))
}

fn parse_cpu_max(text: &str) -> Option<usize> {
    let mut parts = text.split_whitespace();
    let quota: u64 = parts.next()?.parse().ok()?;
    let period: u64 = parts.next()?.parse().ok().filter(|&period| period > 0)?;
    Some(((quota / period) as usize).max(1))
}

/// Pins the calling thread to `cpus`.
pub fn pin(cpus: &[usize]) -> io::Result<()> {
    // SAFETY: the set lives through the call; indices come from an affinity mask.
    let outcome = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for &cpu in cpus {
            libc::CPU_SET(cpu, &mut set);
        }
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_machines_give_every_cpu_to_the_data_plane() {
        let plan = plan(&[0, 1], None, None, None, None).unwrap();
        assert_eq!(plan, CpuPlan { data: vec![0, 1], control: None });
    }

    #[test]
    fn four_cpus_set_one_aside_for_control() {
        let plan = plan(&[4, 5, 6, 7], None, None, None, None).unwrap();
        assert_eq!(plan, CpuPlan { data: vec![4, 5, 6], control: Some(vec![7]) });
    }

    #[test]
    fn a_quota_bounds_the_shards() {
        let allowed: Vec<usize> = (0..64).collect();
        let plan = plan(&allowed, Some(2), None, None, None).unwrap();
        assert_eq!(plan, CpuPlan { data: vec![0, 1], control: None });
    }

    #[test]
    fn more_shards_than_cpus_share_them() {
        let plan = plan(&[0, 1], None, Some(3), None, None).unwrap();
        assert_eq!(plan.data, [0, 1, 0]);
    }

    #[test]
    fn explicit_lists_are_used_as_given() {
        let plan = plan(&[0, 1, 2, 3], None, Some(1), Some(&[2, 3]), Some(&[0])).unwrap();
        assert_eq!(plan, CpuPlan { data: vec![2], control: Some(vec![0]) });
    }

    #[test]
    fn impossible_lists_name_the_flag_and_the_cpu() {
        let error = plan(&[0, 1], None, None, Some(&[0, 9]), None).unwrap_err();
        assert!(error.to_string().starts_with("--data-cpus names CPU 9"), "{error}");
        let error = plan(&[0, 1], None, Some(2), Some(&[0]), None).unwrap_err();
        assert_eq!(error, CpuError::TooFew { shards: 2, named: 1 });
    }

    #[test]
    fn cgroup_quotas() {
        assert_eq!(parse_cpu_max("max 100000\n"), None);
        assert_eq!(parse_cpu_max("250000 100000\n"), Some(2));
        assert_eq!(parse_cpu_max("50000 100000\n"), Some(1));
    }
}
