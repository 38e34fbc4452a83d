//! Tokens and a weight, dense or packed -> the linear layer's output and its gradients.
//!
//! Legend: `T` tokens, `N x M` the weight `[out, in]`. `E` is the storage dtype of tokens; all
//! arithmetic is in `E::Acc`: f32, or f64 for f64. A weight of another dtype, or a packed one, is
//! widened or decoded to f32 while it is packed for the product. It is *not* rounded to bf16 in
//! between, with one exception. Where tokens are bf16, instructions for bf16 ([`Isa::Avx512Bf16`],
//! [`Isa::AmxBf16`]) read both sides in bf16. In either case a packed weight has the bits of the
//! dense f32 weight of its decoded values.

mod scaled;

use espalier_interface::Services;

use self::scaled::Scaled;
use crate::added::Added;
use crate::element::Element;
use crate::matmul::{
    Combine, Dense, Isa, LowRank, LowRankTurn, Operand, Output, Rows, Scalar, Sum, matmul,
    matmul_adapted, matmul_of,
};

pub use crate::matmul::{adapted_workspace_bytes, sum_workspace_bytes, workspace_bytes};

/// Tokens that a product is written to, with what it is added to.
pub struct Onto<'a, E: Element> {
    /// They are written whole.
    pub values: &'a mut [E],
    /// What they are of the product.
    pub sum: Sum<'a, E>,
    /// The low-rank product of an adapter: forward it is added to them, in gradients they are added
    /// to it.
    pub adapter: Option<Adapter<'a, E>>,
}

impl<'a, E: Element> Onto<'a, E> {
    /// The product alone.
    pub fn product(values: &'a mut [E]) -> Self {
        let sum = Sum::PRODUCT;
        Onto {
            values,
            sum,
            adapter: None,
        }
    }
}

/// The low-rank product of an adapter.
#[derive(Clone, Copy)]
pub struct Adapter<'a, E: Element> {
    /// What is multiplied, `[T, R]`.
    pub narrow: &'a [E],
    /// `up`, `[N, R]`, or for gradients `down`, `[R, M]`.
    pub weight: &'a dyn Rows<E::Acc>,
    /// What the tokens are of it.
    pub sum: Sum<'a, E>,
}

/// The gradient of a weight, to which `alpha`, a power of two, times a product is added.
pub struct WeightGradient<'a, S> {
    /// `[N, M]`, row after row.
    pub values: &'a mut [S],
    /// N and M.
    pub size: (usize, usize),
    /// The factor.
    pub alpha: f64,
}

/// `y = (added +) (alpha) (x W^T (+ bias))`, then an adapter's product, by the kernels of `isa`.
///
/// # Shapes
/// x `[T, M]`, weight `[N, M]`, bias `[1, N]`, y and what is added `[T, N]`.
///
/// # Panics
/// Where shapes disagree, the workspace is under [`workspace_bytes`] of one thread (under
/// [`sum_workspace_bytes`] for more than a product, [`adapted_workspace_bytes`] with an adapter),
/// or this CPU lacks `isa`.
pub fn forward<E: Element>(
    isa: Isa,
    services: &dyn Services,
    x: &[E],
    weight: &dyn Rows<E::Acc>,
    bias: Option<&dyn Rows<E::Acc>>,
    y: Onto<'_, E>,
    workspace: &mut [u8],
) where
    E::Acc: Scalar,
{
    let (out_width, in_width) = weight.size();
    let x = tokens(x, in_width, y.values.len(), out_width);
    let out = Output {
        values: y.values,
        stride: out_width,
        combine: Combine::Sum(y.sum),
        bias,
    };
    let sides = (Operand::over_cols(&x), Operand::over_cols(weight));
    let low_rank = y
        .adapter
        .map(|adapter| (adapter, Operand::over_cols as Over<_>, LowRankTurn::After));
    product(isa, services, sides, low_rank, out, workspace);
}

/// `dx = (added +) (alpha) dy W`, after an adapter's product.
///
/// # Shapes
/// dy `[T, N]`, weight `[N, M]`, dx and what is added `[T, M]`.
///
/// # Panics
/// As [`forward`].
pub fn input_backward<E: Element>(
    isa: Isa,
    services: &dyn Services,
    dy: &[E],
    weight: &dyn Rows<E::Acc>,
    dx: Onto<'_, E>,
    workspace: &mut [u8],
) where
    E::Acc: Scalar,
{
    let (out_width, in_width) = weight.size();
    let dy = tokens(dy, out_width, dx.values.len(), in_width);
    let out = Output {
        values: dx.values,
        stride: in_width,
        combine: Combine::Sum(dx.sum),
        bias: None,
    };
    let sides = (Operand::over_cols(&dy), Operand::over_rows(weight));
    let low_rank = dx
        .adapter
        .map(|adapter| (adapter, Operand::over_rows as Over<_>, LowRankTurn::Before));
    product(isa, services, sides, low_rank, out, workspace);
}

/// How a low-rank weight is read.
type Over<'a, S> = fn(&'a dyn Rows<S>) -> Operand<'a, S>;

/// A product of tokens and a weight, and that of its adapter.
fn product<'a, E: Element>(
    isa: Isa,
    services: &dyn Services,
    (left, right): (Operand<'_, E::Acc>, Operand<'_, E::Acc>),
    low_rank: Option<(Adapter<'a, E>, Over<'a, E::Acc>, LowRankTurn)>,
    out: Output<'_, E>,
    workspace: &mut [u8],
) where
    E::Acc: Scalar,
{
    let Some((adapter, over, turn)) = low_rank else {
        return matmul(isa, services, left, right, out, workspace);
    };
    let right_of = over(adapter.weight);
    let (_, rank) = right_of.size();
    let narrow = tokens(adapter.narrow, rank, out.values.len(), out.stride);
    let low_rank = LowRank {
        left: Operand::over_cols(&narrow),
        right: right_of,
        sum: adapter.sum,
        turn,
    };
    matmul_adapted(isa, services, (left, right), low_rank, out, workspace);
}

/// `dW += alpha dy^T x`, in the dtype of sums.
///
/// # Shapes
/// dy `[T, N]`, x `[T, M]`, dweight `[N, M]`.
///
/// # Panics
/// As [`forward`].
pub fn weight_backward<E: Element>(
    isa: Isa,
    services: &dyn Services,
    dy: &[E],
    x: &[E],
    dweight: WeightGradient<'_, E::Acc>,
    workspace: &mut [u8],
) where
    E::Acc: Scalar,
{
    let WeightGradient {
        values,
        size,
        alpha,
    } = dweight;
    let (count, [dense_dy, dense_x]) = sides_of_gradient(dy, x, values.len(), size);
    let (out_width, in_width) = size;
    let out = Output {
        values,
        stride: in_width,
        combine: Combine::Accumulate,
        bias: None,
    };
    let scaled = |values, width| Scaled {
        values,
        size: (count, width),
        alpha,
    };
    let (scaled_dy, scaled_x) = (scaled(dy, out_width), scaled(x, in_width));
    // A power of two may stand at either factor or at every partial sum: no bit differs.
    let (dy, x): (&dyn Rows<E::Acc>, &dyn Rows<E::Acc>) = match alpha {
        1.0 => (&dense_dy, &dense_x),
        _ if out_width < in_width => (&scaled_dy, &dense_x),
        _ => (&dense_dy, &scaled_x),
    };
    let (dy, x) = (Operand::over_rows(dy), Operand::over_rows(x));
    matmul_of::<E::Acc>(isa.serving(E::DTYPE), services, dy, x, out, workspace);
}

/// `dW += alpha dy^T x`, in the dtype of tokens: the product is rounded, then the sum, as torch
/// adds up gradients of bf16 weights.
///
/// # Shapes
/// As [`weight_backward`].
///
/// # Panics
/// As [`forward`], with a workspace of [`sum_workspace_bytes`].
pub fn narrow_weight_backward<E: Element>(
    isa: Isa,
    services: &dyn Services,
    dy: &[E],
    x: &[E],
    dweight: WeightGradient<'_, E>,
    workspace: &mut [u8],
) where
    E::Acc: Scalar,
{
    let WeightGradient {
        values,
        size,
        alpha,
    } = dweight;
    let (_, [dy, x]) = sides_of_gradient(dy, x, values.len(), size);
    let sum = Sum {
        alpha,
        added: Added::Output,
        residual: None,
    };
    let out = Output {
        values,
        stride: size.1,
        combine: Combine::Sum(sum),
        bias: None,
    };
    let (dy, x) = (Operand::over_rows(&dy), Operand::over_rows(&x));
    matmul(isa, services, dy, x, out, workspace);
}

/// The tokens, and the sides of the product that gives a weight's gradient of `size`.
fn sides_of_gradient<'a, E: Element>(
    dy: &'a [E],
    x: &'a [E],
    elements: usize,
    (out_width, in_width): (usize, usize),
) -> (usize, [Dense<'a, E>; 2])
where
    E::Acc: Scalar,
{
    assert_eq!(
        elements,
        out_width * in_width,
        "a gradient has another shape"
    );
    let x = tokens(x, in_width, dy.len(), out_width);
    let (count, _) = Rows::<E::Acc>::size(&x);
    (count, [Dense::new(dy, count, out_width), x])
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
