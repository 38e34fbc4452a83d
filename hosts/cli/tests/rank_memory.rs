//! What ranks hold: a model larger than their devices, of which the machine's memory has one copy.

mod training;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value as Json, json};
use tempfile::TempDir;
use training::{Training, last_line, trained};

/// The shape of a model: width, feed-forward width and layers.
type Shape = [u64; 3];

/// A run of a model of random weights of which there is nothing but its config, in a folder that is to be kept.
fn training([width, feed_forward, layers]: Shape, more: &str) -> (Training, TempDir) {
    let model = tempfile::tempdir().expect("a folder");
    let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/llama/tiny");
    training::copy(&tiny, model.path());
    fs::remove_file(model.path().join("model.safetensors")).expect("a model has weights");
    let file = model.path().join("config.json");
    let text = fs::read(&file).expect("a config");
    let mut config: Json = serde_json::from_slice(&text).expect("JSON");
    config["hidden_size"] = json!(width);
    config["intermediate_size"] = json!(feed_forward);
    config["num_hidden_layers"] = json!(layers);
    config["head_dim"] = json!(width / 4);
    fs::write(file, config.to_string()).expect("written");
    let more = format!(
        "--set model.init=random --set adapter.lora.rank=2 --set run.eval_every=9 \
         --set run.save_every=9 {more}"
    );
    (Training::on(model.path(), &more), model)
}

/// Bytes of the layers' weights in f32.
fn bytes([width, feed_forward, layers]: Shape) -> u64 {
    // Two heads of four keep keys and values.
    layers * 4 * (3 * width * width + 3 * width * feed_forward)
}

#[test]
fn a_model_of_four_times_its_device_trains_with_offload() {
    let shape = [192, 528, 36];
    let budget = 14 << 20;
    assert!(bytes(shape) > 4 * budget, "{} bytes", bytes(shape));
    let (training, _model) = training(shape, "");
    let fsdp = "--plugins lora,fsdp --set sharding.fsdp.offload=params+optimizer";
    let device = "--set backend.cpu.device_memory=14MiB";
    let free = training.succeed("free", "--plugins lora");
    for ranks in [1, 2] {
        for gather in ["shards", "host-direct"] {
            let out = format!("bounded-{ranks}-{gather}");
            let more =
                format!("{fsdp} {device} --ranks {ranks} --set sharding.fsdp.gather={gather}");
            let bounded = training.succeed(&out, &more);
            if ranks == 1 {
                assert!(bounded == free, "{more}: other bits");
            }
        }
    }
    let output = training.run("whole", &format!("--plugins lora {device}"));
    assert_eq!(output.status.code(), Some(8), "{}", last_line(&output));
    assert!(
        last_line(&output).contains("14.00 MiB available"),
        "{}",
        last_line(&output)
    );
}

/// The largest sum of what `command` and the processes below it hold, shared pages counted by their share, in bytes.
fn peak(mut command: Command, out: &Path) -> u64 {
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child: Child = command.spawn().expect("it starts");
    let mut peak = 0;
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        peak = peak.max(proportional(child.id()));
        sleep(Duration::from_millis(10));
    };
    assert!(status.success(), "{status}");
    assert!(!trained(out).files.is_empty());
    peak
}

/// What a process and those below it hold now.
fn proportional(process: u32) -> u64 {
    let read = |name: &str| fs::read_to_string(format!("/proc/{process}/{name}"));
    let rollup = read("smaps_rollup").unwrap_or_default();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    let own = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    let below = read(&format!("task/{process}/children")).unwrap_or_default();
    let below = below
        .split_whitespace()
        .filter_map(|child| child.parse().ok());
    own.unwrap_or(0) * 1024 + below.map(proportional).sum::<u64>()
}

#[test]
fn four_ranks_hold_one_copy_of_the_base() {
    let shape = [512, 1408, 16];
    let (training, _model) = training(shape, "--set run.max_steps=2");
    let fsdp = "--plugins lora,fsdp --set sharding.fsdp.offload=params \
                --set sharding.fsdp.gather=host-direct";
    // A device of the cpu's is the host's memory; what the plan says that it holds is not the base.
    let held = |ranks: u32| {
        let out = format!("ranks-{ranks}");
        let command = training.command(&out, &format!("{fsdp} --ranks {ranks}"));
        let out = training.path(&out);
        peak(command, &out) - u64::from(ranks) * on_device(&out)
    };
    let (one, four) = (held(1), held(4));
    let base = bytes(shape);
    assert!(one > base, "{one} bytes for a base of {base}");
    let ratio = four as f64 / one as f64;
    assert!(
        ratio <= 1.15,
        "{four} bytes at four ranks, {one} at one: {ratio:.3}"
    );
}

/// Bytes that a rank's device holds, as the plan on record has it.
fn on_device(out: &Path) -> u64 {
    let run = fs::read(out.join("run.json")).expect("a record");
    let run: Json = serde_json::from_slice(&run).expect("JSON");
    let memory = run["memory"].as_object().expect("a plan's memory");
    let of_host = ["program", "loading"];
    let device = memory
        .iter()
        .filter(|(key, _)| !of_host.contains(&key.as_str()));
    device.filter_map(|(_, bytes)| bytes.as_u64()).sum()
}
