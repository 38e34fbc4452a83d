//! Runs with fused ops and without them: the same bits, in f32 and bf16, dense and packed.
#![cfg(feature = "embedded")]

mod swapping;

use swapping::{Job, Outcomes, plugin_folder};

/// All fused ops.
const FUSED: &str = "linear.2,linear_input_backward.2,linear_weight_backward.2,rms_norm_backward.2,\
                     rope.2,rope_backward.2,linear.3,linear_input_backward.3,linear.4,\
                     linear_input_backward.4,cross_entropy_backward.2";
/// Fused ops that are hidden: all, those of products' gradients, all but the input's gradient added
/// up, what a backend of interface 0.6 does not list, those of low-rank products.
const SOME: [&str; 5] = [
    FUSED,
    "linear_input_backward.2,linear_weight_backward.2,linear_input_backward.3",
    "linear.2,linear_weight_backward.2,rms_norm_backward.2,rope.2",
    "rms_norm_backward.2,rope.2,rope_backward.2,linear.3,linear_input_backward.3,linear.4,\
     linear_input_backward.4",
    "linear.4,linear_input_backward.4",
];
/// A job on `late`, without dropout.
const KEYS: [&str; 2] = ["run.backend=\"late\"", "adapter.lora.dropout=0"];

/// Trains with all of the backend's ops and with some hidden: metrics, adapter or model, params and
/// moments are the same bytes.
fn same_bits(keys: &[&str], hidden: &[&str]) {
    let job = Job::new(&[&KEYS, keys].concat());
    let folder = plugin_folder(&job, "late");
    let of = |out: String, hidden: &str| -> Outcomes {
        let found = format!("run.plugin_dirs=[{folder:?}]");
        let hides = format!("backend.late.hides=\"{hidden}\"");
        let keys = [&job.keys[..], &[found, hides]].concat();
        Job::there(job.folder.clone(), keys).run(&out, &[])
    };
    let expected = of("all".to_owned(), "");
    for (at, hidden) in hidden.iter().enumerate() {
        let found = of(format!("hidden-{at}"), hidden);
        found.same_training(&expected, &format!("{keys:?} without {hidden}"));
    }
}

#[test]
fn adapters_in_f32_have_the_same_bits() {
    same_bits(&["plugins=\"lora\""], &SOME);
    let dropout = ["plugins=\"nf4,lora\"", "adapter.lora.dropout=0.1"];
    same_bits(&dropout, &SOME[..1]);
}

#[test]
fn adapters_in_bf16_have_the_same_bits() {
    let bf16 = "model.compute=\"bf16\"";
    let selective = "model.recompute=\"selective\"";
    same_bits(&["plugins=\"nf4,lora\"", bf16, selective], &SOME);
    same_bits(
        &[
            "plugins=\"lora\"",
            bf16,
            "model.recompute=\"layer\"",
            // No power of two by the rank.
            "adapter.lora.alpha=5",
            "adapter.lora.dropout=0.1",
        ],
        &SOME[..1],
    );
}

#[test]
fn full_training_and_decomposed_ops_have_the_same_bits() {
    same_bits(&["optim.learning_rate=1e-3"], &SOME[..1]);
    let job = Job::new(&KEYS);
    let folder = plugin_folder(&job, "late");
    let of = |out: &str, hidden: &str| {
        let found = format!("run.plugin_dirs=[{folder:?}]");
        let hides = format!("backend.late.hides=\"{hidden}\"");
        let own = ["plugins=\"lora\"".to_owned(), found, hides];
        let keys = [&job.keys[..], &own].concat();
        Job::there(job.folder.clone(), keys).run(out, &[])
    };
    let decomposed = "swiglu,swiglu_backward,rope,rope_backward";
    let found = of("neither", &format!("{decomposed},{FUSED}"));
    found.same_training(&of("decomposed", decomposed), "decomposed ops");
}
