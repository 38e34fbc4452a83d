//! Two matrices of any dtypes, packed ones too -> their product.
//!
//! `out[i, j] (=|+=) sum over k of left[i, k] right[k, j] (+ bias[j])`, where either side may be
//! read transposed. Operands are widened (or decoded) panel by panel to the scalar of the product,
//! f32 or f64. The sum is rounded once to the output's dtype. A multiple of what is then there may
//! be added to other values ([`Sum`]), which gives the bits of a product and a sum after it. With
//! instructions for bf16 ([`Isa::Avx512Bf16`], [`Isa::AmxBf16`]), products of bf16 take both
//! operands in bf16: what is stored or decoded in another dtype is rounded once. Sums stay in f32.
//!
//! Element `(i, j)` is the sum, in order, of one partial sum per [`DEPTH`] steps, each a chain of
//! fused multiply-adds in order of `k`. With instructions for bf16, steps are pairs of `k`. With
//! tiles there is one sum, to which two short chains for each 32 of `k` are added (`tiles.rs`). Its
//! bits depend on row `i` and column `j` only: not on the other rows, the tiles, the number of
//! threads, addresses, caches or the width of vectors. (The `gemm` crate, the reference of speed,
//! chooses its partial sums by the machine's caches and allocates in every call.)
#![allow(unsafe_code)] // Disjoint tiles of one output on several threads.

mod bf16;
mod bf16_model;
mod block;
mod blocking;
mod combine;
mod depth;
mod detect;
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, unused_variables))]
mod few_cols;
mod few_rows;
mod isa;
mod low_rank;
mod lying_cols;
mod lying_rows;
mod many_rows;
mod micro;
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
mod nibbles;
mod pack;
mod panel;
mod pipeline;
mod product;
mod rounding;
mod scalar;
mod side;
mod slots;
mod source;
mod task_space;
mod tasks;
#[cfg(test)]
pub(crate) mod threads;
mod tile;
mod tiles;
mod transpose;

use espalier_interface::Services;

pub(crate) use block::PANEL_ROWS;
#[cfg(test)]
pub(crate) use block::{multiply_into, space};
pub use combine::Combine;
use combine::{SumHome, Sums};
pub use depth::DEPTH;
use few_rows::FewRows;
pub use isa::Isa;
pub(crate) use micro::ROW;
pub use micro::Update;
pub use nibbles::{BlockScales, Nibbles};
pub(crate) use panel::{Panel, STRIP};
use product::Product;
pub use product::{LowRank, LowRankTurn};
pub use rounding::Sum;
pub(crate) use rounding::store_row;
pub use scalar::Scalar;
pub(crate) use side::{Side, as_steps, rows_of_steps};
pub(crate) use slots::{bytes as slot_bytes, each as each_task, each_sharing as each_task_sharing};
pub(crate) use source::same;
pub use source::{Dense, Operand, Rows, Summed};

use crate::element::Element;
use crate::split::Parts;

/// The output of a product: `[rows, cols]`, `stride` elements from one row to the next.
pub struct Output<'a, E: Element>
where
    E::Acc: Scalar,
{
    /// The values.
    pub values: &'a mut [E],
    /// Elements from one row to the next, at least the columns.
    pub stride: usize,
    /// How the values come of the product.
    pub combine: Combine<'a, E>,
    /// Added to every row before rounding, `[1, cols]` in any dtype.
    pub bias: Option<&'a dyn Rows<E::Acc>>,
}

/// Bytes of workspace that [`matmul`] needs on `threads` threads for products of `[rows, cols,
/// depth]`: so many columns, at most so many rows, at most so deep.
pub fn workspace_bytes<E: Element>(isa: Isa, threads: usize, most: [usize; 3]) -> usize
where
    E::Acc: Scalar,
{
    bytes_of::<E>(isa, threads, most, SumHome::of::<E>)
}

/// [`workspace_bytes`] for outputs that may be any [`Sum`].
pub fn sum_workspace_bytes<E: Element>(isa: Isa, threads: usize, most: [usize; 3]) -> usize
where
    E::Acc: Scalar,
{
    let plain = workspace_bytes::<E>(isa, threads, most);
    plain.max(bytes_of::<E>(isa, threads, most, |_| SumHome::Beside))
}

/// [`sum_workspace_bytes`] for [`matmul_adapted`] with a product of `rank` steps.
pub fn adapted_workspace_bytes<E: Element>(
    isa: Isa,
    threads: usize,
    [rows, cols, depth]: [usize; 3],
    rank: usize,
) -> usize
where
    E::Acc: Scalar,
{
    let apart = |depth| sum_workspace_bytes::<E>(isa, threads, [rows, cols, depth]);
    let [low_rank, by_vectors] =
        [isa, isa.vectors()].map(|isa| low_rank::bytes::<E::Acc>(isa, rank, cols, threads));
    let both = apart(depth) + low_rank.max(by_vectors);
    both.max(apart(rank))
}

fn bytes_of<E: Element>(
    isa: Isa,
    threads: usize,
    most: [usize; 3],
    home: impl Fn(Isa) -> SumHome,
) -> usize
where
    E::Acc: Scalar,
{
    // Products of other dtypes are by plain vectors, with more steps.
    let of = |isa, most| {
        let many = many_rows::workspace_bytes::<E>(isa, threads, most, home(isa));
        many.max(few_rows::workspace_bytes::<E>(isa, threads, most[2]))
    };
    let [rows, cols, depth] = most;
    let few = cols.min(few_cols::MOST_COLS);
    let transposed = if E::DTYPE == E::Acc::DTYPE {
        of(isa.vectors(), [few, rows, depth]) + few_cols::bytes::<E>(rows, few)
    } else {
        0
    };
    of(isa, most).max(of(isa.vectors(), most)).max(transposed)
}

/// `left right (+ bias)` into `out` as it says, with `left` `[rows, depth]` and `right` `[depth,
/// cols]` as operands, by the kernels of `isa`.
///
/// With less than [`workspace_bytes`] ([`sum_workspace_bytes`] for a sum) for all threads, fewer
/// threads are used. Operands are read in bf16 only where the output is bf16, too.
///
/// # Panics
/// Where shapes disagree, the workspace is too small for one thread, this CPU lacks `isa`, or a
/// narrow output is to hold partial sums.
pub fn matmul<E: Element>(
    isa: Isa,
    services: &dyn Services,
    left: Operand<'_, E::Acc>,
    right: Operand<'_, E::Acc>,
    out: Output<'_, E>,
    workspace: &mut [u8],
) where
    E::Acc: Scalar,
{
    let isa = isa.serving(E::DTYPE);
    matmul_of(isa, services, left, right, out, workspace);
}

/// [`matmul`], and a product of few steps beside it: the bits of two calls, but what the first of
/// them writes is still in a cache.
///
/// # Panics
/// As [`matmul`].
pub fn matmul_adapted<E: Element>(
    isa: Isa,
    services: &dyn Services,
    (left, right): (Operand<'_, E::Acc>, Operand<'_, E::Acc>),
    low_rank: LowRank<'_, E>,
    out: Output<'_, E>,
    workspace: &mut [u8],
) where
    E::Acc: Scalar,
{
    let isa = isa.serving(E::DTYPE);
    let (rows, _) = left.size();
    let sides = (left, right);
    if rows > few_rows::MOST_ROWS && low_rank.is_of_few_steps(isa) {
        return multiply(isa, services, sides, Some(low_rank), out, workspace);
    }
    let Output {
        values,
        stride,
        combine,
        bias,
    } = out;
    let narrow = (low_rank.left, low_rank.right);
    let calls = [
        (sides, combine, bias),
        (narrow, Combine::Sum(low_rank.sum), None),
    ];
    let turns = match low_rank.turn {
        LowRankTurn::Before => [1, 0],
        LowRankTurn::After => [0, 1],
    };
    for turn in turns {
        let (sides, combine, bias) = calls[turn];
        let out = Output {
            values: &mut *values,
            stride,
            combine,
            bias,
        };
        multiply(isa, services, sides, None, out, workspace);
    }
}

/// [`matmul`] where both operands are stored in the dtype that `isa` was asked to serve
/// ([`Isa::serving`]), which may differ from the output's.
pub(crate) fn matmul_of<E: Element>(
    isa: Isa,
    services: &dyn Services,
    left: Operand<'_, E::Acc>,
    right: Operand<'_, E::Acc>,
    out: Output<'_, E>,
    workspace: &mut [u8],
) where
    E::Acc: Scalar,
{
    multiply(isa, services, (left, right), None, out, workspace);
}

/// A product, and one of few steps beside it.
fn multiply<E: Element>(
    isa: Isa,
    services: &dyn Services,
    (left, right): (Operand<'_, E::Acc>, Operand<'_, E::Acc>),
    low_rank: Option<LowRank<'_, E>>,
    out: Output<'_, E>,
    workspace: &mut [u8],
) where
    E::Acc: Scalar,
{
    let isa = isa.checked();
    let ((rows, depth), (cols, right_depth)) = (left.size(), right.size());
    assert_eq!(depth, right_depth, "the operands' depths differ");
    if rows == 0 || cols == 0 {
        return;
    }
    let Output {
        values,
        stride,
        combine,
        bias,
    } = out;
    assert!(stride >= cols, "the output's rows overlap");
    let alone = bias.is_none() && low_rank.is_none();
    let sums = combine.sums(isa, depth, alone);
    if let Sums::Beside(sum) = sums {
        assert!(sum.fits(values.len()), "what is added has another shape");
    }
    assert!(
        values.len() >= (rows - 1) * stride + cols,
        "the output is too small"
    );
    assert!(
        bias.is_none_or(|bias| bias.size() == (1, cols)),
        "the bias is not as long as a row"
    );
    assert!(
        low_rank.is_none_or(|low_rank| low_rank.fits([rows, cols], values.len())),
        "a low-rank product has another shape"
    );
    if alone && few_cols::is_transposed(isa, (left, right), &sums) {
        let out = (values, stride, combine);
        return few_cols::compute(isa, services, (left, right), out, workspace);
    }
    let product = Product {
        isa,
        left,
        right,
        out: Parts::new(values),
        stride,
        sums,
        bias,
        low_rank,
    };
    let few = FewRows(&product);
    if few.is_of_few_rows() {
        assert!(low_rank.is_none(), "a product of few rows alone");
        // SAFETY: the output was checked and is borrowed here alone; `isa` was checked.
        return unsafe { few.compute(services, workspace) };
    }
    many_rows::multiply(&product, services, workspace);
}

#[cfg(test)]
pub(crate) mod tests;
