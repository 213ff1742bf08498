//! What the gateway asks of its allocator, mimalloc.

use libmimalloc_sys::{mi_collect, mi_option_set, mi_option_t};
use smg_io::shared::Memory;

/// By itself the allocator gives memory back as time goes by, but only while it is used.
pub const ALLOCATORS: Memory = Memory {
    reclaim: || collect(false),
    trim: || collect(true),
    ask_for_small_pages: || {
        // SAFETY: the option may be changed at any time; it counts for memory mapped from then on.
        unsafe { mi_option_set(ALLOW_THP, 0) };
    },
};

/// `mi_option_allow_thp` of mimalloc 3, which its crate does not name.
const ALLOW_THP: mi_option_t = 43;

fn collect(force: bool) {
    // SAFETY: the function may be called at any time; it only touches the allocator's own state.
    unsafe { mi_collect(force) };
}

#[cfg(test)]
mod tests {
    use std::ffi::{c_int, c_void};

    use super::*;

    unsafe extern "C" {
        fn mi_reserve_os_memory_ex(
            size: usize,
            commit: bool,
            allow_large: bool,
            exclusive: bool,
            arena: *mut *mut c_void,
        ) -> c_int;
    }

    /// KiB that huge pages were asked for.
    fn advised() -> usize {
        let smaps = std::fs::read_to_string("/proc/self/smaps").expect("smaps");
        let mut size = 0;
        let mut sum = 0;
        for line in smaps.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("Size:") => size = words.next().and_then(|kib| kib.parse().ok()).expect("KiB"),
                Some("VmFlags:") if words.any(|flag| flag == "hg") => sum += size,
                _ => {}
            }
        }
        sum
    }

    /// As the allocator does once what it has is used up.
    fn map_more() {
        let mut arena = std::ptr::null_mut();
        // SAFETY: it only adds memory to what the allocator has.
        let error = unsafe { mi_reserve_os_memory_ex(64 << 20, true, true, true, &raw mut arena) };
        assert_eq!(error, 0);
    }

    #[test]
    fn it_stops_asking_for_huge_pages() {
        let before = advised();
        map_more();
        let asked = advised();
        assert!(asked >= before + (64 << 10), "by itself it does");
        (ALLOCATORS.ask_for_small_pages)();
        map_more();
        assert_eq!(advised(), asked);
    }
}
