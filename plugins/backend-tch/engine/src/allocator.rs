//! glibc's allocator, which libtorch takes its tensors from.
#![allow(unsafe_code)] // mallopt.

use std::sync::Once;

/// Bytes by which the heap grows.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const GROWTH: i32 = 64 << 20;

/// Keeps glibc from returning freed memory to the kernel: it would map, fault in and unmap the
/// pages of each tensor of a launch, which costs up to half of a step's time. The memory stays the
/// process's own until it ends; its size is that of the largest launch's tensors.
pub fn keep_memory() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        // SAFETY: mallopt changes parameters of the allocator only. glibc locks it meanwhile.
        unsafe {
            libc::mallopt(libc::M_MMAP_MAX, 0);
            libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
            libc::mallopt(libc::M_TOP_PAD, GROWTH);
        }
    });
}
