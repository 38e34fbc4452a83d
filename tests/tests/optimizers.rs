//! Full fine-tuning with optimizers and groups of params against torch and transformers: curves,
//! norms, groups and trained params.
#![cfg(feature = "embedded")]

use espalier_config::{Sources, resolve};
use espalier_data::StepBatch;
use espalier_engine::observer::Unobserved;
use espalier_engine::step;
use espalier_tests::{Golden, Rig, golden_path, micro_batch, relative_norm, step_of};
use espalier_trainer::session::Session;
use serde_json::Value as Json;

/// The settings of all cases: f32, rows of 4 x 32 tokens, clipped at 1 as torch's curves are.
const COMMON: [(&str, &str); 6] = [
    ("plugins", "[]"),
    ("model.compute", "\"f32\""),
    ("data.max_seq_len", "32"),
    ("data.micro_batch", "4"),
    ("optim.clip_norm", "1.0"),
    ("optim.weight_decay", "0.1"),
];
/// The embedding apart, with a tenth of the learning rate and without decay.
const EMBEDDING: &str =
    "[{ pattern = \"*.embed_tokens.weight\", learning_rate = 1e-4, weight_decay = 0.0 }]";
const SLOW_EMBEDDING: &str =
    "[{ pattern = \"*.embed_tokens.weight\", learning_rate = 0.001, weight_decay = 0.0 }]";

/// A case of the golden curves, and its keys.
type Case = (&'static str, &'static [(&'static str, &'static str)]);

const ADAMW: [Case; 2] = [
    ("adamw", &[("optim.learning_rate", "1e-3")]),
    (
        "adamw_embedding",
        &[("optim.learning_rate", "1e-3"), ("optim.groups", EMBEDDING)],
    ),
];

const SGD: [Case; 3] = [
    (
        "sgd_momentum",
        &[
            ("optim.name", "\"sgd\""),
            ("optim.learning_rate", "0.01"),
            ("optim.momentum", "0.9"),
        ],
    ),
    (
        "sgd_nesterov",
        &[
            ("optim.name", "\"sgd\""),
            ("optim.learning_rate", "0.01"),
            ("optim.momentum", "0.9"),
            ("optim.nesterov", "true"),
            ("optim.groups", SLOW_EMBEDDING),
        ],
    ),
    (
        "sgd_plain",
        &[
            ("optim.name", "\"sgd\""),
            ("optim.learning_rate", "0.05"),
            ("optim.weight_decay", "0.0"),
        ],
    ),
];

fn summary() -> Json {
    let path = golden_path("optimizers/summary.json");
    let text = std::fs::read_to_string(path).expect("the golden curves");
    serde_json::from_str(&text).expect("JSON")
}

fn golden_steps() -> Vec<StepBatch> {
    let rows = Golden::open("llama/data.safetensors").rows("train_tokens");
    let steps = rows.chunks(4);
    steps
        .map(|rows| step_of(vec![micro_batch(rows, rows)]))
        .collect()
}

fn numbers(values: &Json) -> Vec<f64> {
    let values = values.as_array().into_iter().flatten();
    values.filter_map(Json::as_f64).collect()
}

/// The rig of a case on the trained tiny Llama.
fn rig(keys: &[(&str, &str)]) -> Rig {
    Rig::new(
        &golden_path("llama/tiny-trained"),
        &[COMMON.as_slice(), keys].concat(),
    )
}

/// Trains the twenty steps and compares losses, norms, groups and the params that were kept, each
/// param to within `params` of its norm.
fn follow((case, keys): Case, params: f64) {
    let rig = rig(keys);
    let curve = &summary()[case];
    let groups = rig.executor.groups().all().iter();
    let groups: Vec<Vec<f64>> = groups
        .map(|group| vec![group.params as f64, group.elements as f64])
        .collect();
    let (losses, norms) = (numbers(&curve["loss"]), numbers(&curve["grad_norm"]));
    let expected: Vec<Vec<f64>> = (curve["groups"].as_array().into_iter().flatten())
        .map(numbers)
        .collect();
    // Groups of equal numbers are one here.
    if curve["weight_decay"] != 0.0 {
        assert_eq!(groups, expected, "{case}");
    }
    let steps = golden_steps();
    assert_eq!((steps.len(), losses.len()), (20, 20));
    for (index, batch) in steps.iter().enumerate() {
        let at = [index as u64, 20];
        let found = step::train(&rig.executor, &rig.config.optim, batch, at, 42).expect("a step");
        let distance = (found.loss - losses[index]).abs();
        assert!(
            distance <= 1e-5,
            "{case} step {index}: {} is off by {distance}",
            found.loss
        );
        let distance = (found.grad_norm / norms[index] - 1.0).abs();
        assert!(
            distance <= 1e-4,
            "{case} step {index}: norm is off by {distance}"
        );
    }
    let last = Golden::open("optimizers/trained_final.safetensors");
    let prefix = format!("{case}.");
    let kept: Vec<&str> = last
        .names()
        .filter_map(|name| name.strip_prefix(&prefix))
        .collect();
    assert!(kept.len() >= 7, "{kept:?}");
    for name in kept {
        let expected = last.numbers(&format!("{prefix}{name}"));
        let distance = relative_norm(&rig.values(name), expected);
        assert!(
            distance <= params,
            "{case}: `{name}` is off by {distance} at the end"
        );
    }
}

/// AdamW divides by the root of the second moment: for a tiny gradient its rounding determines the
/// step.
#[test]
fn adamw_with_the_groups_of_transformers_follows_torch() {
    for case in ADAMW {
        follow(case, 2e-4);
    }
}

#[test]
fn sgd_follows_torch() {
    for case in SGD {
        follow(case, 1e-5);
    }
}

/// The groups matter: without them the curve of AdamW leaves the golden one.
#[test]
fn decay_of_norms_moves_them() {
    let last = Golden::open("optimizers/trained_final.safetensors");
    let name = "model.norm.weight";
    let keys = [
        ("optim.learning_rate", "1e-3"),
        ("optim.decay_norms_and_biases", "true"),
    ];
    let rig = rig(&keys);
    assert_eq!(rig.executor.groups().all().len(), 1);
    for (index, batch) in golden_steps().iter().enumerate() {
        let at = [index as u64, 20];
        step::train(&rig.executor, &rig.config.optim, batch, at, 42).expect("a step");
    }
    let expected = last.numbers(&format!("adamw.{name}"));
    let distance = relative_norm(&rig.values(name), expected);
    // 20 steps of 1e-3 x 0.1.
    assert!((1e-3..4e-3).contains(&distance), "{distance}");
}

/// The error of a session whose keys are refused.
fn refused(keys: &[(&str, &str)]) -> String {
    let keys = [COMMON.as_slice(), keys].concat();
    let model = format!("model.path={:?}", golden_path("llama/tiny-trained"));
    let sources = keys
        .iter()
        .fold(Sources::default().set(model), |sources, (key, value)| {
            sources.set(format!("{key}={value}"))
        });
    let resolved = match resolve(&sources) {
        Ok(resolved) => resolved,
        Err(error) => return error.to_string(),
    };
    match Session::open(&resolved, &Unobserved) {
        Ok(_) => panic!("{keys:?} is accepted"),
        Err(error) => format!("{error:?}"),
    }
}

#[test]
fn groups_that_hold_nothing_and_keys_of_other_optimizers_are_refused() {
    for (key, value, words) in [
        (
            "optim.groups",
            "[{ pattern = \"*.embed_token.weight\" }]",
            &["optim.groups.0.pattern", "*embed_tokens.weight"][..],
        ),
        (
            "optim.groups",
            "[{ pattern = \"*norm.weight\" }, { pattern = \"model.norm.weight\" }]",
            &[
                "optim.groups.1.pattern",
                "holds no parameter",
                "*norm.weight",
            ],
        ),
        (
            "optim.groups",
            "[{ learning_rate = 1e-3 }]",
            &["optim.groups.0.pattern", "a pattern of param names"],
        ),
        (
            "optim.groups",
            "[{ pattern = \"*\", weigth_decay = 1e-3 }]",
            &["`weigth_decay`", "`weight_decay`"],
        ),
        (
            "optim.groups",
            "[{ pattern = \"*\", learning_rate = -1e-3 }]",
            &["optim.groups.0.learning_rate", "0 or more"],
        ),
        (
            "optim.name",
            "\"lion\"",
            &["optim.name", "one of `adamw`, `adamw8bit`, `sgd`"],
        ),
        (
            "optim.min_8bit_size",
            "1",
            &["optim.min_8bit_size", "`adamw8bit`", "`adamw`"],
        ),
        (
            "optim.momentum",
            "0.9",
            &["optim.momentum", "`sgd`", "`adamw`"],
        ),
    ] {
        let error = refused(&[(key, value)]);
        for word in words {
            assert!(error.contains(word), "{key} = {value}: {error}");
        }
    }
    let sgd = ("optim.name", "\"sgd\"");
    let error = refused(&[sgd, ("optim.momentum", "1.0")]);
    assert!(error.contains("from 0 to below 1"), "{error}");
    let error = refused(&[sgd, ("optim.nesterov", "true")]);
    assert!(error.contains("`nesterov` needs `momentum`"), "{error}");
    let error = refused(&[sgd, ("optim.betas", "[0.5, 0.9]")]);
    assert!(error.contains("`betas` is of `adamw`"), "{error}");
}

#[test]
fn numbers_in_bf16_that_contradict_other_keys_are_refused_with_both() {
    let state = ("optim.state", "\"bf16\"");
    for (keys, words) in [
        (
            [
                ("model.gradients", "\"bf16\""),
                ("model.compute", "\"f32\""),
            ],
            ["model.compute", "set model.compute = \"bf16\""],
        ),
        (
            [state, ("optim.name", "\"adamw8bit\"")],
            ["optim.name", "set optim.state = \"f32\""],
        ),
        (
            [state, ("model.compute", "\"f64\"")],
            ["model.compute", "leave optim.state out"],
        ),
        (
            [
                ("optim.stochastic_rounding", "true"),
                ("model.params", "\"f32\""),
            ],
            ["model.params", "set model.params = \"bf16\""],
        ),
    ] {
        let error = refused(&keys);
        for word in [keys[0].0, words[0], words[1]] {
            assert!(error.contains(word), "{keys:?}: {error}");
        }
    }
}
