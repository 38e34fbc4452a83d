//! Cases of the ops on flat runs: `zero`, `cast`, `sum_squares`, `first_not_finite` and `adamw`.

use espalier_interface::DType;

use super::{STORED, fixed};
use crate::ops::case::{Near, OpCase};
use crate::ops::numbers::drawn;
use crate::ops::oracle::{self, AdamwStep};
use crate::ops::rounding::{U, nearest};

/// Elements of a run: one, odd numbers, and more than a chunk of any of them.
const LENGTHS: [usize; 5] = [1, 3, 65, 4099, 70_001];

/// `zero`: zero bytes in every dtype.
pub fn zero() -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::BF16, DType::U8, DType::I32] {
        for n in LENGTHS {
            let case = OpCase::flat("zero", format!("{dtype}, {n} elements"));
            let expected = Near::exact(vec![0.0; n]);
            cases.push(case.output(&fixed([n]), dtype, expected));
        }
    }
    cases
}

/// `cast`: to nearest, ties to even; infinities and NaN stay what they are, and what is too large
/// becomes infinite.
pub fn cast() -> Vec<OpCase> {
    let mut cases = Vec::new();
    for from in STORED {
        for to in STORED {
            for n in LENGTHS {
                let mut x = drawn(n, from, 1);
                let special = [
                    f64::NAN,
                    f64::INFINITY,
                    f64::NEG_INFINITY,
                    0.0,
                    // Ties of bf16 and f16, to either side; 65520 is infinite in f16.
                    1.0 + 1.0 / 256.0,
                    1.0 + 3.0 / 256.0,
                    1.0 + 1.0 / 2048.0,
                    -1.0 - 3.0 / 2048.0,
                    65_519.0,
                    65_520.0,
                    f64::from(f32::MAX),
                ];
                for (x, special) in x.iter_mut().skip(2).step_by(5).zip(special) {
                    *x = nearest(from, special);
                }
                let case = OpCase::flat("cast", format!("{from} to {to}, {n} elements"));
                let case = case.input(&fixed([n]), from, &x);
                cases.push(case.output(&fixed([n]), to, Near::exact(x)));
            }
        }
    }
    cases
}

/// `sum_squares`: a sum of n squares in f64, and as many roundings of the oracle's own.
pub fn sum_squares() -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in STORED {
        for n in LENGTHS {
            let x = drawn(n, dtype, 1);
            let sum = oracle::sum_squares(&x);
            // The unit roundoff of f64 is half of its epsilon.
            let expected = Near::relative(vec![sum], &[sum], n as f64 * f64::EPSILON);
            let case = OpCase::flat("sum_squares", format!("{dtype}, {n} elements"));
            let case = case.input(&fixed([n]), dtype, &x);
            cases.push(case.output(&fixed([1]), DType::F64, expected));
        }
    }
    cases
}

/// `first_not_finite`: the first of several, in any chunk.
pub fn first_not_finite() -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in STORED {
        for n in LENGTHS {
            for places in [vec![], vec![0], vec![n - 1], vec![n / 2, n / 3, n - 1]] {
                let mut x = drawn(n, dtype, 1);
                let wrong = [f64::NAN, f64::NEG_INFINITY, f64::INFINITY];
                for (place, wrong) in places.iter().zip(wrong) {
                    x[*place] = wrong;
                }
                let expected = Near::exact(vec![oracle::first_not_finite(&x)]);
                let name = format!("{dtype}, {n} elements, not finite at {places:?}");
                let case = OpCase::flat("first_not_finite", name).input(&fixed([n]), dtype, &x);
                cases.push(case.output(&fixed([1]), DType::I64, expected));
            }
        }
    }
    cases
}

/// The errors of one element. The scaled gradient errs by 2 u; the first moment adds a difference,
/// a constant, a product and a sum, the second one more product and the gradient's error twice.
/// What the first errs by moves the param through the step, which has 16 roundings of its own, half
/// of the second's among them.
fn errors(step: AdamwStep, gradient: f64, [param, m, v]: [f64; 3], after: [f64; 3]) -> [f64; 3] {
    let g = (gradient * step.factor).abs();
    let m_error = 6.0 * U * (m.abs() + g);
    let v_error = 9.0 * U * (v + (1.0 - step.beta2) * g * g);
    let correction = (1.0 - step.beta2.powf(step.step)).sqrt();
    let rate = step.learning_rate / (1.0 - step.beta1.powf(step.step));
    let per_moment = rate / (after[2].sqrt() / correction + step.eps);
    let moved = per_moment * (m_error + 16.0 * U * after[1].abs());
    [4.0 * U * param.abs() + moved, m_error, v_error]
}

/// `adamw`: the first step and a late one, with and without decay, params in each dtype.
pub fn adamw() -> Vec<OpCase> {
    let mut cases = Vec::new();
    let first = AdamwStep {
        learning_rate: 2e-3,
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-8,
        weight_decay: 0.01,
        step: 1.0,
        factor: 1.0,
    };
    let late = AdamwStep {
        learning_rate: 0.1,
        beta1: 0.3,
        beta2: 0.95,
        eps: 1e-3,
        weight_decay: 0.0,
        step: 12_345.0,
        factor: 0.37,
    };
    for dtype in [DType::F32, DType::BF16] {
        for (n, (name, step)) in [1, 65, 4099, 70_001]
            .into_iter()
            .flat_map(|n| [(n, ("first step", first)), (n, ("late step", late))])
        {
            let (param, gradient) = (drawn(n, dtype, 1), drawn(n, DType::F32, 2));
            let m = drawn(n, DType::F32, 3);
            let v: Vec<f64> = drawn(n, DType::F32, 4).iter().map(|v| v.abs()).collect();
            let after = oracle::adamw(step, &gradient, [&param, &m, &v]);
            let mut bounds = [Vec::new(), Vec::new(), Vec::new()];
            for i in 0..n {
                let before = [param[i], m[i], v[i]];
                let after = [after[0][i], after[1][i], after[2][i]];
                let found = errors(step, gradient[i], before, after);
                bounds
                    .iter_mut()
                    .zip(found)
                    .for_each(|(all, one)| all.push(one));
            }
            let [param_bounds, m_bounds, v_bounds] = bounds;
            let [param_after, m_after, v_after] = after;
            let shape = fixed([n]);
            let case = OpCase::flat("adamw", format!("param {dtype}, {n} elements, {name}"));
            let case = case.input(&shape, DType::F32, &gradient).scalars(&[
                step.learning_rate,
                step.beta1,
                step.beta2,
                step.eps,
                step.weight_decay,
                step.step,
                step.factor,
            ]);
            let expected = Near::new(param_after, param_bounds);
            let case = case.updated(&shape, dtype, &param, expected);
            let case = case.updated(&shape, DType::F32, &m, Near::new(m_after, m_bounds));
            cases.push(case.updated(&shape, DType::F32, &v, Near::new(v_after, v_bounds)));
        }
    }
    cases
}
