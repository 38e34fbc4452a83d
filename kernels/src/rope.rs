//! Query or key rows -> the rows rotated by their positions, and back for gradients.
//!
//! With `a = position inv_freq_i`, `c = s cos a`, `d = s sin a` and the two halves `x`, `x'` of a
//! head: `y_i = x_i c - x'_i d`, `y'_i = x'_i c + x_i d` (the half-split layout, `rotate_half`).

use espalier_interface::Services;

use crate::element::{Element, Real};
use crate::simd::vectorized;
use crate::split::{chunks_mut, rows_per_chunk};

/// Widest rotated part of a head, a bound on the angles on the stack.
pub const MAX_ROTARY: usize = 1024;

/// The direction of a rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// By the angle: the op itself.
    Forward,
    /// By its transpose: the gradient.
    Backward,
}

/// Writes `y`, each head of `x` rotated by its token's position.
///
/// Angles, cosines and sines are f32, as in Hugging Face's `LlamaRotaryEmbedding`; f64 in the
/// reference mode. The rotation itself runs in the accumulation dtype and is rounded once.
///
/// # Shapes
/// `x`, `y`: `[T, H * K]`; `positions`: `[T]`; `inv_freq`: `[K / 2]`, or fewer where only the first
/// part of a head is rotated: the rest is copied. `scaling` multiplies cosines and sines.
pub fn rope<E: Element>(
    services: &dyn Services,
    x: &[E],
    positions: &[i32],
    (head_width, inv_freq): (usize, &[f32]),
    scaling: f64,
    direction: Direction,
    y: &mut [E],
) {
    if positions.is_empty() {
        return;
    }
    let width = x.len() / positions.len();
    let half = inv_freq.len();
    assert!(
        x.len() == y.len() && x.len() == width * positions.len(),
        "rope: shapes disagree"
    );
    assert!(
        width.is_multiple_of(head_width),
        "rope: heads are not whole"
    );
    assert!(
        2 * half <= head_width && half <= MAX_ROTARY / 2,
        "rope: a head is too narrow"
    );
    chunks_mut(services, y, rows_per_chunk(width) * width, |start, y| {
        let (mut cos, mut sin) = (
            [E::Acc::ZERO; MAX_ROTARY / 2],
            [E::Acc::ZERO; MAX_ROTARY / 2],
        );
        let x = &x[start..start + y.len()];
        let rows = x.chunks_exact(width).zip(y.chunks_exact_mut(width));
        for ((x, y), &position) in rows.zip(&positions[start / width..]) {
            angles::<E::Acc>(
                position,
                inv_freq,
                scaling,
                &mut cos[..half],
                &mut sin[..half],
            );
            if direction == Direction::Backward {
                sin[..half].iter_mut().for_each(|s| *s = -*s);
            }
            vectorized(
                #[inline(always)]
                || {
                    for (x, y) in x
                        .chunks_exact(head_width)
                        .zip(y.chunks_exact_mut(head_width))
                    {
                        rotate(x, &cos[..half], &sin[..half], y);
                    }
                },
            );
        }
    });
}

/// `s cos(position inv_freq_i)` and `s sin(position inv_freq_i)`.
fn angles<R: Real>(position: i32, inv_freq: &[f32], scaling: f64, cos: &mut [R], sin: &mut [R]) {
    let (position, scaling) = (R::from_f64(f64::from(position)), R::from_f64(scaling));
    for ((c, s), &f) in cos.iter_mut().zip(sin).zip(inv_freq) {
        let angle = position * R::from_f64(f64::from(f));
        *c = angle.cos() * scaling;
        *s = angle.sin() * scaling;
    }
}

/// One head rotated.
#[inline(always)]
fn rotate<E: Element>(x: &[E], cos: &[E::Acc], sin: &[E::Acc], y: &mut [E]) {
    let half = cos.len();
    let (x1, rest) = x.split_at(half);
    let (x2, tail) = rest.split_at(half);
    let (y1, rest) = y.split_at_mut(half);
    let (y2, copied) = rest.split_at_mut(half);
    for i in 0..half {
        let (a, b) = (x1[i].load(), x2[i].load());
        y1[i] = E::store(a * cos[i] - b * sin[i]);
        y2[i] = E::store(b * cos[i] + a * sin[i]);
    }
    copied.copy_from_slice(tail);
}

#[cfg(test)]
mod tests;
