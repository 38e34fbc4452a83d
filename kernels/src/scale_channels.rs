//! Rows -> each channel times its number, and that number's gradient.

use espalier_interface::Services;

use crate::columns::{add_sums, by_column};
use crate::element::Element;

/// Writes `y_tn = x_tn weight_n`.
///
/// # Shapes
/// `x`, `y`: `[T, N]`; `weight`: `[N]`, in any float dtype.
pub fn scale_channels<E: Element, W: Element>(
    services: &dyn Services,
    x: &[E],
    weight: &[W],
    y: &mut [E],
) {
    by_column(
        services,
        x,
        weight,
        y,
        #[inline(always)]
        |x, w| x * w,
    );
}

/// Adds the weight's gradient: `dweight_n += sum_t dy_tn x_tn`, as [`add_sums`] adds.
///
/// # Shapes
/// `dy`, `x`: `[T, N]`; `dweight`: `[N]`.
pub fn scale_channels_weight_backward<E: Element, G: Element>(
    services: &dyn Services,
    dy: &[E],
    x: &[E],
    dweight: &mut [G],
) {
    let width = dweight.len();
    assert!(
        x.len() == dy.len() && dy.len().is_multiple_of(width),
        "scale_channels_weight_backward: shapes disagree"
    );
    add_sums::<E, G>(
        services,
        dy.len() / width,
        dweight,
        #[inline(always)]
        |_, first, sums| {
            let pairs = dy[first..].iter().zip(&x[first..]);
            for (sum, (&dy, &x)) in sums.iter_mut().zip(pairs) {
                *sum += dy.load() * x.load();
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use espalier_interface::Serial;

    use super::*;
    use crate::check;

    #[test]
    fn gradients_are_the_differences() {
        let (t, n) = (4, 9);
        let (x, w) = (check::numbers(t * n, 1), check::numbers(n, 2));
        let dy = check::numbers(t * n, 3);
        let forward = |x: &[f64], w: &[f64]| {
            let mut y = vec![0.0; t * n];
            scale_channels(&Serial, x, w, &mut y);
            check::dot(&y, &dy)
        };
        // The gradient of the input is the same op on the output's.
        let mut dx = vec![0.0; t * n];
        scale_channels(&Serial, &dy, &w, &mut dx);
        check::gradient(|x| forward(x, &w), &x, &dx);
        let mut dw = vec![0.5f64; n];
        scale_channels_weight_backward(&Serial, &dy, &x, &mut dw);
        dw.iter_mut().for_each(|g| *g -= 0.5);
        check::gradient(|w| forward(&x, w), &w, &dw);
    }

    #[test]
    fn f32_and_threads_agree() {
        let (t, n) = (200, 300);
        let (x, dy) = (check::numbers(t * n, 1), check::numbers(t * n, 3));
        let (xf, dyf) = (check::floats(&x), check::floats(&dy));
        let wf = check::floats(&check::numbers(n, 2));
        let run = |services: &dyn Services| {
            let (mut y, mut dw) = (vec![0f32; t * n], vec![0f32; n]);
            scale_channels(services, &xf, &wf, &mut y);
            scale_channels_weight_backward(services, &dyf, &xf, &mut dw);
            (y, dw)
        };
        check::same_on_two_threads(run);
        let mut dw = vec![0.0f64; n];
        scale_channels_weight_backward(&Serial, &dy, &x, &mut dw);
        check::close(&run(&Serial).1, &dw, 1e-5);
    }
}
