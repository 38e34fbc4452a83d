//! `adamw8bit`: a step of AdamW whose moments are decoded before it and coded after it, in f64, and
//! its cases.

use espalier_interface::DType;
use espalier_interface::dynamic_map::{DynamicMap, SIGNED, UNSIGNED, step};
use espalier_interface::op::ADAMW8BIT_BLOCK;

use super::case::{Near, OpCase};
use super::cases::fixed;
use super::draw::Draw;
use super::op_check::OpCheck;
use super::rounding::{U, nearest};
use super::stored::{FIRST_VERSION, NARROW, STOCHASTIC, Stored};
use super::updates::{AdamwStep, FIRST, LATE, LENGTHS, adamw_errors, adamw_step, random_adamw};

/// Its checks.
pub(super) const OPS: &[OpCheck] = &[
    OpCheck {
        name: "op.adamw8bit",
        asserts: "a step of bitsandbytes' AdamW8bit on param, codes and absmax",
        cases: |draw| adamw8bit(draw, &FIRST_VERSION),
    },
    OpCheck {
        name: "op.adamw8bit.2",
        asserts: "the same with a gradient in bf16",
        cases: |draw| adamw8bit(draw, &NARROW[..2]),
    },
    OpCheck {
        name: "op.adamw8bit.3",
        asserts: "the same with a param in bf16 that is rounded by random bits",
        cases: |draw| adamw8bit(draw, &STOCHASTIC),
    },
];

const BLOCK: usize = ADAMW8BIT_BLOCK as usize;

/// A moment: a code for each element and an absmax for each block.
struct Moment {
    map: &'static DynamicMap,
    codes: Vec<f64>,
    absmax: Vec<f64>,
}

impl Moment {
    /// The codes of numbers, whose absmax are numbers of f32.
    fn of(map: &'static DynamicMap, numbers: &[f64]) -> Self {
        let absmax = numbers.chunks(BLOCK).map(largest);
        let absmax: Vec<f64> = absmax.map(|x| nearest(DType::F32, x)).collect();
        let codes = numbers.iter().enumerate();
        let codes = codes.map(|(at, x)| code(map, *x, absmax[at / BLOCK]));
        let codes = codes.collect();
        Moment { map, codes, absmax }
    }

    /// All zeros, as training begins.
    fn zeros(map: &'static DynamicMap, n: usize) -> Self {
        Moment {
            map,
            codes: vec![0.0; n],
            absmax: vec![0.0; n.div_ceil(BLOCK)],
        }
    }

    fn numbers(&self) -> Vec<f64> {
        let codes = self.codes.iter().enumerate();
        let number = |(at, code): (usize, &f64)| {
            f64::from(self.map.values[*code as usize]) * self.absmax[at / BLOCK]
        };
        codes.map(number).collect()
    }
}

fn largest(numbers: &[f64]) -> f64 {
    numbers.iter().fold(0.0, |most, x| f64::max(most, x.abs()))
}

/// The code of `x` in a block; 0 where all of the block is zero.
fn code(map: &DynamicMap, x: f64, absmax: f64) -> f64 {
    if absmax == 0.0 {
        return 0.0;
    }
    f64::from(map.code(step((x / absmax) as f32)))
}

/// The codes and absmax after a step, where each number of `after` errs by its share of `errors`.
///
/// An absmax errs by the most of its block. A scaled number errs by its own error, that of the
/// absmax and three roundings. Its code lies between the codes of the two ends.
fn coded(map: &DynamicMap, after: &[f64], errors: &[f64]) -> [Near; 2] {
    let (mut codes, mut absmax) = (Near::default(), Near::default());
    for (numbers, errors) in after.chunks(BLOCK).zip(errors.chunks(BLOCK)) {
        let (most, error) = (largest(numbers), largest(errors));
        absmax.values.push(most);
        absmax.bounds.push(error);
        for (&x, &own) in numbers.iter().zip(errors) {
            let share = (own + error * x.abs() / most) / most + 3.0 * U;
            let value = code(map, x, most);
            let ends = [-share, share].map(|off| code(map, x + off * most, most));
            codes.values.push(value);
            codes.bounds.push(largest(&ends.map(|end| end - value)));
        }
    }
    [codes, absmax]
}

/// The first step from zeros and a late one, with and without decay, operands in each dtype. State
/// is in codes in any case.
fn adamw8bit(draw: &Draw, all: &[Stored]) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for stored in draw.each(all) {
        let kit = LENGTHS.map(|n| [(n, ("first step", FIRST)), (n, ("late step", LATE))]);
        for (n, (name, step)) in draw.shapes(kit.as_flattened(), random_adamw) {
            let name = format!("{}, {n} elements, {name}", stored.words());
            cases.push(case(draw, (step, stored, n), name));
        }
    }
    cases
}

fn case(draw: &Draw, (step, stored, n): (AdamwStep, Stored, usize), name: String) -> OpCase {
    let param = draw.numbers(n, stored.param, 1);
    let gradient = draw.numbers(n, stored.gradient, 2);
    let (m, v) = if step.step == 1.0 {
        (Moment::zeros(&SIGNED, n), Moment::zeros(&UNSIGNED, n))
    } else {
        let squares = draw.numbers(n, DType::F32, 4);
        let squares: Vec<f64> = squares.iter().map(|x| x.abs()).collect();
        let m = Moment::of(&SIGNED, &draw.numbers(n, DType::F32, 3));
        (m, Moment::of(&UNSIGNED, &squares))
    };
    let before = [m.numbers(), v.numbers()];
    let after = adamw_step(step, &gradient, [&param, &before[0], &before[1]]);
    let mut errors = [Vec::new(), Vec::new(), Vec::new()];
    for i in 0..n {
        let before = [param[i], before[0][i], before[1][i]];
        let after = [after[0][i], after[1][i], after[2][i]];
        let found = adamw_errors(step, gradient[i], before, after);
        let all = errors.iter_mut().zip(found);
        all.for_each(|(all, one)| all.push(one));
    }
    let [param_after, m_after, v_after] = after;
    let [param_errors, m_errors, v_errors] = errors;
    let shape = fixed([n]);
    let case = OpCase::flat("adamw8bit", name).version(stored.version);
    let case = case.input(&shape, stored.gradient, &gradient);
    let expected = stored.param(Near::new(param_after, param_errors), step.step);
    let case = case.updated(&shape, stored.param, &param, expected);
    let blocks = fixed([n.div_ceil(BLOCK)]);
    let moments = [(m, m_after, m_errors), (v, v_after, v_errors)];
    let case = moments
        .into_iter()
        .fold(case, |case, (moment, after, errors)| {
            let [codes, absmax] = coded(moment.map, &after, &errors);
            let case = case.updated(&shape, DType::U8, &moment.codes, codes);
            case.updated(&blocks, DType::F32, &moment.absmax, absmax)
        });
    case.scalars(&[&step.scalars()[..], &stored.more_scalars()].concat())
}
