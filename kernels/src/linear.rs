//! Tokens and a weight, dense or packed -> the linear layer's output and its gradients.
//!
//! Legend: `T` tokens, `N x M` the weight `[out, in]`. `E` is the storage dtype of tokens; all
//! arithmetic is in `E::Acc`: f32, or f64 for f64. A weight of another dtype, or a packed one, is
//! widened or decoded to f32 while it is packed for the product. It is *not* rounded to bf16 in
//! between, with one exception. Where tokens are bf16, dot products of bf16 ([`Isa::Avx512Bf16`])
//! read both sides in bf16. In either case a packed weight has the bits of the dense f32 weight of
//! its decoded values.

use espalier_interface::Services;

use crate::element::Element;
use crate::matmul::{Dense, Isa, Operand, Output, Rows, Scalar, Update, matmul, matmul_of};

pub use crate::matmul::workspace_bytes;

/// `y = x W^T (+ bias)`, by the kernels of `isa`.
///
/// # Shapes
/// x `[T, M]`, weight `[N, M]`, bias `[1, N]`, y `[T, N]`.
///
/// # Panics
/// Where shapes disagree, the workspace is under [`workspace_bytes`] of one thread, or this CPU
/// lacks `isa`.
pub fn forward<E: Element>(
    isa: Isa,
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
    matmul(isa, services, x, weight, out, workspace);
}

/// `dx (=|+=) dy W`.
///
/// # Shapes
/// dy `[T, N]`, weight `[N, M]`, dx `[T, M]`.
///
/// # Panics
/// As [`forward`].
pub fn input_backward<E: Element>(
    isa: Isa,
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
    matmul(isa, services, dy, weight, out, workspace);
}

/// `dW += dy^T x`, in the dtype of sums.
///
/// # Shapes
/// dy `[T, N]`, x `[T, M]`, dweight `[N, M]` given as `size`.
///
/// # Panics
/// As [`forward`].
pub fn weight_backward<E: Element>(
    isa: Isa,
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
    matmul_of::<E::Acc>(isa.serving(E::DTYPE), services, dy, x, out, workspace);
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
mod tests;
