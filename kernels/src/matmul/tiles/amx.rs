//! The instructions for tiles of the processor, in inline assembly: stable Rust has no intrinsics
//! for them.
#![allow(unsafe_code)] // The instructions.

use std::arch::asm;
use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
use std::marker::PhantomData;

use super::{TileShapes, TileUnit};

/// The tiles of the thread that it was made on. They are released when it is dropped: tiles in use
/// cost 8 KiB at each switch of threads.
pub(crate) struct Amx {
    /// Rows of the panels that tiles are shaped for; 0 before the first.
    rows: usize,
    /// Stays on its thread.
    thread: PhantomData<*mut ()>,
}

impl Amx {
    /// The calling thread's tiles.
    ///
    /// # Safety
    /// The processor has AMX-BF16, the system permits it, and the thread has no other unit.
    pub unsafe fn new() -> Self {
        Amx {
            rows: 0,
            thread: PhantomData,
        }
    }
}

impl TileUnit for Amx {
    #[inline]
    fn configure(&mut self, rows: usize) {
        if rows == self.rows {
            return;
        }
        let config = TileShapes::of(rows);
        // SAFETY: a valid configuration, on a processor with the instruction: `new` was promised.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) std::ptr::from_ref(config), options(nostack, readonly));
        }
        self.rows = rows;
    }

    #[inline]
    unsafe fn zero<const T: usize>(&mut self) {
        // SAFETY: no memory; the caller's promises.
        unsafe { asm!("tilezero tmm{t}", t = const T, options(nostack, nomem)) };
    }

    #[inline]
    unsafe fn load<const T: usize>(&mut self, from: *const u8, stride: usize) {
        // SAFETY: the caller's promises.
        unsafe {
            asm!("tileloadd tmm{t}, [{from} + {stride}*1]", t = const T, from = in(reg) from,
                stride = in(reg) stride, options(nostack, readonly));
        }
    }

    #[inline]
    unsafe fn store<const T: usize>(&mut self, to: *mut u8, stride: usize) {
        // SAFETY: the caller's promises.
        unsafe {
            asm!("tilestored [{to} + {stride}*1], tmm{t}", t = const T, to = in(reg) to,
                stride = in(reg) stride, options(nostack));
        }
    }

    #[inline]
    fn ask_for(&self, line: *const u8) {
        // SAFETY: a hint, which any address may be given to.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.cast()) };
    }

    #[inline]
    unsafe fn dot<const C: usize, const A: usize, const B: usize>(&mut self) {
        // SAFETY: no memory; the caller's promises.
        unsafe {
            asm!("tdpbf16ps tmm{c}, tmm{a}, tmm{b}", c = const C, a = const A, b = const B,
                options(nostack, nomem));
        }
    }
}

impl Drop for Amx {
    #[inline]
    fn drop(&mut self) {
        if self.rows > 0 {
            // SAFETY: tiles of this thread, which nothing uses any more.
            unsafe { asm!("tilerelease", options(nostack, nomem)) };
        }
    }
}
