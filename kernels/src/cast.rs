//! Elements of one dtype -> elements of another, rounded to nearest, ties to even.

use espalier_interface::Services;

use crate::element::{Element, convert};
use crate::simd::vectorized;
use crate::split::{CHUNK, chunks_mut};

/// Writes `y = x` in the dtype of `y`.
///
/// # Shapes
/// Both of `n` elements.
pub fn cast<A: Element, B: Element>(services: &dyn Services, x: &[A], y: &mut [B]) {
    assert!(x.len() == y.len(), "cast: shapes disagree");
    chunks_mut(services, y, CHUNK, |start, y| {
        vectorized(
            #[inline(always)]
            move || {
                let x = &x[start..start + y.len()];
                y.iter_mut().zip(x).for_each(|(y, &x)| *y = convert(x));
            },
        );
    });
}

#[cfg(test)]
mod tests {
    use espalier_interface::Serial;
    use half::bf16;

    use super::*;

    #[test]
    fn rounds_once_and_widens_exactly() {
        // 1 + 2^-8 is halfway between two bf16 numbers; the even one is 1.
        let x = [1.003_906_25f64, 1.0 + 3.0 / 256.0, -0.1];
        let mut narrow = [bf16::ZERO; 3];
        cast(&Serial, &x, &mut narrow);
        assert_eq!(narrow.map(bf16::to_f32), [1.0, 1.015_625, -0.100_097_656]);
        let mut wide = [0.0f32; 3];
        cast(&Serial, &narrow, &mut wide);
        assert_eq!(wide, narrow.map(bf16::to_f32));
    }
}
