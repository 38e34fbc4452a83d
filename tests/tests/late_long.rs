//! Long work on the backend `late`: a device that takes long for a call loses no rank, and ten
//! thousand steps leave nothing behind.

mod lately;
mod swapping;

use std::fs;

use serde_json::{Value as Json, json};

use lately::{ORDERS, on_late, try_run};
use swapping::{Job, plugin_folder};

/// Seconds of a download: more than a rank may be silent.
const LONG: f64 = 20.0;

/// The host waits in a call of the device meanwhile, and the other rank for this one.
#[test]
fn a_device_that_takes_long_for_a_download_loses_no_rank() {
    let keys = ["plugins=\"nf4,lora,ddp\"", "run.ranks=2", "run.max_steps=2"];
    let job = Job::new(&keys);
    let folder = plugin_folder(&job, "late");
    let mut run = on_late(&job, &folder, ORDERS[1]);
    // The loss of the first micro-batch of rank 1.
    run.keys.extend([
        format!("backend.late.download_secs={LONG}"),
        "backend.late.slow_device=2".to_owned(),
        "backend.late.slow_download=1".to_owned(),
    ]);
    let begin = std::time::Instant::now();
    try_run(&run, "slow").expect("no rank is lost");
    assert!(begin.elapsed().as_secs_f64() > LONG, "nothing was slow");
}

/// Seconds of a micro-batch, and how long a rank may be silent.
const MICRO_BATCH: f64 = 6.0;
const SILENT: u64 = 2;

/// The host waits for the device's kernels meanwhile, and shows that it is alive.
#[test]
fn a_device_that_takes_long_for_a_micro_batch_loses_no_rank() {
    let keys = ["plugins=\"nf4,lora,ddp\"", "run.ranks=2", "run.max_steps=2"];
    let job = Job::new(&keys);
    let folder = plugin_folder(&job, "late");
    let mut run = on_late(&job, &folder, ORDERS[1]);
    run.keys.extend([
        format!("run.peer_timeout_secs={SILENT}"),
        format!("backend.late.launch_secs={MICRO_BATCH}"),
        "backend.late.slow_device=2".to_owned(),
        "backend.late.slow_launch=40".to_owned(),
    ]);
    let begin = std::time::Instant::now();
    try_run(&run, "slow").expect("no rank is lost");
    assert!(
        begin.elapsed().as_secs_f64() > MICRO_BATCH,
        "nothing was slow"
    );
}

/// Steps of the long run.
const STEPS: u64 = 10_000;

/// A model of one layer, so that a step takes little.
fn smallest() -> Json {
    json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "vocab_size": 96,
        "max_position_embeddings": 16, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": true, "dtype": "float32", "bos_token_id": 0, "eos_token_id": 1
    })
}

/// Weights, gradients and moments move between host and device in every step.
#[test]
fn ten_thousand_steps_keep_no_more_events_kernels_and_buffers() {
    let keys = [
        "plugins=\"lora,fsdp\"",
        "sharding.fsdp.offload=\"params+optimizer\"",
        "model.init=\"random\"",
        "adapter.lora.rank=2",
        "data.batch_size=1",
        "run.epochs=100000",
        "run.eval_every=1000000",
        "run.save_every=1000000",
        "run.threads=1",
    ];
    let job = Job::new(&keys);
    let folder = plugin_folder(&job, "late");
    let model = job.path("model");
    fs::create_dir(&model).expect("a folder");
    fs::write(model.join("config.json"), smallest().to_string()).expect("a config");
    let counts = job.path("counts.jsonl");
    let mut run = on_late(&job, &folder, ORDERS[0]);
    run.keys.extend([
        format!("model.path={model:?}"),
        format!("run.max_steps={STEPS}"),
        format!("backend.late.leak_report={counts:?}"),
        "backend.late.report_every=2000".to_owned(),
    ]);
    try_run(&run, "long").expect("all steps");
    let text = fs::read_to_string(&counts).expect("counts");
    let lines = text.lines();
    let lines: Vec<Json> = lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let live =
        |line: &Json| ["events", "kernels", "buffers", "streams"].map(|name| line[name].clone());
    let during = lines.iter().filter(|line| line["at"] == "host wait");
    let during: Vec<&Json> = during.collect();
    assert!(during.len() > 8, "{text}");
    let last = during.last().expect("some");
    assert!(last["records"].as_u64() > Some(6 * STEPS), "{last}");
    for line in &during {
        assert_eq!(live(line), live(during[0]), "{text}");
    }
    let end = lines.last().expect("a last line");
    let left = [
        "events",
        "kernels",
        "buffers",
        "tasks",
        "freed_in_use",
        "races",
    ];
    let left = left.map(|name| end[name].clone());
    assert_eq!(left, [0; 6].map(Json::from), "{end}");
}
