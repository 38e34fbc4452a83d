//! Shapes of large models whose packed base begins with random numbers: planned, loaded and stepped
//! without weights, and compared.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use espalier_torture::training::{last_line, refused};
use serde_json::{Value as Json, json};

fn host(place: &Path, words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_host"));
    let command = command.current_dir(place).args(words.split_whitespace());
    command.output().expect("the host starts")
}

fn succeed(place: &Path, words: &str) -> Vec<u8> {
    let output = host(place, words);
    assert!(output.status.success(), "{words}: {}", last_line(&output));
    output.stdout
}

/// A folder with rows and the config of a Llama of these sizes: width, feed-forward width, heads.
fn folder([width, feed_forward, heads]: [u64; 3]) -> tempfile::TempDir {
    let place = tempfile::tempdir().expect("a folder");
    let config = json!({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
        "hidden_size": width, "intermediate_size": feed_forward, "num_hidden_layers": 2,
        "num_attention_heads": heads, "num_key_value_heads": heads / 4, "vocab_size": 256,
        "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "initializer_range": 0.02,
        "tie_word_embeddings": false, "rope_theta": 500_000.0, "bos_token_id": 0,
        "eos_token_id": 1,
    });
    fs::create_dir(place.path().join("model")).expect("a folder");
    fs::write(place.path().join("model/config.json"), config.to_string()).expect("a config");
    let row = |first: u32| json!({"input_ids": (first..first + 8).collect::<Vec<_>>()});
    let rows: String = (0..6)
        .map(|row_of| format!("{}\n", row(9 * row_of)))
        .collect();
    fs::write(place.path().join("rows.jsonl"), rows).expect("written");
    place
}

#[test]
fn the_shapes_of_8b_are_planned_loaded_and_stepped_without_files() {
    let place = folder([4096, 14336, 32]);
    let place = place.path();
    let run = "--model model --data rows.jsonl --plugins nf4,lora --set model.init=random";
    succeed(place, &format!("plan {run}"));
    succeed(place, &format!("train --dry-run {run} --out out"));
    assert!(!place.join("out").exists());
    succeed(
        place,
        &format!("train --quiet {run} --set run.max_steps=1 --out out"),
    );
    let metrics = fs::read_to_string(place.join("out/metrics.jsonl")).expect("metrics");
    let losses = metrics.lines().filter_map(|line| {
        let line: Json = serde_json::from_str(line).expect("JSON");
        line["loss"].as_f64()
    });
    let losses: Vec<f64> = losses.collect();
    // Logits of random weights are near 0: every token is about as likely as any other.
    let even = 256f64.ln();
    assert!(
        matches!(losses[..], [loss] if (loss - even).abs() < 0.5 * even),
        "{losses:?}"
    );
    let merge = "merge --model model --adapter out/adapter --out merged";
    let words = "model.safetensors | download the model's safetensors files";
    refused(&host(place, merge), 4, words, merge);
}

#[test]
fn quantizers_are_compared_on_a_random_base() {
    let place = folder([64, 176, 4]);
    let place = place.path();
    succeed(
        place,
        "compare --quiet --model model --data rows.jsonl --arms nf4,hqq \
         --plugins lora --set model.init=random --set data.eval_split=2 --seeds 2 --out out",
    );
    for arm in ["dense", "nf4", "hqq"] {
        let base = fs::read(place.join(format!("out/arms/{arm}/base.json"))).expect("a record");
        let base: Json = serde_json::from_slice(&base).expect("JSON");
        let packed = base["packed_weights"].as_u64().expect("a count");
        assert_eq!(packed > 0, arm != "dense", "{arm}");
        assert_eq!(base["divergence"].is_object(), arm != "dense", "{arm}");
    }
}
