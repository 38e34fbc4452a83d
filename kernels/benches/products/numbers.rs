//! A length -> that many numbers of either sign below a half, the same in every run.

use espalier_kernels::element::{Element, Real};

/// `len` numbers.
pub fn numbers<E: Element>(len: usize) -> Vec<E> {
    let value = |i: usize| E::Acc::from_f64(((i * 7919) % 1009) as f64 / 1009.0 - 0.5);
    (0..len).map(|i| E::store(value(i))).collect()
}
