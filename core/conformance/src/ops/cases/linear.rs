//! Cases of `linear`, its gradients and `bias_backward`, over dense and packed weights.

use espalier_interface::DType;

use super::{COMPUTE, STORED, fixed, rows, terms};
use crate::ops::case::{Near, OpCase};
use crate::ops::dice::Dice;
use crate::ops::draw::Draw;
use crate::ops::numbers::{absolute, squares};
use crate::ops::op_check::OpCheck;
use crate::ops::oracle;
use crate::ops::packed::{Packed, packed as all_packed};
use crate::ops::rounding::moved_by_bf16;

/// The checks.
pub const OPS: &[OpCheck] = &[
    OpCheck {
        name: "op.linear",
        asserts: "x W^T + bias over dense and packed weights",
        cases: linear,
    },
    OpCheck {
        name: "op.linear_input_backward",
        asserts: "dy W over dense and packed weights",
        cases: linear_input_backward,
    },
    OpCheck {
        name: "op.linear_weight_backward",
        asserts: "dy^T x is added to the gradient",
        cases: linear_weight_backward,
    },
    OpCheck {
        name: "op.bias_backward",
        asserts: "the sum of dy is added to the gradient",
        cases: bias_backward,
    },
];

/// `[T, N, M]`: none, one, odd, and more than a tile of any of them.
const SHAPES: [[usize; 3]; 9] = [
    [0, 3, 5],
    [1, 1, 1],
    [1, 65, 17],
    [3, 17, 65],
    [17, 3, 129],
    [65, 130, 33],
    [33, 67, 515],
    // Rows that are multiples of 16 bytes, which a backend may copy as such.
    [35, 72, 136],
    [34, 24, 40],
];
/// `[T, N, M]` of the weight's gradient: [`SHAPES`], and many tokens.
pub(super) const GRADIENT_SHAPES: [[usize; 3]; 10] = [
    SHAPES[0],
    SHAPES[1],
    SHAPES[2],
    SHAPES[3],
    SHAPES[4],
    SHAPES[5],
    SHAPES[6],
    SHAPES[7],
    SHAPES[8],
    [300, 19, 35],
];

/// A weight as an op is given it, and its values.
pub(super) struct Weight {
    pub name: String,
    pub values: Vec<f64>,
    packed: Option<Packed>,
    pub dtype: DType,
}

impl Weight {
    pub fn dense(draw: &Draw, dtype: DType, n: usize) -> Self {
        Weight::plain(draw, dtype, n, 2)
    }

    /// A weight beside another one.
    pub fn low_rank(draw: &Draw, dtype: DType, n: usize) -> Self {
        Weight::plain(draw, dtype, n, 6)
    }

    fn plain(draw: &Draw, dtype: DType, n: usize, stream: u64) -> Self {
        Weight {
            name: dtype.to_string(),
            values: draw.numbers(n, dtype, stream),
            packed: None,
            dtype,
        }
    }

    /// Dense weights of each dtype, and where `packed`, packed ones; or one of them of a seed.
    pub fn all(draw: &Draw, [n, m]: [usize; 2], packed: bool) -> Vec<Self> {
        let (dense, packed) = draw.or((true, packed), |dice| {
            let packed = packed && dice.once_in(2);
            (!packed, packed)
        });
        let mut weights = Vec::new();
        if dense {
            let stored = draw.each(&STORED).into_iter();
            weights.extend(stored.map(|stored| Weight::dense(draw, stored, n * m)));
        }
        if packed {
            weights.extend(all_packed(draw, [n, m]).into_iter().map(Weight::packed));
        }
        weights
    }

    pub fn packed(packed: Packed) -> Self {
        Weight {
            name: packed.name.clone(),
            values: packed.values.clone(),
            packed: Some(packed),
            dtype: DType::F32,
        }
    }

    /// Adds to the bounds of a product over tokens of dtype `compute` the error of a weight that a
    /// backend rounds to that dtype first. Matrix units take both sides in one dtype.
    ///
    /// `product` multiplies the tokens' numbers by a weight after both went through its argument.
    pub fn allow_rounding(
        &self,
        compute: DType,
        bounds: &mut [f64],
        product: impl Fn(fn(&[f64]) -> Vec<f64>) -> Vec<f64>,
    ) {
        if compute != DType::BF16 || (self.packed.is_none() && self.dtype == DType::BF16) {
            return;
        }
        for ((bound, sum), square) in bounds
            .iter_mut()
            .zip(product(absolute))
            .zip(product(squares))
        {
            *bound += moved_by_bf16(sum, square);
        }
    }

    pub fn is_packed(&self) -> bool {
        self.packed.is_some()
    }

    pub fn put(&self, case: OpCase, shape: &[usize]) -> OpCase {
        match &self.packed {
            None => case.param(shape, self.dtype, &self.values),
            Some(packed) => case.packed(packed),
        }
    }
}

/// The layouts of the weights of an op.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Layouts {
    /// Dense and packed.
    All,
    /// Dense alone.
    Dense,
}

/// Dense weights of each dtype for each shape, and all packed ones for a few.
pub(super) fn each(
    draw: &Draw,
    layouts: Layouts,
    case: impl Fn(DType, [usize; 3], &Weight, String) -> OpCase,
) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in draw.each(&COMPUTE) {
        for [t, n, m] in draw.shapes(&SHAPES, Dice::product) {
            let some = [[3, 17, 65], [33, 67, 515], [34, 24, 40]].contains(&[t, n, m]);
            let packed = layouts == Layouts::All && draw.or(some, |_| true);
            for weight in Weight::all(draw, [n, m], packed) {
                let name = format!("{dtype}, T {t}, N {n}, M {m}, weight {}", weight.name);
                cases.push(case(dtype, [t, n, m], &weight, name));
            }
        }
    }
    cases
}

/// Whether a product has a bias.
pub(super) fn bias(draw: &Draw, tokens: usize) -> bool {
    draw.or(tokens % 2 == 1, |dice| dice.once_in(2))
}

/// `linear`: sums of M products, and the bias; a bias where T is odd.
fn linear(draw: &Draw) -> Vec<OpCase> {
    each(draw, Layouts::All, |dtype, [t, n, m], weight, name| {
        let x = draw.numbers(t * m, dtype, 1);
        let bias = bias(draw, t).then(|| draw.numbers(n, weight.dtype, 3));
        let (w, b) = (&weight.values, bias.as_deref());
        let magnitudes = oracle::linear(
            &absolute(&x),
            &absolute(w),
            b.map(absolute).as_deref(),
            [n, m],
        );
        let values = oracle::linear(&x, w, b, [n, m]);
        let mut expected = Near::relative(values, &magnitudes, terms(m, 1));
        weight.allow_rounding(dtype, &mut expected.bounds, |each| {
            oracle::linear(&each(&x), &each(w), None, [n, m])
        });
        let case = OpCase::new("linear", t, name).input(&rows(m), dtype, &x);
        let case = weight.put(case, &[n, m]);
        let case = match b {
            None => case,
            Some(b) => case.param(&[n], weight.dtype, b),
        };
        case.output(&rows(n), dtype, expected)
    })
}

/// `linear_input_backward`: sums of N products.
fn linear_input_backward(draw: &Draw) -> Vec<OpCase> {
    each(draw, Layouts::All, |dtype, [t, n, m], weight, name| {
        let dy = draw.numbers(t * n, dtype, 1);
        let product = oracle::linear_input_backward;
        let magnitudes = product(&absolute(&dy), &absolute(&weight.values), [n, m]);
        let values = product(&dy, &weight.values, [n, m]);
        let mut expected = Near::relative(values, &magnitudes, terms(n, 0));
        weight.allow_rounding(dtype, &mut expected.bounds, |each| {
            product(&each(&dy), &each(&weight.values), [n, m])
        });
        let case = OpCase::new("linear_input_backward", t, name).input(&rows(n), dtype, &dy);
        weight.put(case, &[n, m]).output(&rows(m), dtype, expected)
    })
}

/// `linear_weight_backward`: sums of T products added to the earlier content.
fn linear_weight_backward(draw: &Draw) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in draw.each(&COMPUTE) {
        for [t, n, m] in draw.shapes(&GRADIENT_SHAPES, Dice::product) {
            let (dy, x) = (draw.numbers(t * n, dtype, 1), draw.numbers(t * m, dtype, 2));
            let start = draw.numbers(n * m, DType::F32, 3);
            let product = oracle::linear_weight_backward;
            let magnitudes = product(&absolute(&dy), &absolute(&x), [n, m]);
            let magnitudes = oracle::add(&absolute(&start), &magnitudes, 1.0);
            let values = oracle::add(&start, &product(&dy, &x, [n, m]), 1.0);
            let expected = Near::relative(values, &magnitudes, terms(t, 1));
            let name = format!("{dtype}, T {t}, N {n}, M {m}");
            let case = OpCase::new("linear_weight_backward", t, name);
            let case = case.input(&rows(n), dtype, &dy).input(&rows(m), dtype, &x);
            cases.push(case.updated(&fixed([n, m]), DType::F32, &start, expected));
        }
    }
    cases
}

/// `bias_backward`: sums of T numbers added to the earlier content.
fn bias_backward(draw: &Draw) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in draw.each(&COMPUTE) {
        let kit = [[0, 5], [1, 1], [3, 17], [65, 131], [300, 3]];
        for [t, n] in draw.shapes(&kit, Dice::rows) {
            let (dy, start) = (
                draw.numbers(t * n, dtype, 1),
                draw.numbers(n, DType::F32, 2),
            );
            let values = oracle::add(&start, &oracle::bias_backward(&dy, n), 1.0);
            let magnitudes = oracle::bias_backward(&absolute(&dy), n);
            let magnitudes = oracle::add(&absolute(&start), &magnitudes, 1.0);
            let expected = Near::relative(values, &magnitudes, terms(t, 1));
            let name = format!("{dtype}, T {t}, N {n}");
            let case = OpCase::new("bias_backward", t, name).input(&rows(n), dtype, &dy);
            cases.push(case.updated(&fixed([n]), DType::F32, &start, expected));
        }
    }
    cases
}
