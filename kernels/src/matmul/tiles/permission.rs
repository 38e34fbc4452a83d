//! This processor and this system -> whether the process may use AMX-BF16.
#![allow(unsafe_code)] // Instructions that have no safe form.

use std::arch::asm;
use std::arch::x86_64::{__cpuid_count, CpuidResult};
use std::sync::OnceLock;

/// True where the processor has AMX for bf16.
pub(crate) fn is_there() -> bool {
    if cpuid(0).eax < 7 {
        return false;
    }
    let features = cpuid(7).edx;
    let (bf16, tile) = (features >> 22 & 1, features >> 24 & 1);
    (bf16, tile) == (1, 1)
}

/// A leaf of CPUID.
#[allow(unused_unsafe)] // Safe since Rust 1.94.
fn cpuid(leaf: u32) -> CpuidResult {
    // SAFETY: processors of x86-64 have the instruction.
    unsafe { __cpuid_count(leaf, 0) }
}

/// True where, besides, the system saves tiles and grants them to this process, which is asked for
/// once.
pub(crate) fn is_permitted() -> bool {
    static PERMITTED: OnceLock<bool> = OnceLock::new();
    *PERMITTED.get_or_init(|| is_there() && are_tiles_saved() && ask_for_tiles())
}

/// True where the system saves the tiles' shapes and data when it switches threads (bits 17 and 18
/// of XCR0).
fn are_tiles_saved() -> bool {
    let has_xgetbv = cpuid(1).ecx >> 27 & 1 == 1;
    if !has_xgetbv {
        return false;
    }
    let low: u32;
    // SAFETY: the system has enabled the instruction, as CPUID says; it only reads a register.
    unsafe {
        asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") _, options(nostack, nomem));
    }
    low >> 17 & 3 == 3
}

/// `arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA)`: without it the first use of a tile ends the
/// process. The grant is for all threads.
#[cfg(target_os = "linux")]
fn ask_for_tiles() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: i64 = 0x1023;
    const XTILEDATA: i64 = 18;
    let result: i64;
    // SAFETY: the call reads and writes no memory of this process.
    unsafe {
        asm!("syscall", inlateout("rax") ARCH_PRCTL => result, in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XTILEDATA, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result == 0
}

/// Only Linux is asked.
#[cfg(not(target_os = "linux"))]
fn ask_for_tiles() -> bool {
    false
}
