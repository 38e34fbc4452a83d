//! Query or key rows -> the rows rotated by their positions, and back for gradients.
//!
//! With `a = position inv_freq_i`, `c = s cos a`, `d = s sin a` and the two halves `x`, `x'` of a
//! head: `y_i = x_i c - x'_i d`, `y'_i = x'_i c + x_i d` (the half-split layout, `rotate_half`).

use espalier_interface::Services;

use crate::element::{Element, Real};
use crate::simd::vectorized;
use crate::split::{chunks_mut, rows_mut2, rows_per_chunk};

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
    shape: (usize, &[f32]),
    scaling: f64,
    direction: Direction,
    y: &mut [E],
) {
    if positions.is_empty() {
        return;
    }
    let width = width(x, positions, shape, y);
    chunks_mut(services, y, rows_per_chunk(width) * width, |start, y| {
        let mut angles = Angles::<E::Acc>::new(shape, scaling, direction);
        let x = &x[start..start + y.len()];
        let rows = x.chunks_exact(width).zip(y.chunks_exact_mut(width));
        for ((x, y), &position) in rows.zip(&positions[start / width..]) {
            angles.turn_to(position);
            angles.rotate(x, y);
        }
    });
}

/// [`rope`] of two values with the same heads' width, whose cosines and sines are computed once.
///
/// # Shapes
/// The first of `x` and of `y`: `[T, H * K]`, the second `[T, J * K]`; else as [`rope`].
pub fn rope_pair<E: Element>(
    services: &dyn Services,
    x: [&[E]; 2],
    positions: &[i32],
    shape: (usize, &[f32]),
    scaling: f64,
    direction: Direction,
    y: [&mut [E]; 2],
) {
    if positions.is_empty() {
        return;
    }
    let widths = [0, 1].map(|index| width(x[index], positions, shape, y[index]));
    let (rows, y) = (rows_per_chunk(widths[0] + widths[1]), y.into());
    rows_mut2(services, y, widths, rows, |first, q, k| {
        let mut angles = Angles::<E::Acc>::new(shape, scaling, direction);
        let rows = q.chunks_exact_mut(widths[0]);
        let rows = rows.zip(k.chunks_exact_mut(widths[1]));
        for (row, (q, k)) in rows.enumerate() {
            let token = first + row;
            let of = |index: usize| &x[index][token * widths[index]..][..widths[index]];
            angles.turn_to(positions[token]);
            angles.rotate(of(0), q);
            angles.rotate(of(1), k);
        }
    });
}

/// The columns of `x` and `y`, whose shapes are checked.
fn width<E>(x: &[E], positions: &[i32], (head_width, inv_freq): (usize, &[f32]), y: &[E]) -> usize {
    let width = x.len() / positions.len();
    assert!(
        x.len() == y.len() && x.len() == width * positions.len(),
        "rope: shapes disagree"
    );
    assert!(
        width.is_multiple_of(head_width),
        "rope: heads are not whole"
    );
    let half = inv_freq.len();
    assert!(
        2 * half <= head_width && half <= MAX_ROTARY / 2,
        "rope: a head is too narrow"
    );
    width
}

/// The cosines and sines of one token.
struct Angles<'a, R> {
    head_width: usize,
    inv_freq: &'a [f32],
    scaling: R,
    direction: Direction,
    cos: [R; MAX_ROTARY / 2],
    sin: [R; MAX_ROTARY / 2],
}

impl<'a, R: Real> Angles<'a, R> {
    fn new((head_width, inv_freq): (usize, &'a [f32]), scaling: f64, direction: Direction) -> Self {
        Angles {
            head_width,
            inv_freq,
            scaling: R::from_f64(scaling),
            direction,
            cos: [R::ZERO; MAX_ROTARY / 2],
            sin: [R::ZERO; MAX_ROTARY / 2],
        }
    }

    /// Sets `s cos(position inv_freq_i)` and `s sin(position inv_freq_i)`, the latter with the sign
    /// of the direction.
    fn turn_to(&mut self, position: i32) {
        let position = R::from_f64(f64::from(position));
        let places = self.cos.iter_mut().zip(&mut self.sin);
        for ((c, s), &f) in places.zip(self.inv_freq) {
            let angle = position * R::from_f64(f64::from(f));
            *c = angle.cos() * self.scaling;
            *s = angle.sin() * self.scaling;
            if self.direction == Direction::Backward {
                *s = -*s;
            }
        }
    }

    /// Writes `y`, the heads of a row `x` rotated.
    fn rotate<E: Element<Acc = R>>(&self, x: &[E], y: &mut [E]) {
        let (head_width, half) = (self.head_width, self.inv_freq.len());
        vectorized(
            #[inline(always)]
            || {
                let heads = x.chunks_exact(head_width);
                for (x, y) in heads.zip(y.chunks_exact_mut(head_width)) {
                    rotate(x, &self.cos[..half], &self.sin[..half], y);
                }
            },
        );
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
