//! A length -> that many numbers of either sign below a half, the same in every run.

use std::ops::{Deref, DerefMut};

use espalier_kernels::element::{Element, Real};

/// Bytes of a cache line.
const LINE: usize = 64;

/// `len` numbers.
pub fn numbers<E: Element>(len: usize) -> Vec<E> {
    let value = |i: usize| E::Acc::from_f64(((i * 7919) % 1009) as f64 / 1009.0 - 0.5);
    (0..len).map(|i| E::store(value(i))).collect()
}

/// Numbers that begin with a cache line, as a training's do.
pub struct Lined<E> {
    values: Vec<E>,
    skipped: usize,
}

impl<E: Element> Lined<E> {
    /// The numbers of [`numbers`].
    pub fn numbers(len: usize) -> Self {
        let mut values = numbers::<E>(len + LINE / size_of::<E>());
        let skipped = values.as_ptr().align_offset(LINE);
        values.copy_within(..len, skipped);
        values.truncate(skipped + len);
        Lined { values, skipped }
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
