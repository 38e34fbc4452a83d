//! A length -> that many numbers of either sign below a half, the same in every run.

use std::ops::{Deref, DerefMut};

use espalier_kernels::element::{Element, Real};

/// Bytes of a cache line, and of a huge page.
const LINE: usize = 64;
const HUGE_PAGE: usize = 2 << 20;

/// `len` numbers.
pub fn numbers<E: Element>(len: usize) -> Vec<E> {
    let mut values = Vec::with_capacity(len);
    fill(&mut values, len);
    values
}

/// Appends `len` numbers.
fn fill<E: Element>(values: &mut Vec<E>, len: usize) {
    let value = |i: usize| E::Acc::from_f64(((i * 7919) % 1009) as f64 / 1009.0 - 0.5);
    values.extend((0..len).map(|i| E::store(value(i))));
}

/// Numbers that begin with a cache line, and in huge pages where there are many, as a training's
/// do.
pub struct Lined<E> {
    values: Vec<E>,
    skipped: usize,
}

impl<E: Element> Lined<E> {
    /// The numbers of [`numbers`].
    pub fn numbers(len: usize) -> Self {
        let mut values: Vec<E> = Vec::with_capacity(len + LINE / size_of::<E>());
        ask_for_huge_pages(&mut values);
        let all = values.capacity();
        fill(&mut values, all);
        let skipped = values.as_ptr().align_offset(LINE);
        values.copy_within(..len, skipped);
        values.truncate(skipped + len);
        Lined { values, skipped }
    }
}

/// Asks the system for huge pages in memory that is not written yet.
#[cfg_attr(not(target_os = "linux"), allow(unused_variables))]
fn ask_for_huge_pages<E>(values: &mut Vec<E>) {
    #[cfg(target_os = "linux")]
    {
        let memory = values.spare_capacity_mut();
        let bytes = size_of_val(memory);
        let start = memory.as_mut_ptr().cast::<u8>();
        let skipped = start.align_offset(HUGE_PAGE);
        let whole = bytes.saturating_sub(skipped) / HUGE_PAGE * HUGE_PAGE;
        if whole > 0 {
            // SAFETY: whole pages within the allocation; what they hold does not change. An error
            // leaves small pages.
            unsafe { libc::madvise(start.add(skipped).cast(), whole, libc::MADV_HUGEPAGE) };
        }
    }
}

impl<E> Deref for Lined<E> {
    type Target = [E];

    fn deref(&self) -> &[E] {
        &self.values[self.skipped..]
    }
}

impl<E> DerefMut for Lined<E> {
    fn deref_mut(&mut self) -> &mut [E] {
        &mut self.values[self.skipped..]
    }
}
