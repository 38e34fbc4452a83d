//! Rows plus a bias, and rows of gradients -> the bias's gradient.

use espalier_interface::Services;

use crate::columns::{add_sums, by_column};
use crate::element::Element;

/// Writes `y_td = x_td + bias_d`.
///
/// # Shapes
/// `x`, `y`: `[T, D]`; `bias`: `[D]`, in any float dtype.
pub fn add_bias<E: Element, W: Element>(services: &dyn Services, x: &[E], bias: &[W], y: &mut [E]) {
    by_column(
        services,
        x,
        bias,
        y,
        #[inline(always)]
        |x, b| x + b,
    );
}

/// Adds `dbias_d += sum_t dy_td`, tokens in order, in spans of 64.
///
/// # Shapes
/// `dy`: `[T, D]`; `dbias`: `[D]`.
pub fn bias_backward<E: Element, G: Element>(services: &dyn Services, dy: &[E], dbias: &mut [G]) {
    let width = dbias.len();
    assert!(
        dy.len().is_multiple_of(width),
        "bias_backward: rows are not whole"
    );
    add_sums::<E, G>(
        services,
        dy.len() / width,
        dbias,
        #[inline(always)]
        |_, first, sums| {
            let row = dy[first..].iter();
            sums.iter_mut()
                .zip(row)
                .for_each(|(sum, &dy)| *sum += dy.load());
        },
    );
}

#[cfg(test)]
mod tests {
    use espalier_interface::Serial;

    use super::*;
    use crate::check;

    #[test]
    fn gradient_is_the_difference() {
        let (t, d) = (4, 9);
        let (x, bias, dy) = (
            check::numbers(t * d, 1),
            check::numbers(d, 2),
            check::numbers(t * d, 3),
        );
        let mut db = vec![0.0f64; d];
        bias_backward(&Serial, &dy, &mut db);
        let loss = |bias: &[f64]| {
            let mut y = vec![0.0; t * d];
            add_bias(&Serial, &x, bias, &mut y);
            check::dot(&y, &dy)
        };
        check::gradient(loss, &bias, &db);
    }

    #[test]
    fn threads_agree() {
        let (t, d) = (200, 300);
        let dy = check::floats(&check::numbers(t * d, 3));
        check::same_on_two_threads(|services| {
            let mut db = vec![1.0f32; d];
            bias_backward(services, &dy, &mut db);
            db
        });
    }
}
