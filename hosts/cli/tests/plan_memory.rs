//! Memory predicted by `host plan` compared with the operating system's counts, on random runs.
#![allow(clippy::print_stdout)] // Figures for the test log.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value as Json, json};

/// A small generator with a fixed seed.
struct Seeded(u64);

impl Seeded {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.next() as usize % choices.len()]
    }
}

fn host(arguments: &[String]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_host"));
    command.args(arguments);
    command
}

/// Anonymous and shared bytes that a process holds.
fn resident(child: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let field = |key: &str| -> u64 {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(key))
            .unwrap_or("0");
        line.trim()
            .trim_end_matches("kB")
            .trim()
            .parse()
            .unwrap_or(0)
    };
    1024 * (field("RssAnon:") + field("RssShmem:"))
}

/// Runs to the end and returns the peak of the sampled memory.
fn peak(arguments: &[String]) -> u64 {
    let mut child = host(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the host starts");
    let mut most = 0;
    loop {
        most = most.max(resident(&child));
        if let Some(status) = child.try_wait().expect("a child") {
            let mut words = String::new();
            use std::io::Read;
            child
                .stderr
                .take()
                .expect("piped")
                .read_to_string(&mut words)
                .expect("text");
            assert!(status.success(), "{arguments:?}: {words}");
            return most;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn texts(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// A random model written by the program, and rows of token ids for it.
fn make_model(seeded: &mut Seeded, folder: &Path) -> u64 {
    let (hidden, heads) = seeded.pick(&[(256u64, 4u64), (384, 6), (512, 8)]);
    let vocab = seeded.pick(&[2048u64, 8192, 16384]);
    let config = json!({
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": hidden,
        "intermediate_size": hidden * seeded.pick(&[2, 3]),
        "num_hidden_layers": seeded.pick(&[2, 4, 6]),
        "num_attention_heads": heads,
        "num_key_value_heads": heads / 2,
        "vocab_size": vocab,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "tie_word_embeddings": seeded.pick(&[true, false]),
        "rope_theta": 10000.0,
        "bos_token_id": 0,
        "eos_token_id": 1,
    });
    make(&config, folder);
    vocab
}

/// Writes a random model of `config` into `made/model`.
fn make(config: &Json, folder: &Path) {
    let blank = folder.join("blank");
    fs::create_dir(&blank).expect("a folder");
    fs::write(blank.join("config.json"), config.to_string()).expect("a config");
    let rows = folder.join("one.jsonl");
    fs::write(&rows, "{\"input_ids\": [1, 2, 3]}\n").expect("rows");
    let mut words = texts(&["train", "--quiet", "--set", "model.init=random"]);
    words.extend(texts(&["--set", "run.max_steps=0"]));
    words.extend(texts(&["--set", "model.compute=f32"]));
    words.extend(["--model".into(), blank.display().to_string()]);
    words.extend(["--data".into(), rows.display().to_string()]);
    words.extend(["--out".into(), folder.join("made").display().to_string()]);
    let made = host(&words).output().expect("the host starts");
    let words = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{words}");
}

/// The plan's number `key` for a run of `words`.
fn planned(words: &[String], key: &str) -> u64 {
    plan_of(words)[key].as_u64().expect("bytes")
}

/// The planned peak of a process with one rank, and with what it keeps in host memory.
fn planned_with_host(words: &[String]) -> u64 {
    let plan = plan_of(words);
    let of_host = |key: &str| plan["host"][key].as_u64();
    let Some(loading) = of_host("loading_peak") else {
        return plan["peak_bytes"].as_u64().expect("bytes");
    };
    let parts = ["weights", "trained", "saved_activations", "staging"];
    let parts = parts.iter().chain(&["devices", "program"]);
    let step: u64 = parts.map(|key| of_host(key).expect("bytes")).sum();
    step.max(loading)
}

fn plan_of(words: &[String]) -> Json {
    let words = [&texts(&["plan", "--json"]), words].concat();
    let planned = host(&words).output().expect("the host starts");
    let words = String::from_utf8_lossy(&planned.stderr);
    assert!(planned.status.success(), "{words}");
    serde_json::from_slice(&planned.stdout).expect("JSON")
}

fn make_rows(seeded: &mut Seeded, vocab: u64, longest: u64, path: &Path) {
    let mut text = String::new();
    for row in 0..24 {
        let length = if row == 0 {
            longest
        } else {
            longest / 2 + seeded.next() % (longest / 2)
        };
        let ids: Vec<u64> = (0..length)
            .map(|_| 2 + seeded.next() % (vocab - 2))
            .collect();
        text.push_str(&json!({ "input_ids": ids }).to_string());
        text.push('\n');
    }
    fs::write(path, text).expect("rows");
}

#[test]
fn the_plan_is_within_ten_percent_of_the_systems_count() {
    let mut seeded = Seeded(2026);
    let mut table = String::new();
    let mut worst: f64 = 0.0;
    for number in 0..12 {
        let folder = tempfile::tempdir().expect("a folder");
        let vocab = make_model(&mut seeded, folder.path());
        let longest = seeded.pick(&[128u64, 256, 512]);
        let rows = folder.path().join("rows.jsonl");
        make_rows(&mut seeded, vocab, longest, &rows);
        let plugins = seeded.pick(&["nf4,lora", "int8,lora", "lora", "full"]);
        let settings = [
            format!("model.compute={}", seeded.pick(&["f32", "bf16"])),
            format!(
                "model.recompute={}",
                seeded.pick(&["none", "selective", "layer"])
            ),
            format!("data.micro_batch={}", seeded.pick(&[1, 2, 4])),
            "data.batch_size=4".to_owned(),
            "data.shuffle=false".to_owned(),
            "run.max_steps=3".to_owned(),
        ];
        let mut words = Vec::new();
        if plugins != "full" {
            words.extend(texts(&["--plugins", plugins]));
        }
        words.extend(
            settings
                .iter()
                .flat_map(|s| ["--set".to_owned(), s.clone()]),
        );
        words.extend([
            "--model".into(),
            folder.path().join("made/model").display().to_string(),
        ]);
        words.extend(["--data".into(), rows.display().to_string()]);
        let predicted = planned(&words, "peak_bytes");
        let out = folder.path().join("out").display().to_string();
        words.extend(["--out".into(), out]);
        let found = peak(&[texts(&["train", "--quiet"]), words].concat());
        let ratio = predicted as f64 / found as f64;
        worst = worst.max((ratio - 1.0).abs());
        table.push_str(&format!(
            "{number}: planned {predicted}, found {found}, ratio {ratio:.3} ({plugins} {})\n",
            settings[..3].join(" ")
        ));
    }
    println!("{table}");
    assert!(worst <= 0.1, "{table}");
}

/// Loading uses at most a packed model, one weight in f32 and the encoder's workspace.
#[test]
fn loading_holds_one_weight_beside_the_packed_model() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = json!({
        "model_type": "llama",
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 4,
        "num_attention_heads": 12,
        "vocab_size": 512,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "eos_token_id": 1,
    });
    make(&config, folder.path());
    let rows = folder.path().join("one.jsonl");
    let mut words = texts(&["--plugins", "nf4,lora", "--set", "run.max_steps=0"]);
    words.extend([
        "--model".into(),
        folder.path().join("made/model").display().to_string(),
    ]);
    words.extend(["--data".into(), rows.display().to_string()]);
    let predicted = planned(&words, "loading_peak_bytes");
    words.extend([
        "--out".into(),
        folder.path().join("out").display().to_string(),
    ]);
    let found = peak(&[texts(&["train", "--quiet"]), words].concat());
    let ratio = found as f64 / predicted as f64;
    assert!(
        (ratio - 1.0).abs() <= 0.1,
        "found {found}, planned {predicted}, ratio {ratio:.3}"
    );
}

/// With updates in the backward pass the gradients of one unit exist at a time.
#[test]
fn gradients_that_are_applied_in_the_backward_pass_never_exist_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = json!({
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 512,
        "intermediate_size": 2048,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "vocab_size": 512,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "initializer_range": 0.02,
        "eos_token_id": 1,
    });
    make(&config, folder.path());
    let rows = folder.path().join("one.jsonl");
    let measured = |name: &str, more: &[&str], in_backward: &str| {
        let mut words = texts(&["--set", "optim.clip_norm=0.0"]);
        words.extend(texts(more));
        words.extend(texts(&[
            "--set",
            "model.compute=f32",
            "--set",
            "run.max_steps=3",
        ]));
        words.extend(texts(&[
            "--set",
            "run.epochs=3",
            "--set",
            "data.batch_size=1",
        ]));
        words.extend(["--set".into(), format!("optim.in_backward={in_backward}")]);
        let model = folder.path().join("made/model").display().to_string();
        words.extend(["--model".into(), model]);
        words.extend(["--data".into(), rows.display().to_string()]);
        let predicted = planned_with_host(&words);
        let out = folder.path().join(name).display().to_string();
        words.extend(["--out".into(), out]);
        let found = peak(&[texts(&["train", "--quiet"]), words].concat());
        let ratio = predicted as f64 / found as f64;
        println!("{name}: planned {predicted}, found {found}, ratio {ratio:.3}");
        assert!((ratio - 1.0).abs() <= 0.1, "{name}: {ratio:.3}");
        found
    };
    let on_device: &[&str] = &["--set", "optim.name=\"sgd\""];
    let on_host: &[&str] = &[
        "--plugins",
        "fsdp",
        "--set",
        "sharding.fsdp.offload=\"params+optimizer\"",
    ];
    for (name, more) in [("device", on_device), ("host", on_host)] {
        let [whole, within] = ["false", "true"].map(|key| {
            let name = format!("{name}-{key}");
            measured(&name, more, key)
        });
        // Eight layers of 4 * 512 * 512 + 3 * 512 * 2048 params, of which one keeps its gradients
        // in f32.
        let spared = 7 * 4 * (4 * 512 * 512 + 3 * 512 * 2048);
        assert!(
            whole.saturating_sub(within) >= spared * 9 / 10,
            "{name}: found {whole} and {within}, expected {spared} less"
        );
    }
}
