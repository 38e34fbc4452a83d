//! The rope type `longrope` against transformers: each row has the factors of its own length, also
//! beside rows of the other kind.

mod answers;

use std::fs;
use std::path::PathBuf;

use espalier_tests::{
    Golden, Rig, golden_path, largest_difference, micro_batch, relative_norm, step_of,
};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use super::{FULL, KEYS, LORA, eval_batch, follow, rows};

/// Longer rows are long. The golden rows have 32, 9 and 21 tokens.
const ORIGINAL: usize = 16;

fn golden() -> Golden {
    Golden::open("families/longrope/expected.safetensors")
}

fn written(name: &str) -> Json {
    let path = golden_path(&format!("families/longrope/{name}.json"));
    let text = fs::read_to_string(path).expect("a config");
    serde_json::from_str(&text).expect("JSON")
}

/// The weights of `place` under `config`.
fn model(place: &str, config: &Json) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("config.json"), config.to_string()).expect("a config");
    let weights: PathBuf = golden_path(place).join("model.safetensors");
    fs::copy(weights, directory.path().join("model.safetensors")).expect("a copy");
    directory
}

fn rig(place: &str, config: &Json, keys: &[(&str, &str)]) -> Rig {
    let model = model(place, config);
    Rig::new(model.path(), &[&KEYS[..], keys].concat())
}

fn phi3(keys: &[(&str, &str)]) -> Rig {
    rig("families/phi3", &written("phi3"), keys)
}

fn distance(rig: &Rig) -> f64 {
    largest_difference(
        &rig.logits(&eval_batch(rig)),
        golden().numbers("phi3.logits"),
    )
}

#[test]
fn logits_and_gradients_of_rows_of_both_kinds_equal_those_of_each_alone() {
    let golden = golden();
    for recompute in ["\"none\"", "\"layer\""] {
        let rig = phi3(&[&FULL[..], &[("model.recompute", recompute)]].concat());
        let apart = distance(&rig);
        assert!(apart <= 2e-5, "{recompute}: logits differ by {apart}");
        let found = rig.loss_and_gradients(&step_of(vec![eval_batch(&rig)]));
        let expected = golden.numbers("phi3.loss")[0];
        assert!(
            (found - expected).abs() <= 1e-6,
            "loss {found}, not {expected}"
        );
        let mut compared = 0;
        for key in golden.names() {
            if let Some(name) = key.strip_prefix("phi3.grad.") {
                let apart = relative_norm(&rig.gradient(name), golden.numbers(key));
                assert!(apart <= 1e-5, "{recompute}: `{name}` is off by {apart}");
                compared += 1;
            }
            if let Some(name) = key.strip_prefix("phi3.grad_norm.") {
                let squares = rig.gradient(name).iter().map(|g| g * g).sum::<f64>();
                let ratio = squares.sqrt() / golden.numbers(key)[0];
                assert!((ratio - 1.0).abs() <= 1e-5, "norm of `{name}`: {ratio}");
                compared += 1;
            }
        }
        assert_eq!(compared, 15 + 6, "norms of all params, gradients of some");
    }
}

#[test]
fn a_config_of_transformers_4_says_the_same() {
    let older = rig("families/phi3", &written("phi3_4"), &FULL);
    let newer = phi3(&FULL);
    let batch = eval_batch(&newer);
    assert_eq!(older.logits(&batch), newer.logits(&batch));
}

#[test]
fn twenty_steps_follow_the_golden_curves() {
    let golden = golden();
    let rate = ("optim.learning_rate", "1e-3");
    follow(
        &phi3(&[&FULL[..], &[rate]].concat()),
        &golden,
        "phi3.",
        "phi3",
    );
    let rate = ("optim.learning_rate", "2e-3");
    let rig = phi3(&[&LORA[..], &[rate]].concat());
    rig.set_params(&Golden::open("families/phi3/lora_init.safetensors"));
    follow(&rig, &golden, "phi3.lora.", "phi3");
}

/// Heads that are turned as a whole; a factor, and a factor of waves, that are written; layers of
/// which some have another embedding.
#[test]
fn every_family_has_it() {
    let golden = golden();
    for (family, place) in [
        ("llama", "llama/tiny-trained"),
        ("starcoder2", "families/starcoder2"),
        ("gemma3", "families/gemma3"),
    ] {
        let rig = rig(place, &written(family), &FULL);
        let batch = eval_batch(&rig);
        let logits = rig.logits(&batch);
        let width = logits.len() / batch.num_tokens();
        let ends = batch.cu_seqlens[1..].iter().map(|&end| end as usize);
        let last: Vec<f64> = ends
            .flat_map(|end| logits[(end - 1) * width..end * width].to_vec())
            .collect();
        let expected = golden.numbers(&format!("{family}.last_logits"));
        let apart = largest_difference(&last, expected);
        assert!(apart <= 2e-5, "{family}: logits differ by {apart}");
        let found = rig.loss_and_gradients(&step_of(vec![batch]));
        let expected = golden.numbers(&format!("{family}.loss"))[0];
        // Other backends round a loss of 16 in f32 by as much.
        let bound = match std::env::var("ESPALIER_TEST_BACKEND") {
            Ok(_) => f64::max(1e-6, 1e-7 * expected),
            Err(_) => 1e-6,
        };
        assert!(
            (found - expected).abs() <= bound,
            "{family}: {found}, not {expected}"
        );
    }
}

/// Neither its neighbours nor the run's longest sequence change a row: no bit of it on `cpu`; the
/// products of other backends round by the number of rows.
#[test]
fn a_row_depends_on_its_own_length_alone() {
    let bound = match std::env::var("ESPALIER_TEST_BACKEND") {
        Ok(_) => 1e-5,
        Err(_) => 0.0,
    };
    let together = phi3(&FULL);
    let batch = eval_batch(&together);
    let all = together.logits(&batch);
    let width = all.len() / batch.num_tokens();
    let rows = rows(&together, "eval");
    for (row, ends) in rows.iter().zip(batch.cu_seqlens.windows(2)) {
        let [first, end] = [ends[0], ends[1]].map(|end| end as usize * width);
        let longest = row.len().max(ORIGINAL).to_string();
        // Where no row can be long, the second rotation is dropped.
        let keys = [
            ("data.max_seq_len", &longest[..]),
            ("data.micro_batch", "1"),
        ];
        let alone = phi3(&[&FULL[..], &keys].concat());
        let row = std::slice::from_ref(row);
        let apart = largest_difference(&alone.logits(&micro_batch(row, row)), &all[first..end]);
        assert!(apart <= bound, "{} tokens: {apart:e}", row[0].len());
    }
}

#[test]
fn every_number_matters() {
    for (key, other) in [
        ("short_factor", json!([1.1, 2.7])),
        ("long_factor", json!([1.5, 2.0])),
        ("attention_factor", json!(1.0)),
        ("factor", json!(2.0)),
    ] {
        let mut config = written("phi3");
        config["rope_parameters"][key] = other;
        let apart = distance(&rig("families/phi3", &config, &FULL));
        assert!(apart > 1e-3, "{key}: only {apart}");
    }
    // A row of 21 tokens becomes short; the factor of waves would follow, too.
    let mut config = written("phi3");
    config["original_max_position_embeddings"] = json!(21);
    let usual = (1.0 + 8f64.ln() / (ORIGINAL as f64).ln()).sqrt();
    config["rope_parameters"]["attention_factor"] = json!(usual);
    let apart = distance(&rig("families/phi3", &config, &FULL));
    assert!(apart > 1e-3, "the original length: only {apart}");
}
