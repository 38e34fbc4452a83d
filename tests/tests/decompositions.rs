//! Ops that run by their decompositions: within the kit's bounds of the op itself, and in training.
#![cfg(feature = "embedded")]

mod decomposing;
mod swapping;

use std::fs;
use std::sync::Arc;

use espalier_backend_cpu::CpuBackend;
use espalier_conformance::ops;
use espalier_conformance::{Threads, largest};
use espalier_interface::{Backend, OpId};
use espalier_tests::golden_path;
use espalier_trainer::train;
use serde_json::{Value as Json, json};

use decomposing::Decomposing;
use swapping::{Job, plugin_folder};

/// The ops that have to have a decomposition, each with its gradients.
const FAMILIES: [(&str, &[&str]); 9] = [
    ("swiglu", &["swiglu", "swiglu_backward"]),
    (
        "rms_norm",
        &["rms_norm", "rms_norm_backward", "rms_norm_weight_backward"],
    ),
    ("geglu_tanh", &["geglu_tanh", "geglu_tanh_backward"]),
    ("gelu", &["gelu", "gelu_backward"]),
    (
        "layer_norm",
        &[
            "layer_norm",
            "layer_norm_backward",
            "layer_norm_weight_backward",
        ],
    ),
    (
        "rms_norm_offset",
        &[
            "rms_norm_offset",
            "rms_norm_offset_backward",
            "rms_norm_offset_weight_backward",
        ],
    ),
    ("rope", &["rope", "rope_backward"]),
    (
        "cross_entropy",
        &["cross_entropy", "cross_entropy_backward"],
    ),
    (
        "scale_channels",
        &["scale_channels", "scale_channels_weight_backward"],
    ),
];

/// Every case of the kit, in f32 and bf16, with no token, odd shapes and heads. The bounds are
/// those that the kit derives for the op itself: a decomposition passes as a kernel of its own.
#[test]
fn decompositions_are_within_the_bounds_of_their_ops() {
    for (_, family) in FAMILIES {
        for &op in family {
            let backend = CpuBackend::new(Arc::new(Threads::new(2)));
            let cpu = backend.open(0).expect("the machine");
            let name = format!("op.{op}");
            let check = ops::all().find(|check| check.name == name);
            let device = Decomposing::new(cpu, OpId::first(op));
            let checked = ops::check(&device, check.expect("a check of the kit"));
            assert_eq!(checked, Ok(()), "{op}");
        }
    }
}

/// Fused ops, from the ops that they stand for.
#[test]
fn fused_ops_are_within_their_bounds_when_decomposed() {
    for op in [
        "linear.2",
        "linear_input_backward.2",
        "linear_weight_backward.2",
        "linear.4",
        "linear_input_backward.4",
    ] {
        let backend = CpuBackend::new(Arc::new(Threads::new(2)));
        let cpu = backend.open(0).expect("the machine");
        let name = format!("op.{op}");
        let check = ops::all().find(|check| check.name == name);
        let device = Decomposing::new(cpu, OpId::named(op));
        let checked = ops::check(&device, check.expect("a check of the kit"));
        assert_eq!(checked, Ok(()), "{op}");
    }
}

/// Runs that train all of a model, of Llama's line and of Gemma's, and one that scales channels:
/// the keys, and the families of ops that are hidden.
const RUNS: [(&str, &[&str], &[&str]); 3] = [
    (
        "full",
        &["optim.learning_rate=1e-3"],
        &["swiglu", "rms_norm", "rope", "cross_entropy"],
    ),
    (
        "gemma2",
        &["optim.learning_rate=1e-3"],
        &["geglu_tanh", "rms_norm_offset"],
    ),
    ("ia3", &["plugins=\"ia3\""], &["scale_channels"]),
];

/// The job of a run, on Gemma's model where it is that.
fn job_of(name: &str, keys: &[&str]) -> Job {
    if name != "gemma2" {
        return Job::new(keys);
    }
    let model = format!("model.path={:?}", golden_path("families/gemma2"));
    let job = Job::new(&[keys, &[model.as_str()]].concat());
    // Of a smaller vocabulary.
    let row =
        |index: u32| json!({"input_ids": (5 + 6 * index..11 + 6 * index).collect::<Vec<_>>()});
    let rows: String = (0..8).map(|index| format!("{}\n", row(index))).collect();
    fs::write(job.path("rows.jsonl"), rows).expect("written");
    job
}

/// Optimizer steps.
const STEPS: usize = 20;

/// Trains a job of `compute` with further keys.
///
/// # Panics
/// Where it fails, or takes other than [`STEPS`] steps.
fn trained(job: &Job, out: &str, compute: &str, more: &[String]) -> Vec<[f64; 2]> {
    let own = [
        format!("run.max_steps={STEPS}"),
        format!("model.compute=\"{compute}\""),
    ];
    let keys = job.keys.iter().chain(&own).chain(more).cloned().collect();
    let job = Job::there(job.folder.clone(), keys);
    let asking = job.asking(out, &[]);
    let run = train::run(&job.config(out), &asking, &asking.stop);
    run.unwrap_or_else(|error| panic!("{out}: {error}"));
    let lines = fs::read_to_string(job.path(out).join("metrics.jsonl")).expect("metrics");
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str::<Json>(line).expect("JSON"));
    let numbers =
        lines.filter_map(|line| Some([line["loss"].as_f64()?, line["grad_norm"].as_f64()?]));
    let numbers: Vec<[f64; 2]> = numbers.collect();
    assert_eq!(numbers.len(), STEPS, "{out}");
    numbers
}

/// The largest relative distance of losses and norms of gradients.
fn apart(a: &[[f64; 2]], b: &[[f64; 2]]) -> f64 {
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    largest(pairs.map(|(a, b)| (a - b).abs() / b.abs()))
}

/// A decomposition rounds about as often as its op, so that both runs are about as far from the run
/// in f64 as rounding takes them: `r`, the distance of the run with the op. They are then at most
/// `2 r` apart. In f64 the roundings are 2^-29 of those in f32, and so is the distance; 64 times
/// that leaves room for functions that are good to some units in the last place.
#[test]
fn runs_with_decomposed_ops_train_as_with_the_op() {
    for (name, keys, hidden_here) in RUNS {
        let job = job_of(name, keys);
        let plugins = plugin_folder(&job, "late");
        let found = format!("run.plugin_dirs=[{plugins:?}]");
        let [single, double] = ["f32", "f64"].map(|compute| {
            trained(
                &job,
                &format!("cpu-{compute}"),
                compute,
                std::slice::from_ref(&found),
            )
        });
        let rounding = apart(&single, &double);
        assert!(rounding > 0.0 && rounding < 1e-2, "{name}: {rounding:e}");
        for (op, family) in FAMILIES {
            if !hidden_here.contains(&op) {
                continue;
            }
            let hidden = [
                found.clone(),
                "run.backend=\"late\"".to_owned(),
                "backend.late.order=\"early\"".to_owned(),
                format!("backend.late.hides=\"{}\"", family.join(",")),
            ];
            for (compute, expected, bound) in [
                ("f32", &single, 2.0 * rounding),
                ("f64", &double, 64.0 * rounding * 2f64.powi(-29)),
            ] {
                let out = format!("{op}-{compute}");
                let distance = apart(&trained(&job, &out, compute, &hidden), expected);
                assert!(distance <= bound, "{out}: {distance:e}, at most {bound:e}");
            }
        }
    }
}

/// All at once, in bf16, with selective recompute and a packed base: the run plans, trains and
/// saves, and its losses are about those of the run with the ops: in bf16 a result that is rounded
/// the other way is 2^-8 of its size off.
#[test]
fn a_packed_run_in_bf16_trains_with_all_hidden() {
    let job = Job::new(&[
        "plugins=\"nf4,lora\"",
        "model.recompute=\"selective\"",
        // With large steps a single rounding grows to other losses within ten steps.
        "optim.learning_rate=2e-4",
    ]);
    let folder = plugin_folder(&job, "late");
    let expected = trained(&job, "cpu", "bf16", &[]);
    let all: Vec<&str> = FAMILIES
        .iter()
        .flat_map(|(_, family)| *family)
        .copied()
        .collect();
    let hidden = [
        format!("run.plugin_dirs=[{folder:?}]"),
        "run.backend=\"late\"".to_owned(),
        format!("backend.late.hides=\"{}\"", all.join(",")),
    ];
    let found = trained(&job, "late", "bf16", &hidden);
    let distance = apart(&found, &expected);
    assert!(distance <= 1.0 / 256.0, "{distance:e}");
}
