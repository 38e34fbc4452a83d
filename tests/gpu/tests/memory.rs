//! The card's memory of a streamed training over the mock libraries: what the plan says, and what
//! the driver gave.

use std::fs;
use std::path::Path;
use std::process::Command;

use espalier_tests_gpu::{ALL_TRAININGS, libraries};
use espalier_torture::built::program;
use espalier_torture::training::last_line;
use serde_json::{Value as Json, json};

/// Width, heads, width of the feed-forward part, layers.
type Sizes = [u64; 4];

/// Largest difference between plan and driver, of the plan.
const BOUND: f64 = 0.02;

/// Writes a model's `config.json`, and rows of 4 tokens.
fn make_inputs(folder: &Path, [width, heads, feed_forward, layers]: Sizes) {
    let config = json!({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
        "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": heads / 4, "intermediate_size": feed_forward, "vocab_size": 1024,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "tie_word_embeddings": false,
        "rope_theta": 500_000.0, "initializer_range": 0.02, "bos_token_id": 0, "eos_token_id": 1
    });
    fs::write(folder.join("config.json"), config.to_string()).expect("written");
    let rows = [7, 11].map(|begin| json!({"input_ids": [begin, 21, 34, 55]}).to_string());
    fs::write(folder.join("rows.jsonl"), rows.join("\n")).expect("written");
}

/// `host` with the settings of a training of two ranks, with a card each.
fn host(folder: &Path, command: &str) -> Command {
    let kernels = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mock = libraries(kernels);
    let mut host = Command::new(program());
    host.args([command, "--backend", "cuda", "--ranks", "2"]);
    host.args(["--plugins", "nf4,lora,fsdp", "--model"]);
    host.arg(folder)
        .arg("--data")
        .arg(folder.join("rows.jsonl"));
    let cache = kernels.join("mock-cuda-kernels");
    for value in [
        "model.init=random".to_owned(),
        "model.compute=bf16".to_owned(),
        "model.recompute=layer".to_owned(),
        "data.batch_size=2".to_owned(),
        "data.micro_batch=1".to_owned(),
        "run.max_steps=1".to_owned(),
        // A model of a card is slow.
        "run.peer_timeout_secs=600".to_owned(),
        "sharding.fsdp.offload=params+optimizer".to_owned(),
        "sharding.fsdp.gather=host-direct".to_owned(),
        format!("backend.cuda.libraries={}", mock.display()),
        format!("backend.cuda.cache_dir={}", cache.display()),
    ] {
        host.args(["--set", &value]);
    }
    host.env("MOCK_CUDA_DEVICES", "2");
    host.env("MOCK_CUDA_MEMORY", "24000000000");
    host
}

/// The last line that a mock driver wrote.
fn line(path: &Path) -> Json {
    let text = fs::read_to_string(path).expect("a file");
    let last = text.lines().last().expect("a line");
    serde_json::from_str(last).expect("JSON")
}

/// The bytes of a device in a plan: all but those of the program, and of loading.
fn planned(memory: &Json) -> f64 {
    let parts = memory.as_object().expect("parts").iter();
    let parts = parts.filter(|(name, _)| !["program", "loading"].contains(&name.as_str()));
    parts.map(|(_, bytes)| bytes.as_f64().expect("bytes")).sum()
}

/// Small sizes; with [`ALL_TRAININGS`] also a layer of Llama 3 8B and one of 70B.
#[test]
fn the_driver_gives_what_is_planned_and_registers_the_host_copy_once() {
    let mut all: Vec<Sizes> = vec![[512, 4, 1792, 2]];
    if std::env::var_os(ALL_TRAININGS).is_some() {
        all.extend([[4096, 32, 14_336, 1], [8192, 64, 28_672, 1]]);
    }
    for sizes in all {
        let folder = tempfile::tempdir().expect("a folder");
        make_inputs(folder.path(), sizes);
        let calls = folder.path().join("calls");
        let out = folder.path().join("out");
        let mut train = host(folder.path(), "train");
        train.arg("--quiet").arg("--out").arg(&out);
        let output = train.env("MOCK_CUDA_CALLS", &calls).output();
        let output = output.expect("the host starts");
        assert_eq!(output.status.code(), Some(0), "{}", last_line(&output));
        let given = line(&calls);
        let run = fs::read(out.join("run.json")).expect("a file");
        let run: Json = serde_json::from_slice(&run).expect("JSON");
        let planned = planned(&run["memory"]);
        let most = given["most"].as_f64().expect("bytes");
        let apart = (most - planned).abs() / planned;
        assert!(apart <= BOUND, "{sizes:?}: {most} of {planned} bytes");
        // The frozen weights, and each rank's own trained part.
        assert_eq!(given["registrations"], 3, "{sizes:?}");
    }
}
