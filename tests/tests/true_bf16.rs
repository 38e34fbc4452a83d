//! Training in bf16 alone: a step and a curve against torch, bytes of a plan, the same bits on any
//! number of ranks, and stochastic rounding that keeps the mean.
#![cfg(feature = "embedded")]

use std::fs;

use espalier_data::StepBatch;
use espalier_engine::executor::StatePart;
use espalier_engine::step;
use espalier_interface::Serial;
use espalier_interface::stochastic::{RandomBits, name_words};
use espalier_kernels::adamw::{Adamw, adamw};
use espalier_kernels::sgd::{Sgd, sgd};
use espalier_kernels::stochastic::{Stochastic, ToNearest};
use espalier_tests::{
    Golden, Named, Rig, TeamRig, golden_path, largest, largest_difference, micro_batch,
    relative_norm, step_of,
};
use half::bf16;
use serde_json::Value as Json;

/// Params, gradients and state of bf16.
const TRUE_BF16: [(&str, &str); 5] = [
    ("model.compute", "\"bf16\""),
    ("model.params", "\"bf16\""),
    ("model.gradients", "\"bf16\""),
    ("optim.state", "\"bf16\""),
    ("data.max_seq_len", "32"),
];
const STOCHASTIC: (&str, &str) = ("optim.stochastic_rounding", "true");

fn narrow(numbers: &[f64]) -> Vec<bf16> {
    numbers.iter().map(|&x| bf16::from_f64(x)).collect()
}

fn floats(numbers: &[bf16]) -> Vec<f32> {
    numbers.iter().map(|x| x.to_f32()).collect()
}

fn wide(numbers: &[bf16]) -> Vec<f64> {
    numbers.iter().map(|x| x.to_f64()).collect()
}

fn zeros(count: usize) -> Vec<bf16> {
    vec![bf16::ZERO; count]
}

/// Params, first and second moment of the golden param after each of its steps.
fn golden_steps_of_adamw(golden: &Golden) -> Vec<[Vec<bf16>; 3]> {
    let mut param = narrow(golden.numbers("start"));
    let (mut m, mut v) = (zeros(param.len()), zeros(param.len()));
    let steps = (1..=4).map(|step| {
        let config = Adamw {
            learning_rate: 1e-2,
            betas: [0.9, 0.99],
            eps: 1e-8,
            weight_decay: 0.05,
            step,
            gradient_scale: 1.0,
        };
        let gradients = narrow(golden.numbers(&format!("gradient.{step}")));
        let moments = (&mut m[..], &mut v[..]);
        adamw(
            &Serial, config, ToNearest, &gradients, &mut param, moments.0, moments.1,
        );
        [param.clone(), m.clone(), v.clone()]
    });
    steps.collect()
}

/// torch's step with `fused=True` fuses a product and a sum, which shows where a moment cancels to
/// nearly nothing. Its default rounds each of some ten operations to bf16: params then differ by
/// half a percent after four steps.
#[test]
fn a_step_of_adamw_has_the_bits_of_torch_fused_and_is_near_its_default() {
    let golden = Golden::open("optimizers/true_bf16.safetensors");
    let names = ["param", "first_moment", "second_moment"];
    for (index, found) in golden_steps_of_adamw(&golden).iter().enumerate() {
        for (name, found) in names.into_iter().zip(found) {
            let of = |case: &str| golden.numbers(&format!("{case}.{name}.{}", index + 1));
            let expected = of("adamw");
            let apart = largest_difference(&floats(found), expected);
            assert!(apart <= 1e-10, "{name}, step {}: {apart}", index + 1);
            let same = narrow(expected);
            let others = found.iter().zip(&same).filter(|(a, b)| a != b).count();
            assert!(others <= 1, "{name}, step {}: {others} differ", index + 1);
            let share = relative_norm(&wide(found), of("adamw_unfused"));
            assert!(share <= 1e-2, "{name}, step {}: {share}", index + 1);
        }
    }
}

/// torch's SGD, of which only the way that rounds each operation has an effect.
#[test]
fn a_step_of_sgd_is_near_the_default_of_torch() {
    let golden = Golden::open("optimizers/true_bf16.safetensors");
    let mut param = narrow(golden.numbers("start"));
    let mut buffer = zeros(param.len());
    let config = Sgd {
        learning_rate: 0.3,
        momentum: 0.9,
        nesterov: false,
        weight_decay: 0.05,
        gradient_scale: 1.0,
    };
    for step in 1..=4 {
        let gradients = narrow(golden.numbers(&format!("gradient.{step}")));
        sgd(
            &Serial,
            config,
            ToNearest,
            &gradients,
            &mut param,
            Some(&mut buffer[..]),
        );
        for (found, name) in [(&param, "param"), (&buffer, "momentum")] {
            let expected = golden.numbers(&format!("sgd_unfused.{name}.{step}"));
            let share = relative_norm(&wide(found), expected);
            assert!(share <= 1e-2, "{name}, step {step}: {share}");
        }
    }
}

/// The golden rows, in steps of `parts` micro-batches.
fn golden_steps(parts: usize) -> Vec<StepBatch> {
    let rows = Golden::open("llama/data.safetensors").rows("train_tokens");
    let steps = rows.chunks(4).map(|rows| {
        let parts = rows.chunks(4 / parts);
        step_of(parts.map(|rows| micro_batch(rows, rows)).collect())
    });
    steps.collect()
}

fn losses(rig: &Rig, steps: &[StepBatch]) -> Vec<f64> {
    let steps = steps.iter().enumerate().map(|(index, batch)| {
        let at = [index as u64, 20];
        let found = step::train(&rig.executor, &rig.config.optim, batch, at, 42);
        found.expect("a step").loss
    });
    steps.collect()
}

/// torch's two ways differ by up to 5e-3 from each other, and the first loss of a pass in bf16 by
/// 4e-3 from torch's.
#[test]
fn full_fine_tuning_follows_the_curve_of_torch_in_bf16_alone() {
    let text = fs::read_to_string(golden_path("optimizers/true_bf16.json")).expect("a curve");
    let golden: Json = serde_json::from_str(&text).expect("JSON");
    let curve = golden["loss"]["fused"].as_array().into_iter().flatten();
    let curve: Vec<f64> = curve.filter_map(Json::as_f64).collect();
    let more = [
        ("data.micro_batch", "2"),
        ("plugins", "[]"),
        ("optim.learning_rate", "1e-3"),
        ("optim.betas", "[0.9, 0.99]"),
        ("optim.weight_decay", "0.1"),
        ("optim.clip_norm", "0.0"),
    ];
    let keys = [TRUE_BF16.as_slice(), &more].concat();
    let rig = Rig::new(&golden_path("llama/tiny-trained"), &keys);
    let found = losses(&rig, &golden_steps(2));
    assert_eq!((found.len(), curve.len()), (20, 20));
    let apart = largest(found.iter().zip(&curve).map(|(a, b)| (a - b).abs()));
    assert!(apart <= 1.5e-2, "{apart}: {found:?}");
}

/// Two bytes a param, its gradient, and each tensor of its state.
#[test]
fn a_plan_counts_two_bytes_of_each_number() {
    let of = |keys: &[(&str, &str)]| {
        let one = [("data.micro_batch", "4"), ("plugins", "[]")];
        let keys = [&one, keys].concat();
        Rig::new(&golden_path("llama/tiny-trained"), &keys).memory
    };
    let (narrow, wide) = (of(&TRUE_BF16), of(&[("data.max_seq_len", "32")]));
    assert!(wide.trainable > 500_000);
    for (narrow, wide) in [
        (narrow.trainable, wide.trainable),
        (narrow.gradients, wide.gradients),
        (narrow.optimizer, wide.optimizer),
    ] {
        assert_eq!(2 * narrow, wide);
    }
    assert_eq!(narrow.optimizer, 2 * narrow.trainable);
    let sgd = [("optim.name", "\"sgd\""), ("optim.momentum", "0.9")];
    let with_momentum = of(&[TRUE_BF16.as_slice(), &sgd].concat());
    assert_eq!(with_momentum.optimizer, narrow.trainable);
}

/// Values and state of all params after three steps of `parts` micro-batches.
fn trained(keys: &[(&str, &str)], parts: usize) -> Vec<Named> {
    let micro_batch = ["4", "2", "", "1"][parts - 1];
    let fixed = [
        ("data.micro_batch", micro_batch),
        ("optim.weight_decay", "0.1"),
    ];
    let keys = [TRUE_BF16.as_slice(), &fixed, keys].concat();
    let rig = TeamRig::new(&golden_path("llama/tiny-trained"), &keys);
    rig.train(&golden_steps(parts)[..3]);
    let values = rig.state(StatePart::Values);
    std::iter::once(values)
        .chain(rig.optimizer_state())
        .collect()
}

const OPTIMIZERS: [&[(&str, &str)]; 3] = [
    &[],
    &[("optim.name", "\"sgd\""), ("optim.momentum", "0.9")],
    &[("optim.name", "\"adamw8bit\""), ("optim.state", "\"f32\"")],
];

/// All rows are on one rank, so that its gradients are those of one rank; the others keep their
/// parts.
#[test]
fn random_bits_are_those_of_the_element_on_any_rank_and_wherever_it_is_kept() {
    for optimizer in OPTIMIZERS {
        let of = |more: &[(&str, &str)]| trained(&[optimizer, &[STOCHASTIC], more].concat(), 1);
        let alone = of(&[("plugins", "[]")]);
        let nearest = trained(&[optimizer, &[("plugins", "[]")]].concat(), 1);
        assert!(alone != nearest, "{optimizer:?}: rounded to nearest");
        assert!(alone != of(&[("plugins", "[]"), ("run.seed", "7")]));
        for ranks in ["2", "4"] {
            let world = ("run.ranks", ranks);
            let offload = ("sharding.fsdp.offload", "\"params+optimizer\"");
            let within = [("optim.in_backward", "true"), ("optim.clip_norm", "0.0")];
            assert!(
                alone == of(&[("plugins", "[\"ddp\"]"), world]),
                "{optimizer:?}"
            );
            for more in [&[][..], &[offload]] {
                let keys = [&[("plugins", "[\"fsdp\"]"), world], more].concat();
                assert!(alone == of(&keys), "{optimizer:?}: {keys:?}");
            }
            let unclipped = of(&[("plugins", "[]"), within[1]]);
            let keys = [("plugins", "[\"fsdp\"]"), world, within[0], within[1]];
            assert!(unclipped == of(&keys), "{optimizer:?}: {keys:?}");
        }
    }
}

/// Where several ranks have rows, their gradients are added in the order of ranks.
#[test]
fn the_state_does_not_depend_on_where_it_is_kept() {
    let offloaded = ("sharding.fsdp.offload", "\"params+optimizer\"");
    for optimizer in OPTIMIZERS {
        for ranks in ["2", "4"] {
            let world = ("run.ranks", ranks);
            let of = |more: &[(&str, &str)]| trained(&[optimizer, &[world], more].concat(), 4);
            let whole = of(&[("plugins", "[\"ddp\"]")]);
            let sharded = of(&[("plugins", "[\"fsdp\"]")]);
            assert!(sharded == whole, "{optimizer:?} on {ranks}");
            let offloaded = of(&[("plugins", "[\"fsdp\"]"), offloaded]);
            assert!(offloaded == whole, "{optimizer:?} offloaded on {ranks}");
            // Sums are in f32 and rounded once, wherever that is.
            let wire = ("sharding.fsdp.reduce_dtype", "\"f32\"");
            let wide = of(&[("plugins", "[\"fsdp\"]"), wire]);
            assert!(wide == whole, "{optimizer:?} reduced in f32 on {ranks}");
        }
    }
}

/// A number between two of bf16, whose distance is 2^-7, after one step from 1.
fn stepped(seed: u64, update: f64) -> f64 {
    let config = Sgd {
        learning_rate: update,
        momentum: 0.0,
        nesterov: false,
        weight_decay: 0.0,
        gradient_scale: 1.0,
    };
    let mut param = [bf16::ONE];
    let rounding = Stochastic {
        bits: RandomBits::new(seed, 1, name_words("a.weight")),
        first: 0,
    };
    let gradients = [-bf16::ONE];
    sgd::<_, _, bf16>(&Serial, config, rounding, &gradients, &mut param, None);
    param[0].to_f64()
}

/// The mean of `n` steps with other seeds errs by less than 5 standard deviations of the mean: by
/// chance once in 1.7 million. A step to the nearest stays at 1.
#[test]
fn a_step_keeps_the_mean_over_many_seeds() {
    let ulp = 0.5f64.powi(7);
    for share in [0.001, 0.1, 0.3, 0.5, 0.9] {
        let n = 20_000;
        let update = share * ulp;
        let all = (0..n).map(|seed| stepped(seed, update));
        let all: Vec<f64> = all.collect();
        assert!(all.iter().all(|&x| x == 1.0 || x == 1.0 + ulp));
        let mean = all.iter().sum::<f64>() / n as f64;
        let deviation = ulp * (share * (1.0 - share) / n as f64).sqrt();
        let error = (mean - 1.0 - update).abs();
        assert!(error < 5.0 * deviation, "{share}: {error} of {deviation}");
        assert!(mean > 1.0, "{share}");
    }
}

/// Changes of all params after one step of a rate far below the params' distances.
fn changes(keys: &[(&str, &str)]) -> Vec<f64> {
    let fixed = [
        ("data.micro_batch", "4"),
        ("plugins", "[]"),
        ("optim.learning_rate", "1e-6"),
    ];
    let keys = [TRUE_BF16.as_slice(), &fixed, keys].concat();
    let rig = Rig::new(&golden_path("llama/tiny-trained"), &keys);
    let values = || -> Vec<f64> {
        let trainable = rig.executor.trainable().into_iter();
        let values = trainable.map(|param| rig.executor.param_values(param).expect("dense"));
        values.flatten().collect()
    };
    let before = values();
    losses(&rig, &golden_steps(1)[..1]);
    let after = values();
    after.iter().zip(&before).map(|(a, b)| a - b).collect()
}

/// How far params moved in the direction of the step, over its length.
#[test]
fn small_updates_move_the_mean_where_the_nearest_number_stays() {
    let wide = changes(&[("model.params", "\"f32\"")]);
    let share = |moved: &[f64]| {
        let along: f64 = moved.iter().zip(&wide).map(|(a, b)| a * b).sum();
        along / wide.iter().map(|x| x * x).sum::<f64>()
    };
    let (nearest, stochastic) = (share(&changes(&[])), share(&changes(&[STOCHASTIC])));
    // An update is 1e-6, the distance of most params 2^-12: of 150 000 params, the share errs by
    // some 0.04.
    assert!((stochastic - 1.0).abs() < 0.2, "{stochastic}");
    assert!(nearest.abs() < 0.1, "{nearest}");
}
