//! The card's memory of a streamed training over the mock libraries: what the plan says, and what
//! the driver gave.

use std::fs;
use std::path::Path;
use std::process::Command;

use espalier_tests_gpu::{ALL_TRAININGS, Llama, libraries, nccl};
use espalier_torture::built::program;
use espalier_torture::training::last_line;
use serde_json::Value as Json;

/// Largest difference between plan and driver, of the plan.
const BOUND: f64 = 0.02;

/// Tokens that there are. The table and the head are no part of what is compared.
const VOCABULARY: u64 = 1024;

/// Rows of the step, and tokens of each.
const ROWS: [u64; 2] = [2, 4];

/// Weights of the host's one copy, fetched by each card.
const STREAMED: [&str; 2] = [
    "sharding.fsdp.offload=params+optimizer",
    "sharding.fsdp.gather=host-direct",
];

/// `host` with the settings of a training of two ranks, with a card each.
fn host(folder: &Path, command: &str, settings: &[&str]) -> Command {
    let kernels = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mock = libraries(kernels);
    let mut host = Command::new(program());
    host.args([command, "--backend", "cuda", "--ranks", "2"]);
    host.args(["--plugins", "nf4,lora,fsdp", "--model"]);
    host.arg(folder.join("model"));
    host.arg("--data").arg(folder.join("rows.jsonl"));
    let cache = espalier_tests_gpu::kernels(kernels);
    for value in [
        "model.init=random".to_owned(),
        "model.compute=bf16".to_owned(),
        "model.recompute=layer".to_owned(),
        "data.batch_size=2".to_owned(),
        "data.micro_batch=1".to_owned(),
        "run.max_steps=1".to_owned(),
        // A model of a card is slow.
        "run.peer_timeout_secs=600".to_owned(),
        format!("backend.cuda.libraries={}", mock.display()),
        format!("backend.cuda.cache_dir={}", cache.display()),
    ] {
        host.args(["--set", &value]);
    }
    for value in settings {
        host.args(["--set", value]);
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

/// A small model.
fn small() -> Llama {
    Llama {
        width: 512,
        layers: 2,
        heads: 4,
        kv_heads: 1,
        feed_forward: 1792,
        vocabulary: VOCABULARY,
    }
}

/// The bytes that the plan of a training has for a card, the most that the mock driver gave, and
/// the number of memories of the host that it registered.
fn trained(model: &Llama, settings: &[&str]) -> (f64, f64, u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let [rows, tokens] = ROWS;
    model
        .make_inputs(folder.path(), rows, tokens)
        .expect("written");
    let calls = folder.path().join("calls");
    let out = folder.path().join("out");
    let mut train = host(folder.path(), "train", settings);
    train.arg("--quiet").arg("--out").arg(&out);
    let output = train.env("MOCK_CUDA_CALLS", &calls).output();
    let output = output.expect("the host starts");
    assert_eq!(output.status.code(), Some(0), "{}", last_line(&output));
    let given = line(&calls);
    let run = fs::read(out.join("run.json")).expect("a file");
    let run: Json = serde_json::from_slice(&run).expect("JSON");
    let most = given["most"].as_f64().expect("bytes");
    let registered = given["registrations"].as_u64().expect("a count");
    (planned(&run["memory"]), most, registered)
}

/// Small sizes; with [`ALL_TRAININGS`] also a layer of Llama 3 8B and one of 70B.
#[test]
fn the_driver_gives_what_is_planned_and_registers_the_host_copy_once() {
    let mut all = vec![small()];
    if std::env::var_os(ALL_TRAININGS).is_some() {
        all.extend([Llama::of_8b(1), Llama::of_70b(1)]);
    }
    for mut model in all {
        model.vocabulary = VOCABULARY;
        let (planned, most, registered) = trained(&model, &STREAMED);
        let apart = (most - planned).abs() / planned;
        assert!(apart <= BOUND, "{model:?}: {most} of {planned} bytes");
        // The frozen weights, and each rank's own trained part.
        assert_eq!(registered, 3, "{model:?}");
    }
}

/// What the collective keeps on a card for the parts of sums is larger than this model.
#[test]
fn the_plan_has_what_nccl_keeps_on_a_card() {
    let kernels = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let options = nccl::options(libraries(kernels), kernels);
    let mut settings: Vec<&str> = options.split(' ').filter(|word| *word != "--set").collect();
    settings.push("run.device_collective=nccl");
    let (planned, most, _) = trained(&small(), &settings);
    let apart = (most - planned).abs() / planned;
    assert!(apart <= BOUND, "{most} of {planned} bytes");
}
