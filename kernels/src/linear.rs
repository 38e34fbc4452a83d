//! Tokens and a weight, dense or packed -> the linear layer's output and its gradients.
//!
//! Legend: `T` tokens, `N x M` the weight `[out, in]`. `E` is what tokens are stored in; everything
//! is computed in `E::Acc`: f32, or f64 for f64. A weight of another dtype, or a packed one, is
//! widened or decoded to f32 while it is packed for the product and is *not* rounded to bf16 in
//! between. A packed weight therefore gives the bits that the dense f32 weight of its decoded
//! values gives.

use espalier_interface::Services;

use crate::element::Element;
use crate::matmul::{Dense, Operand, Output, Rows, Scalar, Update, matmul};

pub use crate::matmul::workspace_bytes;

/// `y = x W^T (+ bias)`.
///
/// # Shapes
/// x `[T, M]`, weight `[N, M]`, bias `[1, N]`, y `[T, N]`.
///
/// # Panics
/// Where shapes disagree, or the workspace is under [`workspace_bytes`] of one thread.
pub fn forward<E: Element>(
    services: &dyn Services,
    x: &[E],
    weight: &dyn Rows<E::Acc>,
    bias: Option<&dyn Rows<E::Acc>>,
    y: &mut [E],
    workspace: &mut [u8],
) where
    E::Acc: Scalar,
{
    let (out_width, in_width) = weight.size();
    let x = tokens(x, in_width, y.len(), out_width);
    let out = Output {
        values: y,
        stride: out_width,
        update: Update::Overwrite,
        bias,
    };
    let (x, weight) = (Operand::over_cols(&x), Operand::over_cols(weight));
    matmul(services, x, weight, out, workspace);
}

/// `dx (=|+=) dy W`.
///
/// # Shapes
/// dy `[T, N]`, weight `[N, M]`, dx `[T, M]`.
///
/// # Panics
/// As [`forward`].
pub fn input_backward<E: Element>(
    services: &dyn Services,
    dy: &[E],
    weight: &dyn Rows<E::Acc>,
    dx: &mut [E],
    update: Update,
    workspace: &mut [u8],
) where
    E::Acc: Scalar,
{
    let (out_width, in_width) = weight.size();
    let dy = tokens(dy, out_width, dx.len(), in_width);
    let out = Output {
        values: dx,
        stride: in_width,
        update,
        bias: None,
    };
    let (dy, weight) = (Operand::over_cols(&dy), Operand::over_rows(weight));
    matmul(services, dy, weight, out, workspace);
}

/// `dW += dy^T x`, in the dtype that sums run in.
///
/// # Shapes
/// dy `[T, N]`, x `[T, M]`, dweight `[N, M]` given as `size`.
///
/// # Panics
/// As [`forward`].
pub fn weight_backward<E: Element>(
    services: &dyn Services,
    dy: &[E],
    x: &[E],
    dweight: &mut [E::Acc],
    size: (usize, usize),
    workspace: &mut [u8],
) where
    E::Acc: Scalar,
{
    let (out_width, in_width) = size;
    assert_eq!(
        dweight.len(),
        out_width * in_width,
        "a gradient has another shape"
    );
    let x = tokens(x, in_width, dy.len(), out_width);
    let dy = Dense::new(dy, Rows::<E::Acc>::size(&x).0, out_width);
    let out = Output {
        values: dweight,
        stride: in_width,
        update: Update::Accumulate,
        bias: None,
    };
    let (dy, x) = (Operand::over_rows(&dy), Operand::over_rows(&x));
    matmul::<E::Acc>(services, dy, x, out, workspace);
}

/// `values` as `[T, width]`, with the `T` of `other_len` elements of `other_width` a token.
fn tokens<E: Element>(
    values: &[E],
    width: usize,
    other_len: usize,
    other_width: usize,
) -> Dense<'_, E> {
    let count = match (width, other_width) {
        (0, 0) => 0,
        (0, other_width) => other_len / other_width,
        (width, _) => values.len() / width,
    };
    assert_eq!(
        (values.len(), other_len),
        (count * width, count * other_width),
        "a linear's tokens disagree"
    );
    Dense::new(values, count, width)
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;
    use crate::decode::{Packed, TileDecoder};
    use crate::element::{Real, convert};
    use crate::matmul::tests::numbers;
    use crate::matmul::threads::Threads;

    /// `y`, `dx` and `dW` of one layer.
    fn layer<E: Element>(
        weight: &dyn Rows<E::Acc>,
        tokens: usize,
        threads: usize,
    ) -> (Vec<E>, Vec<E>, Vec<E::Acc>)
    where
        E::Acc: Scalar,
    {
        let (n, m) = weight.size();
        let (x, dy) = (numbers::<E>(tokens * m, 1), numbers::<E>(tokens * n, 2));
        let bias = numbers::<bf16>(n, 3);
        let bias = Dense::new(&bias, 1, n);
        let mut workspace = vec![0; workspace_bytes::<E>(threads)];
        let (mut y, mut dx) = (
            vec![E::default(); tokens * n],
            vec![E::default(); tokens * m],
        );
        let mut dweight = vec![E::Acc::ONE; n * m];
        let services = Threads(threads);
        forward(&services, &x, weight, Some(&bias), &mut y, &mut workspace);
        input_backward(
            &services,
            &dy,
            weight,
            &mut dx,
            Update::Overwrite,
            &mut workspace,
        );
        weight_backward(&services, &dy, &x, &mut dweight, (n, m), &mut workspace);
        (y, dx, dweight)
    }

    #[test]
    fn gradients_are_those_of_the_output() {
        // The layer is linear: <dy, y(x) - bias> = <dx, x> = <dW - 1, W>, exactly but for rounding.
        fn check<W: Element>() {
            let [tokens, n, m] = [19, 70, 41];
            let w = numbers::<W>(n * m, 4);
            let (y, dx, dw) = layer::<f64>(&Dense::new(&w, n, m), tokens, 2);
            let (x, dy) = (numbers::<f64>(tokens * m, 1), numbers::<f64>(tokens * n, 2));
            let bias: Vec<f64> = numbers::<bf16>(n, 3).into_iter().map(convert).collect();
            let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
            let along: f64 = (0..tokens * n).map(|i| dy[i] * (y[i] - bias[i % n])).sum();
            assert!((along - dot(&dx, &x)).abs() < 1e-11);
            let grown: f64 = (0..n * m)
                .map(|i| (dw[i] - 1.0) * convert::<W, f64>(w[i]))
                .sum();
            assert!((along - grown).abs() < 1e-11);
            assert!(along.abs() > 1e-3);
        }
        check::<f64>();
        check::<f32>();
        check::<bf16>();
        check::<f16>();
    }

    /// Decodes to multiples of 1/64.
    struct Steps(usize, usize);

    impl TileDecoder for Steps {
        fn size(&self) -> (usize, usize) {
            (self.0, self.1)
        }

        fn decode(
            &self,
            rows: std::ops::Range<usize>,
            cols: std::ops::Range<usize>,
            out: &mut [f32],
        ) {
            let flat = rows.flat_map(|row| cols.clone().map(move |col| row * self.1 + col));
            out.iter_mut()
                .zip(flat)
                .for_each(|(out, i)| *out = (i * 37 % 129) as f32 / 64.0 - 1.0);
        }
    }

    #[test]
    fn a_packed_weight_gives_the_bits_of_its_decoded_values() {
        fn check<E: Element>()
        where
            E::Acc: Scalar,
        {
            let (n, m) = (150, 530);
            let mut decoded = vec![0.0f32; n * m];
            Steps(n, m).decode(0..n, 0..m, &mut decoded);
            for tokens in [0, 1, 600] {
                let packed = layer::<E>(&Packed(&Steps(n, m)), tokens, 1);
                let dense = layer::<E>(&Dense::new(&decoded, n, m), tokens, 2);
                assert!(packed == dense, "{tokens} tokens");
            }
        }
        check::<f32>();
        check::<bf16>();
        check::<f64>();
    }
}
