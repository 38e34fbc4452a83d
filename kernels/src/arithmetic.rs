//! Elementwise sums, products and quotients of tensors of one dtype.

use espalier_interface::Services;

use crate::element::{Element, Real, convert_real};
use crate::simd::vectorized;
use crate::split::{CHUNK, chunks_mut};

/// Writes `y = a + alpha * b`.
pub fn add<E: Element>(services: &dyn Services, a: &[E], b: &[E], alpha: f64, y: &mut [E]) {
    let alpha = E::Acc::from_f64(alpha);
    binary(
        services,
        a,
        b,
        y,
        #[inline(always)]
        move |a, b| a + alpha * b,
    );
}

/// Writes `y = a * b`.
pub fn mul<E: Element>(services: &dyn Services, a: &[E], b: &[E], y: &mut [E]) {
    binary(
        services,
        a,
        b,
        y,
        #[inline(always)]
        |a, b| a * b,
    );
}

/// Writes `y = a / b`.
pub fn div<E: Element>(services: &dyn Services, a: &[E], b: &[E], y: &mut [E]) {
    binary(
        services,
        a,
        b,
        y,
        #[inline(always)]
        |a, b| a / b,
    );
}

/// Writes `y = alpha * x`.
pub fn scale<E: Element>(services: &dyn Services, x: &[E], alpha: f64, y: &mut [E]) {
    assert!(x.len() == y.len(), "scale: shapes disagree");
    let alpha = E::Acc::from_f64(alpha);
    chunks_mut(services, y, CHUNK, |start, y| {
        vectorized(
            #[inline(always)]
            move || {
                let x = &x[start..start + y.len()];
                y.iter_mut()
                    .zip(x)
                    .for_each(|(y, &x)| *y = E::store(alpha * x.load()));
            },
        );
    });
}

/// Multiplies `y` by `alpha` in place.
pub fn scale_in_place<E: Element>(services: &dyn Services, alpha: f64, y: &mut [E]) {
    let alpha = E::Acc::from_f64(alpha);
    chunks_mut(services, y, CHUNK, |_, y| {
        vectorized(
            #[inline(always)]
            move || {
                y.iter_mut().for_each(|y| *y = E::store(alpha * y.load()));
            },
        );
    });
}

/// Adds `y += alpha * x`, in the dtype that `y` is accumulated in.
pub fn accumulate<E: Element, G: Element>(
    services: &dyn Services,
    x: &[E],
    alpha: f64,
    y: &mut [G],
) {
    assert!(x.len() == y.len(), "accumulate: shapes disagree");
    let alpha = G::Acc::from_f64(alpha);
    chunks_mut(services, y, CHUNK, |start, y| {
        vectorized(
            #[inline(always)]
            move || {
                for (y, &x) in y.iter_mut().zip(&x[start..]) {
                    let x: G::Acc = convert_real(x.load());
                    *y = G::store(y.load() + alpha * x);
                }
            },
        );
    });
}

fn binary<E: Element>(
    services: &dyn Services,
    a: &[E],
    b: &[E],
    y: &mut [E],
    f: impl Fn(E::Acc, E::Acc) -> E::Acc + Copy + Sync,
) {
    assert!(
        a.len() == y.len() && b.len() == y.len(),
        "add, mul or div: shapes disagree"
    );
    chunks_mut(services, y, CHUNK, |start, y| {
        vectorized(
            #[inline(always)]
            move || {
                let (a, b) = (&a[start..start + y.len()], &b[start..start + y.len()]);
                for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
                    *y = E::store(f(a.load(), b.load()));
                }
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
    fn sums_products_and_quotients_are_elementwise() {
        let (a, b) = ([1.0f32, 2.0, 3.0], [10.0f32, 20.0, 30.0]);
        let mut y = [0.0f32; 3];
        add(&Serial, &a, &b, 0.5, &mut y);
        assert_eq!(y, [6.0, 12.0, 18.0]);
        mul(&Serial, &a, &b, &mut y);
        assert_eq!(y, [10.0, 40.0, 90.0]);
        div(&Serial, &a, &b, &mut y);
        assert_eq!(y, [1.0 / 10.0, 2.0 / 20.0, 3.0 / 30.0]);
        scale(&Serial, &a, -2.0, &mut y);
        assert_eq!(y, [-2.0, -4.0, -6.0]);
        scale_in_place(&Serial, 0.5, &mut y);
        assert_eq!(y, [-1.0, -2.0, -3.0]);
    }

    #[test]
    fn accumulation_keeps_the_wider_dtype() {
        let x = [bf16::from_f32(1.0), bf16::from_f32(-2.0)];
        let mut y = [1e-4f32, 1e-4];
        accumulate(&Serial, &x, 1.0, &mut y);
        assert_eq!(y, [1.0001, 1e-4 - 2.0]);
    }
}
