//! The kit of ops: every op of the cpu backend passes it, and each planted bug is found by the
//! check of its op, and by random cases.
#![cfg(feature = "embedded")]

mod fused_bugs;
mod layer_bugs;
mod random_cases;
mod spoiled;

use std::sync::Arc;

use espalier_backend_cpu::CpuBackend;
use espalier_conformance::ops::{self, KitCases, OpCheck};
use espalier_conformance::{Fault, Threads};
use espalier_interface::{Backend, DType, Device, ErrorCode, KernelRequest};
use serde_json::Value as Json;

use spoiled::changes::{joined, next, scaled, set, uncapped, wider};
use spoiled::{Bug, Spoiled};

/// The cpu backend's device on two threads.
fn cpu() -> Box<dyn Device> {
    let backend = CpuBackend::new(Arc::new(Threads::new(2)));
    backend.open(0).expect("the machine")
}

fn check_of(op: &str) -> &'static OpCheck {
    let name = format!("op.{op}");
    let mut all = ops::all();
    all.find(|check| check.name == name)
        .expect("a check of the kit")
}

/// The reason why `op` fails on a device with a bug.
fn found(op: &OpCheck, bug: Bug) -> Result<String, String> {
    let device = Spoiled::new(cpu(), bug);
    match KitCases::kept(op).check(&device) {
        Err(Fault::Failed(reason)) => Ok(reason),
        other => Err(format!("{}: {other:?}", op.name)),
    }
}

/// Fails with the bugs that the checks did not find, or not for the reason `because`.
fn all_found(because: &str, planted: impl IntoIterator<Item = (&'static str, &'static str, Bug)>) {
    let mut missed = Vec::new();
    for (op, what, bug) in planted {
        match found(check_of(op), bug) {
            Ok(reason) if reason.contains(because) => {}
            Ok(reason) => missed.push(format!("{op}, {what}: found as {reason}")),
            Err(reason) => missed.push(format!("{op}, {what}: {reason}")),
        }
    }
    assert!(missed.is_empty(), "not found:\n{}", missed.join("\n"));
}

/// The name of the op of a check.
fn op_of(check: &OpCheck) -> &'static str {
    check.name.strip_prefix("op.").expect("the checks' prefix")
}

#[test]
fn every_op_of_cpu_passes() {
    let device = cpu();
    for op in ops::all() {
        let checked = KitCases::kept(op).check(device.as_ref());
        assert_eq!(checked, Ok(()), "{}", op.name);
    }
}

#[test]
fn the_kit_has_every_op_of_cpu() {
    let request = KernelRequest::new("no_such_op").limits(1, 1);
    let refused = cpu().prepare(&request, &[]).expect_err("an unknown op");
    let (_, known) = refused.message.split_once("known are ").expect("its ops");
    let mut known: Vec<&str> = known.split(", ").collect();
    let mut checked: Vec<&str> = ops::all().map(op_of).collect();
    known.sort_unstable();
    checked.sort_unstable();
    assert_eq!(checked, known);
}

#[test]
fn an_op_that_is_not_offered_is_not_passed() {
    let without: [(Bug, &str); 2] = [
        (
            Bug::Request(|request| request.op = "no_such_op".to_owned()),
            "not offered: f32, T 0, D 5: op `no_such_op`",
        ),
        (
            Bug::Request(|request| {
                if request.inputs[0].dtype == DType::BF16 {
                    request.version = 2;
                }
            }),
            "6 of 12 cases pass, 6 are not offered, the first: bf16, T 0, D 5",
        ),
    ];
    for (bug, words) in without {
        let device = Spoiled::new(cpu(), bug);
        match KitCases::kept(check_of("add")).check(&device) {
            Err(Fault::Skipped(reason)) => assert!(reason.starts_with(words), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_refusal_of_another_kind_is_a_failure() {
    let bug = Bug::Request(|request| request.outputs.clear());
    let reason = found(check_of("add"), bug).expect("a failure");
    assert!(
        reason.contains("0 outputs"),
        "{reason} {}",
        ErrorCode::INVALID.0
    );
}

#[test]
fn a_last_element_that_is_off_or_stale_is_found_in_every_op() {
    let of = |what, bug| ops::all().map(move |op| (op_of(op), what, bug));
    all_found("must be", of("off", Bug::LastElement));
    // By its value, or where the first filling is the value, by the second.
    all_found("", of("stale", Bug::LastStays));
}

#[test]
fn bytes_written_outside_of_outputs_are_found_in_every_op() {
    let of = |what, bug| ops::all().map(move |op| (op_of(op), what, bug));
    all_found(
        "from its start was written",
        of("behind", Bug::WritesBehind),
    );
    all_found(
        "beside the workspace",
        of("workspace", Bug::WritesBehindWorkspace),
    );
    let read = of("input", Bug::WritesInput).filter(|(op, ..)| !["zero", "init"].contains(op));
    all_found("which is only read, was written", read);
}

#[test]
fn results_that_follow_from_the_workspace_are_found() {
    let with = [
        "linear",
        "linear_input_backward",
        "linear_weight_backward",
        "linear.2",
        "linear.3",
        "linear.4",
        "linear_input_backward.2",
        "linear_input_backward.3",
        "linear_input_backward.4",
        "linear_weight_backward.2",
        "rms_norm_weight_backward",
        "rms_norm_offset_weight_backward",
        "layer_norm_weight_backward",
        "attention",
        "attention_backward",
        "attention_cached",
        "adapted_row_norms",
        "matmul",
    ];
    all_found(
        "two launches on the same operands differ",
        with.map(|op| (op, "reads its workspace", Bug::ReadsWorkspace)),
    );
}

#[test]
fn gradients_that_are_written_over_or_of_the_other_sign_are_found() {
    let added = [
        "embedding_backward",
        "linear_weight_backward",
        "linear_weight_backward.2",
        "bias_backward",
        "rms_norm_weight_backward",
        "rms_norm_offset_weight_backward",
        "layer_norm_weight_backward",
        "scale_channels_weight_backward",
        "param_value_backward",
        "adamw",
        "adamw8bit",
    ];
    all_found(
        "must be",
        added.map(|op| (op, "written over", Bug::WritesOver)),
    );
    let mirrored = Bug::Writes(0, |before, after| {
        let pairs = after.iter_mut().zip(before);
        pairs.for_each(|(after, before)| *after = 2.0 * before - *after);
    });
    let subtracted = added[..9].iter().map(|op| (*op, "subtracted", mirrored));
    all_found("must be", subtracted);
    let negated = Bug::Writes(0, |_, after| after.iter_mut().for_each(|x| *x = -*x));
    let backward = [
        "linear_input_backward",
        "linear_input_backward.2",
        "linear_input_backward.4",
        "rms_norm_backward",
        "rms_norm_backward.2",
        "rms_norm_offset_backward",
        "layer_norm_backward",
        "gelu_backward",
        "rope_backward",
        "rope_backward.2",
        "attention_backward",
        "swiglu_backward",
        "geglu_tanh_backward",
        "slice_columns_backward",
        "cross_entropy_backward",
        "cross_entropy_backward.2",
    ];
    all_found("must be", backward.map(|op| (op, "negated", negated)));
}

#[test]
fn bugs_of_attention_are_found() {
    let of = |op: &'static str, cu_seqlens: usize| {
        [
            (op, "a window off by one", Bug::Request(wider)),
            (op, "no cap", Bug::Request(uncapped)),
            (op, "a scale of another head", Bug::Request(scaled)),
            (op, "sequences joined", Bug::Reads(cu_seqlens, joined)),
        ]
    };
    let causal = Bug::Request(|request| {
        let causal = request.attributes.flag("causal");
        set(request, "causal", !causal);
        set(request, "window", Json::Null);
    });
    let own = [
        ("attention", "later tokens seen", causal),
        ("attention_backward", "later tokens seen", causal),
        ("attention", "k for v", Bug::Swaps(1, 2)),
        ("attention_backward", "dk for dv", Bug::Swaps(8, 9)),
        ("attention_cached", "keys for values", Bug::Swaps(7, 8)),
    ];
    all_found("must be", of("attention", 3).into_iter().chain(own));
    all_found("must be", of("attention_backward", 6));
    let cached = of("attention_cached", 3).into_iter().take(3);
    let places = Bug::Reads(4, next);
    all_found(
        "must be",
        cached.chain([("attention_cached", "a place off by one", places)]),
    );
}

#[test]
fn bugs_of_other_layers_are_found() {
    let bias = Bug::Drops(2, usize::MAX);
    let codes = Bug::Drops(1, 1);
    let eps = Bug::Request(|request| set(request, "eps", 2e-5));
    let unscaled = Bug::Request(|request| set(request, "scaling", 1.0));
    let turned = Bug::Request(|request| request.op = "rope_backward".to_owned());
    let alpha = Bug::Request(|request| {
        request.attributes.0.remove("alpha");
    });
    let single = Bug::Request(|request| set(request, "alpha", 0.333_333));
    let no_offset = Bug::Request(|request| set(request, "offset", 0.0));
    let swiglu = Bug::Request(|request| request.op = "swiglu".to_owned());
    let before = Bug::Request(|request| {
        if let Some(first @ 2..) = request.attributes.0.get("first").and_then(Json::as_u64) {
            set(request, "first", first - 1);
        }
    });
    let still = Bug::Request(|request| set(request, "alpha", 0.0));
    let tokens = Bug::Reads(0, |tokens| {
        tokens.iter_mut().for_each(|t| *t = (*t - 1).max(0))
    });
    all_found(
        "must be",
        [
            ("embedding", "the token before", tokens),
            ("linear", "no bias", bias),
            ("linear", "the last code", codes),
            ("linear_input_backward", "the last code", codes),
            ("rms_norm", "another eps", eps),
            ("rms_norm_backward", "another eps", eps),
            ("rms_norm_weight_backward", "another eps", eps),
            ("rope", "the other way", turned),
            ("rope", "the next position", Bug::Reads(1, next)),
            ("rope", "no scaling", unscaled),
            ("rope_backward", "the next position", Bug::Reads(1, next)),
            ("swiglu", "up for gate", Bug::Swaps(0, 1)),
            ("swiglu_backward", "dup for dgate", Bug::Swaps(3, 4)),
            ("geglu_tanh", "another gate", swiglu),
            ("geglu_tanh", "up for gate", Bug::Swaps(0, 1)),
            ("geglu_tanh_backward", "dup for dgate", Bug::Swaps(3, 4)),
            ("rms_norm_offset", "no offset", no_offset),
            ("rms_norm_offset_backward", "no offset", no_offset),
            ("rms_norm_offset_weight_backward", "another eps", eps),
            ("slice_columns", "the columns before", before),
            ("slice_columns_backward", "the columns before", before),
            ("slice_columns_backward", "nothing added", Bug::Drops(1, 4)),
            ("add", "no alpha", alpha),
            ("mul", "the last factor", Bug::Drops(1, 4)),
            ("scale", "alpha of six digits", single),
            ("div", "the last divisor", Bug::Drops(1, 4)),
            ("scale_by", "the last factor", Bug::Drops(1, 4)),
            ("scale_by_backward", "the last token", Bug::Drops(0, 4)),
            ("param_value", "the last code", Bug::Drops(0, 1)),
            ("adapted_row_norms", "no update", still),
            ("adapted_row_norms", "the last code", Bug::Drops(0, 1)),
            ("matmul", "the last element of a", Bug::Drops(0, 4)),
            ("matmul", "the last element of b", Bug::Drops(1, 4)),
            ("scale_channels", "the last channel", Bug::Drops(1, 4)),
            (
                "scale_channels_weight_backward",
                "the last token",
                Bug::Drops(0, 4),
            ),
            ("bias_backward", "the last token", Bug::Drops(0, 4)),
        ],
    );
}

#[test]
fn bugs_of_draws_are_found() {
    let step = Bug::Scalars(|scalars| scalars[2] += 1.0);
    let site = Bug::Scalars(|scalars| scalars[3] += 1.0);
    let seed = Bug::Scalars(|scalars| scalars.swap(0, 1));
    let low = Bug::Scalars(|scalars| scalars[1] = 0.0);
    let share = Bug::Request(|request| {
        let p = request.attributes.number("p").expect("p");
        set(request, "p", (p + 0.01).min(0.95));
    });
    let bound = Bug::Request(|request| {
        if request.attributes.0.contains_key("bound") {
            set(request, "bound", 0.040_001);
        }
    });
    all_found(
        "must be",
        [
            ("dropout", "the next step", step),
            ("dropout", "the next site", site),
            ("dropout", "the seed's halves swapped", seed),
            ("dropout", "half of the seed", low),
            ("dropout", "another share", share),
            ("dropout", "the next position", Bug::Reads(2, next)),
            ("dropout", "sequences for positions", Bug::Swaps(1, 2)),
            ("init", "the next param", step),
            ("init", "half of the seed", low),
            ("init", "another bound", bound),
        ],
    );
}

#[test]
fn bugs_of_losses_and_steps_are_found() {
    let trained = Bug::Reads(1, |labels| labels.iter_mut().for_each(|l| *l = (*l).max(0)));
    let factor = Bug::Scalars(|scalars| scalars[0] *= 1.000_01);
    let right = Bug::Writes(2, |_, correct| correct.fill(1.0));
    let blind = Bug::Writes(0, |_, found| found.fill(-1.0));
    let scalar: [(&str, Bug); 6] = [
        ("the step before", Bug::Scalars(|scalars| scalars[5] += 1.0)),
        (
            "beta1 for beta2",
            Bug::Scalars(|scalars| scalars.swap(1, 2)),
        ),
        ("no eps", Bug::Scalars(|scalars| scalars[3] = 0.0)),
        ("no decay", Bug::Scalars(|scalars| scalars[4] = 0.0)),
        ("no factor", Bug::Scalars(|scalars| scalars[6] = 1.0)),
        ("another rate", Bug::Scalars(|scalars| scalars[0] *= 1.001)),
    ];
    let own = [
        ("cross_entropy", "-100 trained", trained),
        ("cross_entropy", "all right", right),
        (
            "cross_entropy",
            "labels of others",
            Bug::Reads(1, |labels| labels.reverse()),
        ),
        ("cross_entropy_backward", "-100 trained", trained),
        ("cross_entropy_backward", "another factor", factor),
        (
            "cross_entropy_backward",
            "lse of others",
            Bug::Reads(2, |lse| lse.reverse()),
        ),
        ("sum_squares", "the last element", Bug::Drops(0, 4)),
        ("first_not_finite", "nothing found", blind),
    ];
    let steps = |op| scalar.map(|(what, bug)| (op, what, bug));
    let steps = [steps("adamw"), steps("adamw8bit")].concat();
    let scalar: [(&str, Bug); 5] = [
        ("another rate", Bug::Scalars(|scalars| scalars[0] *= 1.001)),
        ("no momentum", Bug::Scalars(|scalars| scalars[1] = 0.0)),
        ("Nesterov's", Bug::Scalars(|scalars| scalars[2] = 1.0)),
        ("no decay", Bug::Scalars(|scalars| scalars[3] = 0.0)),
        ("no factor", Bug::Scalars(|scalars| scalars[4] = 1.0)),
    ];
    let sgd = scalar.map(|(what, bug)| ("sgd", what, bug));
    all_found("must be", own.into_iter().chain(steps).chain(sgd));
}
