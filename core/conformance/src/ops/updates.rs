//! The ops of optimizers: a step of each as one plain loop in f64, and its cases. The steps know
//! nothing of kernels; torch's golden values are compared with them.

use super::case::{Near, OpCase};
use super::cases::fixed;
use super::dice::Dice;
use super::draw::Draw;
use super::op_check::OpCheck;
use super::rounding::U;
use super::stored::{FIRST_VERSION, NARROW, STOCHASTIC, Stored};

/// Their checks.
pub(super) const OPS: &[OpCheck] = &[
    OpCheck {
        name: "op.adamw",
        asserts: "a step of torch.optim.AdamW on param and moments",
        cases: |draw| adamw(draw, &FIRST_VERSION),
    },
    OpCheck {
        name: "op.adamw.2",
        asserts: "the same with gradient and moments in bf16",
        cases: |draw| adamw(draw, &NARROW),
    },
    OpCheck {
        name: "op.adamw.3",
        asserts: "the same with a param in bf16 that is rounded by random bits",
        cases: |draw| adamw(draw, &STOCHASTIC),
    },
    OpCheck {
        name: "op.sgd",
        asserts: "a step of torch.optim.SGD on param and momentum",
        cases: |draw| sgd(draw, &FIRST_VERSION),
    },
    OpCheck {
        name: "op.sgd.2",
        asserts: "the same with gradient and momentum in bf16",
        cases: |draw| sgd(draw, &NARROW),
    },
    OpCheck {
        name: "op.sgd.3",
        asserts: "the same with a param in bf16 that is rounded by random bits",
        cases: |draw| sgd(draw, &STOCHASTIC),
    },
];

/// Elements of a run: one, odd numbers, and more than a chunk of any of them.
pub(super) const LENGTHS: [usize; 4] = [1, 65, 4099, 70_001];

/// The scalars of `adamw`, in the op's order.
#[derive(Clone, Copy, Debug)]
pub struct AdamwStep {
    /// The step's learning rate.
    pub learning_rate: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the denominator.
    pub eps: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// The step's number, from 1.
    pub step: f64,
    /// Factor of the gradient.
    pub factor: f64,
}

impl AdamwStep {
    /// The scalars in the op's order.
    pub(super) fn scalars(self) -> [f64; 7] {
        [
            self.learning_rate,
            self.beta1,
            self.beta2,
            self.eps,
            self.weight_decay,
            self.step,
            self.factor,
        ]
    }
}

/// A first step of the kit, with decay.
pub(super) const FIRST: AdamwStep = AdamwStep {
    learning_rate: 2e-3,
    beta1: 0.9,
    beta2: 0.999,
    eps: 1e-8,
    weight_decay: 0.01,
    step: 1.0,
    factor: 1.0,
};

/// A late one, clipped and without decay.
pub(super) const LATE: AdamwStep = AdamwStep {
    learning_rate: 0.1,
    beta1: 0.3,
    beta2: 0.95,
    eps: 1e-3,
    weight_decay: 0.0,
    step: 12_345.0,
    factor: 0.37,
};

/// One step of `torch.optim.AdamW`: param, first and second moment after it.
pub fn adamw_step(step: AdamwStep, gradient: &[f64], [param, m, v]: [&[f64]; 3]) -> [Vec<f64>; 3] {
    let mut after = [Vec::new(), Vec::new(), Vec::new()];
    let correction1 = 1.0 - step.beta1.powf(step.step);
    let correction2 = 1.0 - step.beta2.powf(step.step);
    for i in 0..gradient.len() {
        let g = gradient[i] * step.factor;
        let m = m[i] + (1.0 - step.beta1) * (g - m[i]);
        let v = step.beta2 * v[i] + (1.0 - step.beta2) * g * g;
        let kept = param[i] * (1.0 - step.learning_rate * step.weight_decay);
        let denominator = v.sqrt() / correction2.sqrt() + step.eps;
        after[0].push(kept - step.learning_rate / correction1 * m / denominator);
        after[1].push(m);
        after[2].push(v);
    }
    after
}

/// The errors of one element. The scaled gradient errs by 2 u; the first moment adds a difference,
/// a constant, a product and a sum, the second one more product and the gradient's error twice.
/// What the first errs by moves the param through the step, which has 16 roundings of its own, half
/// of the second's among them.
pub(super) fn adamw_errors(
    step: AdamwStep,
    gradient: f64,
    [param, m, v]: [f64; 3],
    after: [f64; 3],
) -> [f64; 3] {
    let g = (gradient * step.factor).abs();
    let m_error = 6.0 * U * (m.abs() + g);
    let v_error = 9.0 * U * (v + (1.0 - step.beta2) * g * g);
    let correction = (1.0 - step.beta2.powf(step.step)).sqrt();
    let rate = step.learning_rate / (1.0 - step.beta1.powf(step.step));
    let per_moment = rate / (after[2].sqrt() / correction + step.eps);
    let moved = per_moment * (m_error + 16.0 * U * after[1].abs());
    [4.0 * U * param.abs() + moved, m_error, v_error]
}

/// A length and scalars.
pub(super) fn random_adamw(dice: &Dice) -> (usize, (&'static str, AdamwStep)) {
    let step = AdamwStep {
        learning_rate: dice.scale(1e-6, 0.3),
        beta1: dice.one_of(&[0.0, 0.9, dice.real(0.0, 0.99)]),
        beta2: dice.one_of(&[0.999, dice.real(0.8, 0.9999)]),
        eps: dice.scale(1e-9, 1e-2),
        weight_decay: dice.one_of(&[0.0, dice.scale(1e-4, 0.5)]),
        step: dice.between(1, 100_000) as f64,
        factor: dice.one_of(&[1.0, dice.scale(1e-3, 1.0)]),
    };
    (dice.length(), ("a step", step))
}

/// `adamw`: the first step and a late one, with and without decay, operands in each dtype.
fn adamw(draw: &Draw, all: &[Stored]) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for stored in draw.each(all) {
        let Stored {
            param: dtype,
            state,
            ..
        } = stored;
        let kit = LENGTHS.map(|n| [(n, ("first step", FIRST)), (n, ("late step", LATE))]);
        for (n, (name, step)) in draw.shapes(kit.as_flattened(), random_adamw) {
            let gradient = draw.numbers(n, stored.gradient, 2);
            let (param, m) = (draw.numbers(n, dtype, 1), draw.numbers(n, state, 3));
            let v: Vec<f64> = draw.numbers(n, state, 4).iter().map(|v| v.abs()).collect();
            let after = adamw_step(step, &gradient, [&param, &m, &v]);
            let mut bounds = [Vec::new(), Vec::new(), Vec::new()];
            for i in 0..n {
                let before = [param[i], m[i], v[i]];
                let after = [after[0][i], after[1][i], after[2][i]];
                let found = adamw_errors(step, gradient[i], before, after);
                bounds
                    .iter_mut()
                    .zip(found)
                    .for_each(|(all, one)| all.push(one));
            }
            let [param_bounds, m_bounds, v_bounds] = bounds;
            let [param_after, m_after, v_after] = after;
            let shape = fixed([n]);
            let name = format!("{}, {n} elements, {name}", stored.words());
            let case = OpCase::flat("adamw", name).version(stored.version);
            let case = case.input(&shape, stored.gradient, &gradient);
            let case = case.scalars(&[&step.scalars()[..], &stored.more_scalars()].concat());
            let expected = stored.param(Near::new(param_after, param_bounds), step.step);
            let case = case.updated(&shape, dtype, &param, expected);
            let case = case.updated(&shape, state, &m, Near::new(m_after, m_bounds));
            cases.push(case.updated(&shape, state, &v, Near::new(v_after, v_bounds)));
        }
    }
    cases
}

/// The scalars of `sgd`, in the op's order.
#[derive(Clone, Copy, Debug)]
pub struct SgdStep {
    /// The step's learning rate.
    pub learning_rate: f64,
    /// Decay of the momentum buffer.
    pub momentum: f64,
    /// 1 for Nesterov's momentum, else 0.
    pub nesterov: f64,
    /// Weight decay, added to the gradient.
    pub weight_decay: f64,
    /// Factor of the gradient.
    pub factor: f64,
}

/// One step of `torch.optim.SGD` with dampening 0: param and momentum buffer after it.
pub fn sgd_step(step: SgdStep, gradient: &[f64], [param, buffer]: [&[f64]; 2]) -> [Vec<f64>; 2] {
    let mut after = [Vec::new(), Vec::new()];
    for i in 0..gradient.len() {
        let g = gradient[i] * step.factor + step.weight_decay * param[i];
        let b = step.momentum * buffer[i] + g;
        let moved = b + step.nesterov * (g + step.momentum * b - b);
        after[0].push(param[i] - step.learning_rate * moved);
        after[1].push(b);
    }
    after
}

/// `sgd`: with decay and Nesterov's momentum, with momentum alone and clipped, and without a
/// buffer; operands in each dtype.
fn sgd(draw: &Draw, all: &[Stored]) -> Vec<OpCase> {
    let plain = SgdStep {
        learning_rate: 0.3,
        momentum: 0.0,
        nesterov: 0.0,
        weight_decay: 0.02,
        factor: 1.0,
    };
    let heavy = SgdStep {
        momentum: 0.9,
        weight_decay: 0.0,
        factor: 0.37,
        ..plain
    };
    let nesterov = SgdStep {
        momentum: 0.7,
        nesterov: 1.0,
        weight_decay: 0.1,
        ..heavy
    };
    let mut cases = Vec::new();
    for stored in draw.each(all) {
        let kit = LENGTHS.map(|n| {
            [
                (n, ("plain", plain)),
                (n, ("momentum", heavy)),
                (n, ("nesterov", nesterov)),
            ]
        });
        for (n, (name, step)) in draw.shapes(kit.as_flattened(), random_sgd) {
            cases.push(sgd_case(draw, step, stored, n, name));
        }
    }
    cases
}

/// A length and scalars.
fn random_sgd(dice: &Dice) -> (usize, (&'static str, SgdStep)) {
    let momentum = dice.one_of(&[0.0, 0.9, dice.real(0.0, 0.99)]);
    let step = SgdStep {
        learning_rate: dice.scale(1e-6, 1.0),
        momentum,
        nesterov: if momentum > 0.0 {
            dice.one_of(&[0.0, 1.0])
        } else {
            0.0
        },
        weight_decay: dice.one_of(&[0.0, dice.scale(1e-4, 0.5)]),
        factor: dice.one_of(&[1.0, dice.scale(1e-3, 1.0)]),
    };
    (dice.length(), ("a step", step))
}

/// The scaled gradient with decay errs by 3 u of its terms, the buffer by 2 more, and the step by 5
/// of its own. A step of Nesterov's momentum is the longest.
fn sgd_case(draw: &Draw, step: SgdStep, stored: Stored, n: usize, name: &str) -> OpCase {
    let param = draw.numbers(n, stored.param, 1);
    let gradient = draw.numbers(n, stored.gradient, 2);
    let buffer = draw.numbers(n, stored.state, 3);
    let [param_after, buffer_after] = sgd_step(step, &gradient, [&param, &buffer]);
    let mut bounds = [Vec::new(), Vec::new()];
    for i in 0..n {
        let g = (gradient[i] * step.factor).abs() + (step.weight_decay * param[i]).abs();
        let b = g + (step.momentum * buffer[i]).abs();
        let moved = step.learning_rate * 10.0 * U * (g + b);
        bounds[0].push(moved + 2.0 * U * param[i].abs());
        bounds[1].push(5.0 * U * b);
    }
    let [param_bounds, buffer_bounds] = bounds;
    let shape = fixed([n]);
    let name = format!("{}, {n} elements, {name}", stored.words());
    let case = OpCase::flat("sgd", name).version(stored.version);
    let case = case.input(&shape, stored.gradient, &gradient);
    let mut scalars = vec![
        step.learning_rate,
        step.momentum,
        step.nesterov,
        step.weight_decay,
        step.factor,
    ];
    let number = 3.0;
    if stored.version == 3 {
        scalars.push(number);
        scalars.extend(stored.more_scalars());
    }
    let case = case.scalars(&scalars);
    let expected = stored.param(Near::new(param_after, param_bounds), number);
    let case = case.updated(&shape, stored.param, &param, expected);
    if step.momentum == 0.0 {
        return case;
    }
    let expected = Near::new(buffer_after, buffer_bounds);
    case.updated(&shape, stored.state, &buffer, expected)
}
