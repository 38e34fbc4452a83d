//! AdamW compared with torch, between thread counts, with clipping, and with narrow params.

use espalier_interface::Serial;
use half::bf16;

use super::*;
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

/// Known answers of torch 2 (f64): p = [1, -2, 0.5], gradients g, then -g/2, then 3g.
#[test]
fn equals_torch() {
    let g = [0.1f64, -0.3, 0.0];
    let mut p = [1.0f64, -2.0, 0.5];
    let (mut m, mut v) = ([0.0f64; 3], [0.0f64; 3]);
    for (step, factor) in [(1, 1.0), (2, -0.5), (3, 3.0)] {
        let grads = g.map(|g| g * factor);
        let config = Adamw { step, ..CONFIG };
        adamw(&Serial, config, ToNearest, &grads, &mut p, &mut m, &mut v);
    }
    for (p, expected) in p.iter().zip(TORCH) {
        assert!((p - expected).abs() < 1e-14, "{p} is not {expected}");
    }
}

const TORCH: [f64; 3] = [
    0.979_143_704_710_276_2,
    -1.977_644_453_453_026,
    0.499_250_374_937_500_1,
];

#[test]
fn threads_agree_and_clipping_scales() {
    let n = CHUNK + 77;
    let g = check::floats(&check::numbers(n, 1));
    let start = check::floats(&check::numbers(n, 2));
    let run = |services: &dyn Services, scale: f64, g: &[f32]| {
        let (mut p, mut m, mut v) = (start.clone(), vec![0.0; n], vec![0.0; n]);
        let config = Adamw {
            gradient_scale: scale,
            ..CONFIG
        };
        adamw(services, config, ToNearest, g, &mut p, &mut m, &mut v);
        (p, m, v)
    };
    check::same_on_two_threads(|services| run(services, 1.0, &g));
    let halved: Vec<f32> = g.iter().map(|g| g * 0.5).collect();
    assert_eq!(run(&Serial, 0.5, &g), run(&Serial, 1.0, &halved));
}

#[test]
fn a_narrow_param_is_rounded_once() {
    let mut wide = [1.0f32];
    let mut narrow = [bf16::from_f32(1.0)];
    for p in [0, 1] {
        let (mut m, mut v) = ([0.0f32], [0.0f32]);
        match p {
            0 => adamw(
                &Serial,
                CONFIG,
                ToNearest,
                &[1.0f32],
                &mut wide,
                &mut m,
                &mut v,
            ),
            _ => adamw(
                &Serial,
                CONFIG,
                ToNearest,
                &[1.0f32],
                &mut narrow,
                &mut m,
                &mut v,
            ),
        }
    }
    assert_eq!(narrow[0], bf16::from_f32(wide[0]));
}
