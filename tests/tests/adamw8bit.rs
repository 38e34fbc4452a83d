//! 8-bit AdamW against bitsandbytes: codes, absmax and params step by step, curves, and the same
//! state on any number of ranks.
#![cfg(feature = "embedded")]

use std::fs;

use espalier_data::StepBatch;
use espalier_engine::executor::StatePart;
use espalier_engine::step;
use espalier_interface::Serial;
use espalier_kernels::adamw::{Adamw, adamw};
use espalier_kernels::adamw8bit::{Coded, adamw8bit};
use espalier_kernels::stochastic::ToNearest;
use espalier_tests::{
    Golden, Named, Rig, TeamRig, golden_path, largest, largest_difference, micro_batch, step_of,
};
use serde_json::Value as Json;

/// Elements of a block.
const BLOCK: usize = 256;

/// The settings of the golden steps.
fn config(step: u64) -> Adamw {
    Adamw {
        learning_rate: 1e-2,
        betas: [0.9, 0.999],
        eps: 1e-8,
        weight_decay: 0.05,
        step,
        gradient_scale: 1.0,
    }
}

fn floats(numbers: &[f64]) -> Vec<f32> {
    numbers.iter().map(|&x| x as f32).collect()
}

/// Numbers of one size: a sum of several steps errs by the largest of its terms.
fn assert_near(found: &[f32], expected: &[f64], what: &str) {
    let most = largest(expected.iter().map(|x| x.abs()));
    let apart = largest_difference(found, expected);
    assert!(apart <= 3e-7 * most, "{what}: {apart} of {most}");
}

#[test]
fn codes_and_absmax_equal_those_of_bitsandbytes_after_each_step() {
    let golden = Golden::open("optimizers/adamw8bit.safetensors");
    let of = |name: &str, step: u64| golden.numbers(&format!("large.{name}.{step}"));
    let mut param = floats(of("param", 0));
    let n = param.len();
    let mut codes = [vec![0u8; n], vec![0u8; n]];
    let mut absmax = [0, 1].map(|_| vec![0.0f32; n.div_ceil(BLOCK)]);
    for step in 1..=4 {
        let gradients = floats(of("gradient", step));
        let [first, second] = &mut codes;
        let [first_absmax, second_absmax] = &mut absmax;
        let first = Coded {
            codes: first,
            absmax: first_absmax,
        };
        let second = Coded {
            codes: second,
            absmax: second_absmax,
        };
        adamw8bit(
            &Serial,
            config(step),
            ToNearest,
            &gradients,
            &mut param,
            first,
            second,
        );
        assert_near(&param, of("param", step), &format!("param, step {step}"));
        for (index, moment) in ["first", "second"].into_iter().enumerate() {
            let expected = of(&format!("{moment}_moment"), step).iter();
            let expected: Vec<u8> = expected.map(|&code| code as u8).collect();
            assert!(codes[index] == expected, "codes of {moment}, step {step}");
            let expected = floats(of(&format!("{moment}_absmax"), step));
            assert_eq!(absmax[index], expected, "absmax of {moment}, step {step}");
        }
    }
}

/// A param below `min_8bit_size` has the update and the state of AdamW.
#[test]
fn a_small_param_follows_the_32_bit_state_of_bitsandbytes() {
    let golden = Golden::open("optimizers/adamw8bit.safetensors");
    let of = |name: &str, step: u64| golden.numbers(&format!("small.{name}.{step}"));
    let mut param = floats(of("param", 0));
    let (mut m, mut v) = (vec![0.0f32; param.len()], vec![0.0f32; param.len()]);
    for step in 1..=4 {
        let gradients = floats(of("gradient", step));
        adamw(
            &Serial,
            config(step),
            ToNearest,
            &gradients,
            &mut param,
            &mut m,
            &mut v,
        );
        for (found, name) in [
            (&param, "param"),
            (&m, "first_moment"),
            (&v, "second_moment"),
        ] {
            assert_near(found, of(name, step), &format!("{name}, step {step}"));
        }
    }
}

/// The settings of the curves: f32, rows of 4 x 32 tokens.
const COMMON: [(&str, &str); 4] = [
    ("model.compute", "\"f32\""),
    ("data.max_seq_len", "32"),
    ("data.micro_batch", "4"),
    ("optim.name", "\"adamw8bit\""),
];

fn golden_steps() -> Vec<StepBatch> {
    let rows = Golden::open("llama/data.safetensors").rows("train_tokens");
    let steps = rows.chunks(4);
    steps
        .map(|rows| step_of(vec![micro_batch(rows, rows)]))
        .collect()
}

fn json(name: &str) -> Json {
    let text = fs::read_to_string(golden_path(name)).expect("a golden file");
    serde_json::from_str(&text).expect("JSON")
}

fn numbers(values: &Json) -> Vec<f64> {
    let values = values.as_array().into_iter().flatten();
    values.filter_map(Json::as_f64).collect()
}

fn rig(keys: &[(&str, &str)]) -> Rig {
    let keys = [COMMON.as_slice(), keys].concat();
    Rig::new(&golden_path("llama/tiny-trained"), &keys)
}

/// Trains the twenty steps, and returns the distances from the losses.
fn distances(rig: &Rig, losses: &[f64]) -> Vec<f64> {
    let steps = golden_steps();
    assert_eq!((steps.len(), losses.len()), (20, 20));
    let steps = steps.iter().zip(losses).enumerate();
    let distances = steps.map(|(index, (batch, loss))| {
        let at = [index as u64, 20];
        let found = step::train(&rig.executor, &rig.config.optim, batch, at, 42).expect("a step");
        (found.loss - loss).abs()
    });
    distances.collect()
}

/// A number near the edge of a code may get the next one, which moves it by a hundredth. So
/// roundings grow: the peer with its other attention leaves its own curve by 8e-5, 1e-5 in the
/// first eight steps. AdamW leaves it by 7e-4, 1e-4 at the third step.
#[test]
fn full_fine_tuning_follows_the_curve_of_bitsandbytes() {
    let golden = json("optimizers/adamw8bit.json");
    let keys = [
        ("plugins", "[]"),
        ("optim.learning_rate", "1e-3"),
        ("optim.weight_decay", "0.1"),
        ("optim.clip_norm", "1.0"),
    ];
    let losses = numbers(&golden["loss"]);
    let eight_bit = rig(&keys);
    let executor = &eight_bit.executor;
    let trainable = executor.trainable().into_iter();
    let coded = trainable.filter(|&param| executor.state_parts(param).len() == 5);
    let mut names: Vec<&str> = coded
        .map(|param| executor.params()[param].name.as_str())
        .collect();
    let mut expected: Vec<&str> = (golden["eight_bit"].as_array().into_iter().flatten())
        .filter_map(Json::as_str)
        .collect();
    names.sort_unstable();
    expected.sort_unstable();
    assert_eq!(names, expected);
    let found = distances(&eight_bit, &losses);
    assert!(
        largest(found[..8].iter().copied()) <= 2e-5 && largest(found.iter().copied()) <= 2e-4,
        "{found:?}"
    );
    let wide = rig(&[keys.as_slice(), &[("optim.min_8bit_size", "1000000")]].concat());
    let found = distances(&wide, &losses);
    assert!(
        largest(found[..8].iter().copied()) > 1e-4,
        "32 bits are as near: {found:?}"
    );
}

#[test]
fn an_adapter_follows_the_curve_of_bitsandbytes_with_8_bits_for_all_params() {
    let keys = [
        ("plugins", "[\"lora\"]"),
        ("adapter.lora.rank", "8"),
        ("adapter.lora.alpha", "16"),
        ("optim.learning_rate", "2e-3"),
        ("optim.weight_decay", "0.01"),
        ("optim.clip_norm", "0.0"),
        ("optim.min_8bit_size", "1"),
    ];
    let rig = rig(&keys);
    rig.set_params(&Golden::open("llama/lora_init_r8.safetensors"));
    let losses = numbers(&json("llama/summary.json")["curve_lora_f32_adamw8bit_min1"]["loss"]);
    let found = distances(&rig, &losses);
    assert!(largest(found.iter().copied()) <= 1e-4, "{found:?}");
}

/// Values and state of all params after three steps.
fn trained(kind: &[(&str, &str)]) -> Vec<Named> {
    let fixed = [
        ("model.compute", "\"f32\""),
        ("data.max_seq_len", "32"),
        ("data.micro_batch", "1"),
        ("optim.name", "\"adamw8bit\""),
        ("optim.weight_decay", "0.1"),
    ];
    let keys = [fixed.as_slice(), kind].concat();
    let rig = TeamRig::new(&golden_path("llama/tiny-trained"), &keys);
    let rows = Golden::open("llama/data.safetensors").rows("train_tokens");
    let steps = rows.chunks(4).take(3).map(|rows| {
        let rows = rows.iter().map(std::slice::from_ref);
        step_of(rows.map(|row| micro_batch(row, row)).collect())
    });
    rig.train(&steps.collect::<Vec<_>>());
    let values = rig.state(StatePart::Values);
    std::iter::once(values)
        .chain(rig.optimizer_state())
        .collect()
}

/// Ranks that share a step's rows alike have the same gradients, and so the same codes: a block is
/// of its param's elements, whatever part of them a rank keeps.
#[test]
fn the_state_does_not_depend_on_where_it_is_kept() {
    let offloaded = ("sharding.fsdp.offload", "\"params+optimizer\"");
    for ranks in ["1", "2", "3"] {
        let world = ("run.ranks", ranks);
        let whole = trained(&[("plugins", "[\"ddp\"]"), world]);
        assert_eq!(whole.len(), 1 + 4 + 2);
        let params: Vec<usize> = whole.iter().map(Vec::len).collect();
        assert_eq!(params, [21, 12, 12, 12, 12, 9, 9]);
        let sharded = trained(&[("plugins", "[\"fsdp\"]"), world]);
        assert!(sharded == whole, "sharded on {ranks}");
        let offloaded = trained(&[("plugins", "[\"fsdp\"]"), world, offloaded]);
        assert!(offloaded == whole, "offloaded on {ranks}");
    }
}
