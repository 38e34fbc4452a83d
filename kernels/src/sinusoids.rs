//! Positions -> cosines or sines of multiples of them; heads -> heads with their halves exchanged.

use espalier_interface::Services;

use crate::element::{Element, Real};
use crate::split::{chunks_mut, rows_per_chunk};

/// A function of an angle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wave {
    /// The cosine.
    Cosine,
    /// The sine.
    Sine,
}

/// Writes `y_ti = amplitude_i f(position_t inv_freq_i)`, in the accumulation dtype, as
/// [`rope`](crate::rope::rope) has its angles.
///
/// # Shapes
/// `positions`: `[T]`; `inv_freq`, `amplitude`: `[K]`; `y`: `[T, K]`.
pub fn sinusoids<E: Element>(
    services: &dyn Services,
    positions: &[i32],
    (inv_freq, amplitude): (&[f32], &[f32]),
    wave: Wave,
    y: &mut [E],
) {
    let width = inv_freq.len();
    assert!(
        amplitude.len() == width && y.len() == positions.len() * width,
        "sinusoids: shapes disagree"
    );
    chunks_mut(services, y, rows_per_chunk(width) * width, |start, y| {
        let rows = y.chunks_exact_mut(width).zip(&positions[start / width..]);
        for (y, &position) in rows {
            let position = E::Acc::from_f64(f64::from(position));
            for ((y, &f), &a) in y.iter_mut().zip(inv_freq).zip(amplitude) {
                let angle = position * E::Acc::from_f64(f64::from(f));
                let value = if wave == Wave::Cosine {
                    angle.cos()
                } else {
                    angle.sin()
                };
                *y = E::store(value * E::Acc::from_f64(f64::from(a)));
            }
        }
    });
}

/// Writes each head with its first `half` columns and the `half` after them exchanged.
///
/// # Shapes
/// `x`, `y`: `[T, H K]`, `head_width` is `K`.
pub fn swap_halves<E: Element>(
    services: &dyn Services,
    x: &[E],
    [head_width, half]: [usize; 2],
    y: &mut [E],
) {
    assert!(
        x.len() == y.len() && x.len().is_multiple_of(head_width) && 2 * half <= head_width,
        "swap_halves: shapes disagree"
    );
    let chunk = rows_per_chunk(head_width) * head_width;
    chunks_mut(services, y, chunk, |start, y| {
        let heads = x[start..].chunks_exact(head_width);
        for (x, y) in heads.zip(y.chunks_exact_mut(head_width)) {
            y[..half].copy_from_slice(&x[half..2 * half]);
            y[half..2 * half].copy_from_slice(&x[..half]);
            y[2 * half..].copy_from_slice(&x[2 * half..]);
        }
    });
}

#[cfg(test)]
mod tests {
    use espalier_interface::Serial;

    use super::*;
    use crate::check;

    #[test]
    fn rows_are_waves_of_their_position() {
        let mut y = [0.0f64; 4];
        let (inv_freq, amplitude) = ([1.0, 0.5], [2.0, -1.0]);
        let waves = (&inv_freq[..], &amplitude[..]);
        sinusoids(&Serial, &[0, 3], waves, Wave::Cosine, &mut y);
        assert_eq!(y, [2.0, -1.0, 2.0 * 3f64.cos(), -(1.5f64.cos())]);
        sinusoids(&Serial, &[0, 3], waves, Wave::Sine, &mut y);
        assert_eq!(y, [0.0, -0.0, 2.0 * 3f64.sin(), -(1.5f64.sin())]);
    }

    #[test]
    fn halves_are_exchanged_and_the_rest_stays() {
        let x = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0];
        let mut y = [0.0; 10];
        swap_halves(&Serial, &x, [5, 2], &mut y);
        assert_eq!(y, [3.0, 4.0, 1.0, 2.0, 5.0, 8.0, 9.0, 6.0, 7.0, 10.0]);
    }

    #[test]
    fn threads_agree() {
        let positions: Vec<i32> = (0..400).collect();
        let inv_freq = check::floats(&check::numbers(100, 1));
        check::same_on_two_threads(|services| {
            let mut y = vec![0f32; 400 * 100];
            let waves = (&inv_freq[..], &inv_freq[..]);
            sinusoids(services, &positions, waves, Wave::Sine, &mut y);
            let mut swapped = y.clone();
            swap_halves(services, &y, [20, 10], &mut swapped);
            (y, swapped)
        });
    }
}
