//! 8-bit AdamW by one element after the other, between thread counts, and beside AdamW.

use espalier_conformance::largest;
use espalier_interface::Serial;
use half::bf16;

use super::*;
use crate::adamw::adamw;
use crate::check;
use crate::stochastic::ToNearest;

const CONFIG: Adamw = Adamw {
    learning_rate: 1e-2,
    betas: [0.9, 0.999],
    eps: 1e-8,
    weight_decay: 0.05,
    step: 1,
    gradient_scale: 1.0,
};

/// A param, and the codes and absmax of its moments.
#[derive(Clone, Debug, PartialEq)]
struct State<P, R> {
    param: Vec<P>,
    codes: [Vec<u8>; 2],
    absmax: [Vec<R>; 2],
}

impl<P: Element, R: Real> State<P, R> {
    fn of(param: Vec<P>) -> Self {
        let (n, blocks) = (param.len(), param.len().div_ceil(BLOCK));
        State {
            param,
            codes: [vec![0; n], vec![0; n]],
            absmax: [vec![R::ZERO; blocks], vec![R::ZERO; blocks]],
        }
    }

    fn step<G: Element<Acc = R>>(&mut self, services: &dyn Services, config: Adamw, g: &[G]) {
        let moments = self.codes.iter_mut().zip(&mut self.absmax);
        let mut moments = moments.map(|(codes, absmax)| Coded { codes, absmax });
        let (first, second) = (moments.next().unwrap(), moments.next().unwrap());
        adamw8bit(
            services,
            config,
            ToNearest,
            g,
            &mut self.param,
            first,
            second,
        );
    }

    /// The numbers of a moment.
    fn moment(&self, index: usize) -> Vec<R> {
        let map = [&SIGNED, &UNSIGNED][index];
        let numbers = self.codes[index].iter().enumerate();
        let number = |(at, code): (usize, &u8)| {
            let value: R = convert_real(map.values[usize::from(*code)]);
            value * self.absmax[index][at / BLOCK]
        };
        numbers.map(number).collect()
    }
}

fn config(step: u64) -> Adamw {
    Adamw { step, ..CONFIG }
}

/// The step of one element in f32: param, first and second moment.
fn one([p, m, v, g]: [f32; 4], step: i32) -> [f32; 3] {
    let [rest1, rest2] = [0.9f64, 0.999].map(|beta| (1.0 - beta) as f32);
    let m = g.mul_add(rest1, m * 0.9f32);
    let v = (g * rest2).mul_add(g, v * 0.999f32);
    let root = (1.0 - 0.999f64.powi(step)).sqrt() as f32;
    let rate = -(1e-2 / (1.0 - 0.9f64.powi(step))) as f32;
    let kept = p * (1.0 - 1e-2 * 0.05f64) as f32;
    [kept + rate * m / (v.sqrt() / root + 1e-8), m, v]
}

#[test]
fn a_step_is_that_of_each_element_between_decoding_and_coding() {
    let n = 3 * BLOCK + 77;
    let mut state = State::of(check::floats(&check::numbers(n, 1)));
    for step in 1..4 {
        let mut g = check::floats(&check::numbers(n, 1 + step));
        g[BLOCK..2 * BLOCK].fill(0.0);
        let before = state.clone();
        state.step(&Serial, config(step.into()), &g);
        let (m, v) = (before.moment(0), before.moment(1));
        let after: Vec<[f32; 3]> = (0..n)
            .map(|i| one([before.param[i], m[i], v[i], g[i]], step as i32))
            .collect();
        for (at, after) in after.iter().enumerate() {
            assert_eq!(state.param[at], after[0], "element {at} of step {step}");
        }
        for (index, map) in [&SIGNED, &UNSIGNED].into_iter().enumerate() {
            let numbers: Vec<f32> = after.iter().map(|one| one[1 + index]).collect();
            for (block, numbers) in numbers.chunks(BLOCK).enumerate() {
                let absmax = largest(numbers.iter().map(|x| f64::from(x.abs()))) as f32;
                assert_eq!(state.absmax[index][block], absmax);
                for (at, x) in (block * BLOCK..).zip(numbers) {
                    let code = map.code(step_of(x * (1.0 / absmax)));
                    assert_eq!(state.codes[index][at], code, "element {at}: {x}");
                }
            }
        }
        assert_eq!(state.absmax[0][1], 0.0);
        assert!(
            state.codes[0][BLOCK..2 * BLOCK]
                .iter()
                .all(|&code| code == 0)
        );
    }
}

fn step_of(x: f32) -> u16 {
    espalier_interface::dynamic_map::step(x)
}

#[test]
fn threads_agree_and_clipping_scales() {
    let n = 2 * CHUNK + 77;
    let g = check::floats(&check::numbers(n, 1));
    let start = check::floats(&check::numbers(n, 2));
    let run = |services: &dyn Services, scale: f64, g: &[f32]| {
        let mut state = State::of(start.clone());
        for step in 1..3 {
            let config = Adamw {
                gradient_scale: scale,
                ..config(step)
            };
            state.step(services, config, g);
        }
        (state.param, state.codes, state.absmax)
    };
    check::same_on_two_threads(|services| run(services, 1.0, &g));
    let halved: Vec<f32> = g.iter().map(|g| g * 0.5).collect();
    assert_eq!(run(&Serial, 0.5, &g), run(&Serial, 1.0, &halved));
}

#[test]
fn a_first_step_is_that_of_adamw_in_each_dtype() {
    let n = BLOCK + 3;
    let g = check::numbers(n, 1);
    let wide = check::numbers(n, 2);
    let mut state = State::of(wide.clone());
    state.step(&Serial, CONFIG, &g);
    let (mut p, mut m, mut v) = (wide.clone(), vec![0.0; n], vec![0.0; n]);
    adamw(&Serial, CONFIG, ToNearest, &g, &mut p, &mut m, &mut v);
    check::close(&state.param, &p, 1e-14);
    let narrow: Vec<bf16> = wide.iter().map(|&x| bf16::from_f64(x)).collect();
    let g = check::floats(&g);
    let mut state = State::of(narrow.clone());
    state.step(&Serial, CONFIG, &g);
    let (mut p, mut m, mut v) = (narrow, vec![0.0f32; n], vec![0.0f32; n]);
    adamw(&Serial, CONFIG, ToNearest, &g, &mut p, &mut m, &mut v);
    assert_eq!(state.param, p);
}

/// As in AdamW, the param of such a gradient has no value after the step; those beside it have.
#[test]
fn a_gradient_that_is_not_finite_reaches_its_param() {
    for bad in [f32::NAN, f32::INFINITY] {
        let mut state = State::of(vec![1.0f32; 10]);
        let mut g = vec![0.5f32; 10];
        g[3] = bad;
        state.step(&Serial, CONFIG, &g);
        let finite: Vec<bool> = state.param.iter().map(|p| p.is_finite()).collect();
        assert_eq!(finite.iter().filter(|finite| !**finite).count(), 1);
        assert!(!finite[3]);
    }
}
