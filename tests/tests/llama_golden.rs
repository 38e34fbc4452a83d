//! The whole path on a tiny Llama against transformers and PEFT: logits, losses, gradients and
//! training curves.

use std::fs;
use std::path::Path;

use espalier_data::{MicroBatch, StepBatch};
use espalier_engine::step;
use espalier_tests::{
    Golden, Rig, golden_path, largest_difference, micro_batch, relative_norm, step_of,
};
use serde_json::Value as Json;

const LORA: &str = "[\"lora\"]";
const NF4_LORA: &str = "[\"nf4\", \"lora\"]";
/// 4 bits in groups of 64 along axis 1, its defaults.
const HQQ_LORA: &str = "[\"hqq\", \"lora\"]";
/// The adapter of the golden runs: rank 8, scaling 2, all linears of layers.
const ADAPTER: [(&str, &str); 2] = [("adapter.lora.rank", "8"), ("adapter.lora.alpha", "16")];
const F32: (&str, &str) = ("model.compute", "\"f32\"");
/// The evaluation rows: 2 of 48 tokens.
const EVAL: [(&str, &str); 2] = [("data.max_seq_len", "48"), ("data.micro_batch", "2")];

fn trained() -> std::path::PathBuf {
    golden_path("llama/tiny-trained")
}

fn eval_batch() -> MicroBatch {
    let rows = Golden::open("llama/data.safetensors").rows("eval_tokens");
    micro_batch(&rows, &rows)
}

fn rig(directory: &Path, plugins: &str, more: &[(&str, &str)]) -> Rig {
    let mut keys = vec![("plugins", plugins), F32];
    keys.extend(EVAL);
    if plugins != "[]" {
        keys.extend(ADAPTER);
    }
    keys.extend(more);
    Rig::new(directory, &keys)
}

/// The mean loss of a micro-batch, computed with its gradients.
fn loss(rig: &Rig, micro: MicroBatch) -> f64 {
    rig.loss_and_gradients(&step_of(vec![micro]))
}

#[test]
fn logits_and_losses_equal_those_of_transformers() {
    let data = Golden::open("llama/data.safetensors");
    let rows = data.rows("eval_tokens");
    for model in ["tiny", "tiny-trained"] {
        let golden = Golden::open(&format!("llama/forward_{model}.safetensors"));
        let rig = rig(&golden_path(&format!("llama/{model}")), "[]", &[]);
        let difference = largest_difference(&rig.logits(&eval_batch()), golden.numbers("logits"));
        assert!(difference <= 2e-5, "{model}: logits differ by {difference}");
        let expected = golden.numbers("loss")[0];
        let found = loss(&rig, eval_batch());
        assert!(
            (found - expected).abs() <= 1e-6,
            "{model}: loss {found}, expected {expected}"
        );
        let expected = golden.numbers("loss_masked")[0];
        let found = loss(&rig, micro_batch(&rows, &data.rows("eval_labels_masked")));
        assert!(
            (found - expected).abs() <= 1e-6,
            "{model}: masked {found}, expected {expected}"
        );
    }
}

#[test]
fn a_padded_row_equals_a_shorter_row() {
    let data = Golden::open("llama/data.safetensors");
    let golden = Golden::open("llama/forward_tiny-trained.safetensors");
    let rig = rig(&trained(), "[]", &[]);
    let (mut rows, mut labels) = (data.rows("padded_tokens"), data.rows("padded_labels"));
    rows[1].truncate(30);
    labels[1].truncate(30);
    let found = loss(&rig, micro_batch(&rows, &labels));
    let expected = golden.numbers("padded.loss")[0];
    assert!(
        (found - expected).abs() <= 1e-6,
        "loss {found}, expected {expected}"
    );
}

#[test]
fn every_rope_variant_and_a_tied_head() {
    for variant in [
        "llama3_orig8192",
        "llama3_orig64",
        "linear2",
        "theta500k",
        "tied",
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        let config = golden_path(&format!("llama/variant_{variant}.config.json"));
        fs::copy(config, directory.path().join("config.json")).expect("a config");
        let weights = trained().join("model.safetensors");
        fs::copy(weights, directory.path().join("model.safetensors")).expect("weights");
        let golden = Golden::open(&format!("llama/variant_{variant}.safetensors"));
        let rig = rig(directory.path(), "[]", &[]);
        let found = rig.logits(&eval_batch());
        let difference = largest_difference(&found, golden.numbers("logits"));
        assert!(
            difference <= 2e-5,
            "{variant}: logits differ by {difference}"
        );
        let (found, expected) = (loss(&rig, eval_batch()), golden.numbers("loss")[0]);
        assert!(
            (found - expected).abs() <= 1e-6,
            "{variant}: loss {found}, expected {expected}"
        );
    }
}

#[test]
fn bf16_logits_are_within_bf16_rounding() {
    let golden = Golden::open("llama/forward_tiny-trained.safetensors");
    let rig = rig(&trained(), "[]", &[("model.compute", "\"bf16\"")]);
    let found = rig.logits(&eval_batch());
    let exact = golden.numbers("logits");
    let peer = largest_difference(golden.numbers("bf16.logits"), exact);
    let ours = largest_difference(&found, exact);
    let (ours_norm, peer_norm) = (
        relative_norm(&found, exact),
        relative_norm(golden.numbers("bf16.logits"), exact),
    );
    // As near to the exact logits as the peer's own bf16 run, which rounds at the same places.
    assert!(ours <= 1.5 * peer, "largest {ours}, the peer's {peer}");
    assert!(
        ours_norm <= 1.2 * peer_norm,
        "norm {ours_norm}, the peer's {peer_norm}"
    );
}

#[test]
fn full_fine_tuning_gradients() {
    let golden = Golden::open("llama/full_grads_tiny-trained.safetensors.gz");
    for recompute in ["none", "selective", "layer"] {
        let key = format!("\"{recompute}\"");
        let rig = rig(&trained(), "[]", &[("model.recompute", &key)]);
        loss(&rig, eval_batch());
        for name in golden.names() {
            let distance = relative_norm(&rig.gradient(name), golden.numbers(name));
            assert!(
                distance <= 1e-5,
                "{recompute}: gradient of `{name}` is off by {distance}"
            );
        }
    }
}

#[test]
fn lora_gradients_on_a_dense_and_a_packed_base() {
    for (tag, plugins, rslora) in [
        ("lora_f32", LORA, "false"),
        ("lora_nf4", NF4_LORA, "false"),
        ("lora_hqq", HQQ_LORA, "false"),
        ("rslora_f32", LORA, "true"),
    ] {
        let golden = Golden::open(&format!("llama/grads_{tag}.safetensors"));
        let rig = rig(&trained(), plugins, &[("adapter.lora.rslora", rslora)]);
        rig.set_params(&Golden::open("llama/lora_init_r8.safetensors"));
        let (found, expected) = (loss(&rig, eval_batch()), golden.numbers("loss")[0]);
        assert!(
            (found - expected).abs() <= 1e-6,
            "{tag}: loss {found}, expected {expected}"
        );
        let difference = largest_difference(&rig.logits(&eval_batch()), golden.numbers("logits"));
        assert!(difference <= 2e-5, "{tag}: logits differ by {difference}");
        let mut compared = 0;
        for key in golden.names() {
            let Some(name) = key.strip_prefix("grad.") else {
                continue;
            };
            let distance = relative_norm(&rig.gradient(name), golden.numbers(key));
            assert!(
                distance <= 1e-5,
                "{tag}: gradient of `{name}` is off by {distance}"
            );
            compared += 1;
        }
        assert_eq!(compared, 28, "{tag}: two params for each of 14 sites");
    }
}

/// The twenty golden steps: 4 sequences of 32 tokens each.
fn golden_steps() -> Vec<StepBatch> {
    let rows = Golden::open("llama/data.safetensors").rows("train_tokens");
    rows.chunks(4)
        .map(|rows| step_of(vec![micro_batch(rows, rows)]))
        .collect()
}

fn summary() -> Json {
    let text = fs::read_to_string(golden_path("llama/summary.json")).expect("a summary");
    serde_json::from_str(&text).expect("JSON")
}

/// Trains the twenty steps and compares every loss, and the recorded norms and learning rates of
/// the peer.
fn follow(rig: &Rig, curve: &Json, tag: &str) {
    let list = |key: &str| -> Option<Vec<f64>> {
        curve
            .get(key)?
            .as_array()
            .map(|l| l.iter().filter_map(Json::as_f64).collect())
    };
    let losses = list("loss").expect("losses");
    let norms = list("grad_norm").or_else(|| list("grad_norm_before_clip"));
    let steps = golden_steps();
    let total = steps.len() as u64;
    for (index, batch) in steps.iter().enumerate() {
        let at = [index as u64, total];
        let found = step::train(&rig.executor, &rig.config.optim, batch, at, 42).expect("a step");
        let distance = (found.loss - losses[index]).abs();
        assert!(
            distance <= 1e-5,
            "{tag} step {index}: {} is off by {distance}",
            found.loss
        );
        if let Some(norms) = &norms {
            let distance = (found.grad_norm / norms[index] - 1.0).abs();
            assert!(
                distance <= 1e-4,
                "{tag} step {index}: norm is off by {distance}"
            );
        }
        if let Some(rates) = list("lr") {
            let distance = (found.learning_rate - rates[index]).abs();
            assert!(
                distance <= 1e-12,
                "{tag} step {index}: rate is off by {distance}"
            );
        }
    }
}

const OPTIM: [(&str, &str); 3] = [
    ("optim.learning_rate", "2e-3"),
    ("optim.weight_decay", "0.01"),
    ("optim.clip_norm", "0.0"),
];
/// The training rows: 4 of 32 tokens.
const TRAIN: [(&str, &str); 2] = [("data.max_seq_len", "32"), ("data.micro_batch", "4")];

#[test]
fn twenty_adamw_steps_follow_the_golden_curves() {
    let summary = summary();
    for (tag, plugins, rslora) in [
        ("lora_f32", LORA, "false"),
        ("lora_nf4", NF4_LORA, "false"),
        ("lora_hqq", HQQ_LORA, "false"),
        ("rslora_f32", LORA, "true"),
    ] {
        let mut keys = [OPTIM.as_slice(), &TRAIN].concat();
        keys.push(("adapter.lora.rslora", rslora));
        let rig = rig(&trained(), plugins, &keys);
        rig.set_params(&Golden::open("llama/lora_init_r8.safetensors"));
        follow(&rig, &summary[format!("curve_{tag}")], tag);
        let last = Golden::open(&format!("llama/final_params_{tag}.safetensors"));
        // AdamW divides by the root of the second moment. For a tiny gradient its rounding
        // determines the step, so single tensors differ slightly more than the adapter as a whole.
        let (mut found, mut expected) = (Vec::new(), Vec::new());
        for name in last.names() {
            let distance = relative_norm(&rig.values(name), last.numbers(name));
            assert!(
                distance <= 2e-4,
                "{tag}: `{name}` is off by {distance} at the end"
            );
            found.extend(rig.values(name));
            expected.extend_from_slice(last.numbers(name));
        }
        let distance = relative_norm(&found, &expected);
        assert!(
            distance <= 1e-4,
            "{tag}: the adapter is off by {distance} at the end"
        );
    }
}

#[test]
fn clipping_and_a_cosine_with_warmup_follow_the_golden_curve() {
    let mut keys = [OPTIM.as_slice(), &TRAIN].concat();
    keys.extend([
        ("optim.clip_norm", "0.25"),
        ("optim.schedule", "\"cosine\""),
        ("optim.warmup_steps", "4"),
    ]);
    let rig = rig(&trained(), LORA, &keys);
    rig.set_params(&Golden::open("llama/lora_init_r8.safetensors"));
    follow(
        &rig,
        &summary()["curve_lora_f32_clip0.25_cosine_warmup4"],
        "clip, cosine",
    );
}

#[test]
fn full_fine_tuning_follows_the_golden_curve() {
    let mut keys = [OPTIM.as_slice(), &TRAIN].concat();
    keys.push(("optim.learning_rate", "1e-3"));
    // torch's optimizer had all params in one group.
    keys.push(("optim.decay_norms_and_biases", "true"));
    let rig = rig(&trained(), "[]", &keys);
    let curve = &summary()["full_finetune_curve_tiny-trained"];
    let losses = curve["loss"].clone();
    follow(&rig, &serde_json::json!({ "loss": losses }), "full");
}

#[test]
fn an_adapter_of_the_peer_continues_training() {
    let adapter = format!("{:?}", golden_path("llama/adapter_init"));
    let mut keys = [OPTIM.as_slice(), &TRAIN].concat();
    keys.push(("model.adapter", adapter.as_str()));
    keys.push(F32);
    // Rank, alpha, targets and the plugin come from its adapter_config.json.
    let rig = Rig::new(&trained(), &keys);
    follow(
        &rig,
        &summary()["curve_lora_f32"],
        "from the peer's adapter",
    );
    let last = Golden::open("llama/final_params_lora_f32.safetensors");
    for name in last.names() {
        let distance = relative_norm(&rig.values(name), last.numbers(name));
        assert!(distance <= 1e-4, "`{name}` is off by {distance} at the end");
    }
}
