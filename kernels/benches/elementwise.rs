//! The ops around the products, at a layer's sizes -> nanoseconds an element on one thread.
#![allow(clippy::print_stdout)] // A benchmark prints its figures.

use std::hint::black_box;
use std::time::Instant;

use espalier_interface::Serial;
use espalier_kernels::adamw::Adamw;
use espalier_kernels::adamw8bit::Coded;
use espalier_kernels::added::Added;
use espalier_kernels::cross_entropy::Losses;
use espalier_kernels::dropout::Mask;
use espalier_kernels::element::{Element, Real};
use espalier_kernels::rope::Direction;
use espalier_kernels::stochastic::ToNearest;
use espalier_kernels::*;
use half::bf16;

const T: usize = 512;
const D: usize = 2048;
const S: &Serial = &Serial;

/// Prints the nanoseconds per element of the fastest of several runs.
fn time(dtype: &str, op: &str, elements: usize, mut body: impl FnMut()) {
    let mut least = f64::INFINITY;
    for _ in 0..9 {
        let start = Instant::now();
        body();
        least = least.min(start.elapsed().as_secs_f64());
    }
    println!(
        "{dtype:>4} {op:<24} {:7.3} ns an element",
        least * 1e9 / elements as f64
    );
}

fn normal<E: Element>(n: usize, stream: u32) -> Vec<E> {
    let mut x = vec![E::default(); n];
    fill::normal(S, [1, 2], stream, [0.0, 1.0], &mut x);
    x
}

fn norms<E: Element>() {
    let n = T * D;
    let [a, b]: [Vec<E>; 2] = [1, 2].map(|stream| normal(n, stream));
    let mut y = a.clone();
    let w = normal::<f32>(D, 4);
    let (mut dw, mut inverse) = (vec![E::Acc::ZERO; D], vec![E::Acc::ZERO; T]);
    let dtype = E::DTYPE.name();
    let run = |op: &str, body: &mut dyn FnMut()| time(&dtype, op, n, body);

    run("rms_norm", &mut || {
        rms_norm::rms_norm(S, rms_norm::Rounded, &a, &w, 1e-5, &mut y)
    });
    run("rms_norm_backward", &mut || {
        rms_norm::rms_norm_backward(
            S,
            rms_norm::Rounded,
            &a,
            &w,
            &b,
            1e-5,
            Added::Nothing,
            &mut y,
        )
    });
    run("rms_norm_weight_backward", &mut || {
        rms_norm::rms_norm_backward_weight(
            S,
            rms_norm::Rounded,
            &a,
            &b,
            1e-5,
            &mut inverse,
            &mut dw,
        );
    });
}

fn ops<E: Element>() {
    let n = T * D;
    let [a, b, c]: [Vec<E>; 3] = [1, 2, 3].map(|stream| normal(n, stream));
    let (mut y, mut z) = (a.clone(), a.clone());
    let (mut dw, mut inverse) = (vec![E::Acc::ZERO; D], vec![E::Acc::ZERO; T]);
    let (positions, sequences): (Vec<i32>, _) = ((0..T as i32).collect(), vec![0; T]);
    let inv_freq: Vec<f32> = (0..64).map(|i| 10_000f32.powf(-i as f32 / 64.0)).collect();
    let labels: Vec<i32> = (0..T as i32).collect();
    let mut correct = vec![0; T];
    let dtype = E::DTYPE.name();
    let run = |op: &str, body: &mut dyn FnMut()| time(&dtype, op, n, body);

    run("rope", &mut || {
        rope::rope(
            S,
            &a,
            &positions,
            (128, &inv_freq),
            1.0,
            Direction::Forward,
            &mut y,
        );
    });
    run("swiglu", &mut || swiglu::swiglu(S, &a, &b, &mut y));
    run("swiglu_backward", &mut || {
        swiglu::swiglu_backward(S, &a, &b, &c, &mut y, &mut z)
    });
    run("add", &mut || arithmetic::add(S, &a, &b, 0.5, &mut y));
    let mask = Mask {
        key: [1, 2],
        site: 3,
        probability: 0.1,
    };
    run("dropout", &mut || {
        dropout::dropout(S, &a, &positions, &sequences, mask, &mut y)
    });
    run("cross_entropy", &mut || {
        let (loss, log_sum_exp) = (&mut dw[..T], &mut inverse[..]);
        let out = Losses {
            loss,
            log_sum_exp,
            correct: &mut correct,
        };
        cross_entropy::cross_entropy(S, &a, &labels, out).expect("labels are in the vocabulary");
    });
    run("cross_entropy_backward", &mut || {
        cross_entropy::cross_entropy_backward(S, Some(&a), &labels, &inverse, 0.1, &mut y);
    });
    run("bias_backward", &mut || bias::bias_backward(S, &a, &mut dw));
    run("cast to f32", &mut || {
        cast::cast(S, &a, black_box(&mut vec![0f32; n]))
    });
    run("sum_squares", &mut || {
        black_box(reduce::sum_squares(
            S,
            &a,
            &mut vec![0.0; reduce::partials(n)],
        ));
    });
    run("first_non_finite", &mut || {
        black_box(reduce::first_non_finite(S, &a));
    });
}

fn main() {
    norms::<f32>();
    ops::<f32>();
    norms::<bf16>();
    ops::<bf16>();
    let (n, g) = (T * D, normal::<f32>(T * D, 1));
    let (mut p, mut m, mut v) = (g.clone(), g.clone(), vec![1.0f32; n]);
    let (betas, eps, weight_decay) = ([0.9, 0.999], 1e-8, 0.01);
    let config = Adamw {
        learning_rate: 1e-3,
        betas,
        eps,
        weight_decay,
        step: 3,
        gradient_scale: 1.0,
    };
    time("f32", "adamw", n, || {
        adamw::adamw(S, config, ToNearest, &g, &mut p, &mut m, &mut v)
    });
    let blocks = n.div_ceil(256);
    let (mut m_codes, mut v_codes) = (vec![0; n], vec![0; n]);
    let (mut m_absmax, mut v_absmax) = (vec![0.0; blocks], vec![0.0; blocks]);
    time("f32", "adamw8bit", n, || {
        let first = Coded {
            codes: &mut m_codes,
            absmax: &mut m_absmax,
        };
        let second = Coded {
            codes: &mut v_codes,
            absmax: &mut v_absmax,
        };
        adamw8bit::adamw8bit(S, config, ToNearest, &g, &mut p, first, second)
    });
    time("f32", "fill normal", n, || {
        fill::normal(S, [1, 2], 3, [0.0, 1.0], &mut p)
    });
}
