//! How much memory this process may use.

use std::fs;
use std::path::Path;

/// Bytes: the tightest limit of the process's cgroup and those above it (v2, or v1), or what the machine
/// has. `None` when the kernel says neither.
pub fn usable() -> Option<u64> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let limit = cgroup_limit(Path::new("/sys/fs/cgroup"), &read("/proc/self/cgroup"));
    let total = memory_total(&read("/proc/meminfo"));
    [limit, total].into_iter().flatten().min()
}

/// The tightest limit below `root`, where cgroups are mounted; `membership` is `/proc/self/cgroup`
/// (cgroups(7)).
fn cgroup_limit(root: &Path, membership: &str) -> Option<u64> {
    let limits = membership.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next().unwrap_or_default(), parts.next());
        let (root, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            _ => (root.join("memory"), "memory.limit_in_bytes"),
        };
        let has_memory =
            controllers.is_empty() || controllers.split(',').any(|name| name == "memory");
        let path = path.filter(|_| has_memory).map(|path| path.trim_start_matches('/').to_owned());
        // In a container the path may be one of the host's: then it is only the root that is there.
        path.into_iter().flat_map(move |path| {
            let limit = |below: &Path| {
                fs::read_to_string(root.join(below).join(file)).ok()?.trim().parse().ok()
            };
            Path::new(&path).ancestors().filter_map(limit).collect::<Vec<u64>>()
        })
    });
    limits.min()
}

/// `MemTotal` of `/proc/meminfo` (proc_meminfo(5)) in bytes.
fn memory_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(name: &str, files: &[(&str, &str)]) -> std::path::PathBuf {
        let root = std::env::temp_dir().join(format!("smg-cgroup-{name}-{}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn the_tightest_limit_of_those_above_counts() {
        let root = tree(
            "v2",
            &[("a/memory.max", "5000\n"), ("a/b/memory.max", "max\n"), ("a/c/memory.max", "1\n")],
        );
        assert_eq!(cgroup_limit(&root, "0::/a/b\n"), Some(5000));
        assert_eq!(cgroup_limit(&root, "0::/a/c\n"), Some(1));
        assert_eq!(cgroup_limit(&root, "0::/\n"), None);
        assert_eq!(cgroup_limit(&root, "0::/of/the/host\n"), None);
        fs::write(root.join("memory.max"), "70").unwrap();
        assert_eq!(cgroup_limit(&root, "0::/of/the/host\n"), Some(70));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn so_it_does_in_the_first_version() {
        let root = tree(
            "v1",
            &[
                ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
                ("memory/a/memory.limit_in_bytes", "4096\n"),
            ],
        );
        let membership = "5:cpu,cpuacct:/x\n4:memory:/a\n0::/\n";
        assert_eq!(cgroup_limit(&root, membership), Some(4096));
        assert_eq!(cgroup_limit(&root, "5:cpu,cpuacct:/a\n"), None);
        assert_eq!(cgroup_limit(&root, "rubbish"), None);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn the_machine_says_what_it_has() {
        let meminfo = "MemTotal:       24689528 kB\nMemFree:  1 kB\n";
        assert_eq!(memory_total(meminfo), Some(24_689_528 * 1024));
        assert_eq!(memory_total("MemFree: 1 kB\n"), None);
        assert!(usable().is_some_and(|bytes| bytes > 1 << 20));
    }
}
