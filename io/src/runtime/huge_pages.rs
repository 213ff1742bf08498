//! Which memory is backed by huge pages: that of the indexes, whose look-ups miss the TLB otherwise, and
//! no other. One byte received into a buffer of huge pages would make 2 MiB resident, and memory is to
//! follow what was sent.

use std::ffi::c_int;
use std::ops::Range;
use std::ptr::{self, NonNull};

use smg_core::index::use_source;

use crate::runtime::blocks::{self, BLOCK_BYTES, Provider};
use crate::shared::Memory;

/// Linux 6.18: huge pages are off but where they were asked for (`linux/prctl.h`; not in libc yet).
const EXCEPT_ADVISED: c_int = 1 << 1;

/// Arranges that. Where the kernel cannot tell indexes and buffers apart nothing has huge pages. To be
/// called before there are indexes.
pub fn for_indexes_only(memory: Memory) {
    if !(disable(EXCEPT_ADVISED) || only_where_asked_for()) {
        disable(0);
        return;
    }
    (memory.ask_for_small_pages)();
    for range in std::fs::read_to_string("/proc/self/smaps").iter().flat_map(|maps| advised(maps)) {
        // SAFETY: a mapping of this process, and the advice does not change what is in it.
        unsafe {
            libc::madvise(
                ptr::without_provenance_mut(range.start),
                range.len(),
                libc::MADV_NOHUGEPAGE,
            )
        };
    }
    use_source(|layout| blocks::take(&Provider { take, give }, layout));
}

/// Turns huge pages off for this process, but for `exceptions`. False if the kernel cannot.
fn disable(exceptions: c_int) -> bool {
    // SAFETY: a plain syscall.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, exceptions, 0, 0) == 0 }
}

/// Whether the machine's setting is that memory has huge pages only where a program asks for them.
fn only_where_asked_for() -> bool {
    std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
        .is_ok_and(|setting| setting.contains("[madvise]"))
}

/// The mappings that huge pages were asked for, of `/proc/self/smaps` (proc_pid_smaps(5)).
fn advised(smaps: &str) -> impl Iterator<Item = Range<usize>> {
    let mut mapping = 0..0;
    smaps.lines().filter_map(move |line| {
        let mut words = line.split_ascii_whitespace();
        let first = words.next()?;
        if first == "VmFlags:" {
            return words.any(|flag| flag == "hg").then(|| mapping.clone());
        }
        if let Some((start, end)) = first.split_once('-')
            && let (Ok(start), Ok(end)) =
                (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16))
        {
            mapping = start..end;
        }
        None
    })
}

/// Memory of its own for a block.
fn take() -> Option<NonNull<u8>> {
    // So much more that a block lies in it somewhere.
    let length = 2 * BLOCK_BYTES;
    // SAFETY: new memory, wherever the kernel likes.
    let start = unsafe {
        libc::mmap(
            ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return None;
    }
    let before = start.align_offset(BLOCK_BYTES);
    let block = start.wrapping_byte_add(before);
    unmap(start, before);
    unmap(block.wrapping_byte_add(BLOCK_BYTES), BLOCK_BYTES - before);
    // SAFETY: the block, which nobody uses yet. Without the advice it has small pages.
    unsafe { libc::madvise(block, BLOCK_BYTES, libc::MADV_HUGEPAGE) };
    NonNull::new(block.cast())
}

/// Gives a block back to the system.
///
/// # Safety
/// It is of [`take`], and nobody uses it any more.
unsafe fn give(block: NonNull<u8>) {
    unmap(block.as_ptr().cast(), BLOCK_BYTES);
}

/// Only for memory of [`take`] that nobody uses.
fn unmap(start: *mut libc::c_void, length: usize) {
    if length > 0 {
        // SAFETY: ours, and unused. A failure (too many mappings) leaves it unused.
        unsafe { libc::munmap(start, length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_that_asked_for_huge_pages_are_found() {
        let smaps = "\
20000000000-20040000000 rw-p 00000000 00:00 0 
Size:            1048576 kB
THPeligible:           1
VmFlags: rd wr mr mw me nr hg 
55d5ecb9f000-55d5ed1e1000 r-xp 00000000 fe:00 5308721   /usr/bin/smg hg
Rss:                4356 kB
VmFlags: rd ex mr mw me 
7f0000000000-7f0000200000 rw-p 00000000 00:00 0 
VmFlags: rd wr hg mr
";
        let found: Vec<_> = advised(smaps).collect();
        assert_eq!(found, [0x200_0000_0000..0x200_4000_0000, 0x7f00_0000_0000..0x7f00_0020_0000]);
    }

    #[test]
    fn blocks_are_aligned_and_can_be_written() {
        let blocks: Vec<_> = (0..3).filter_map(|_| take()).collect();
        assert_eq!(blocks.len(), 3);
        for block in blocks {
            assert_eq!(block.as_ptr().addr() % BLOCK_BYTES, 0);
            // SAFETY: it is as long as that, and given back once.
            unsafe {
                block.as_ptr().add(BLOCK_BYTES - 1).write(1);
                give(block);
            }
        }
    }
}
