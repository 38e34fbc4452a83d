//! Memory of ranks: the machine holds one copy of a model larger than its devices, dense or packed,
//! with threads or processes as ranks.
#![allow(clippy::print_stdout)] // Figures for the test log.

use espalier_torture::training;

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use espalier_samples::{mpi_folder, mpirun};
use serde_json::{Map, Value as Json, json};
use tempfile::TempDir;
use training::{Training, last_line, trained};

/// The shape of a model: width, feed-forward width and layers.
type Shape = [u64; 3];

/// A run of a model of random weights that has only a config, with the folder that holds it.
fn training(shape: Shape, more: &str) -> (Training, TempDir) {
    training_of(config_of(shape), &format!("--set model.init=random {more}"))
}

/// A run of `model`.
fn training_of(model: TempDir, more: &str) -> (Training, TempDir) {
    let more =
        format!("--set adapter.lora.rank=2 --set run.eval_every=9 --set run.save_every=9 {more}");
    (Training::on(model.path(), &more), model)
}

/// A model's folder without weights.
fn config_of([width, feed_forward, layers]: Shape) -> TempDir {
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
    model
}

/// The same with weights in bf16, which a quantizer can pack: norms of 1, all others from a
/// repeated short sequence of numbers.
fn weights_of(shape: Shape) -> TempDir {
    let [width, feed_forward, layers] = shape;
    let model = config_of(shape);
    let mut tensors = vec![("embed_tokens".to_owned(), vec![512, width])];
    for layer in 0..layers {
        let named = |name: &str| format!("layers.{layer}.{name}");
        for (name, [rows, cols]) in [
            ("self_attn.q_proj", [width, width]),
            ("self_attn.k_proj", [width / 2, width]),
            ("self_attn.v_proj", [width / 2, width]),
            ("self_attn.o_proj", [width, width]),
            ("mlp.gate_proj", [feed_forward, width]),
            ("mlp.up_proj", [feed_forward, width]),
            ("mlp.down_proj", [width, feed_forward]),
        ] {
            tensors.push((named(name), vec![rows, cols]));
        }
        for norm in ["input_layernorm", "post_attention_layernorm"] {
            tensors.push((named(norm), vec![width]));
        }
    }
    tensors.push(("norm".to_owned(), vec![width]));
    let mut header = Map::new();
    let mut end = 0;
    let named = tensors
        .iter()
        .map(|(name, shape)| (format!("model.{name}.weight"), shape));
    let head = ("lm_head.weight".to_owned(), &vec![512, width]);
    let mut sizes = Vec::new();
    for (name, shape) in named.chain([head]) {
        let (begin, count) = (end, shape.iter().product::<u64>());
        end += 2 * count;
        let value = json!({"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]});
        header.insert(name, value);
        sizes.push((count as usize, shape.len() == 1));
    }
    let header = Json::Object(header).to_string();
    let file = File::create(model.path().join("model.safetensors")).expect("a file");
    let mut file = BufWriter::new(file);
    let mut write = |bytes: &[u8]| file.write_all(bytes).expect("room for a model");
    write(&(header.len() as u64).to_le_bytes());
    write(header.as_bytes());
    let bf16 = |x: f32| ((x.to_bits() >> 16) as u16).to_le_bytes();
    let scattered = |i: u32| bf16((i.wrapping_mul(2_654_435_761) as i32 as f32) * 2e-11);
    let numbers: Vec<u8> = (0..1 << 17).flat_map(scattered).collect();
    let ones = bf16(1.0).repeat(1 << 16);
    for (count, is_norm) in sizes {
        let from = if is_norm { &ones } else { &numbers };
        let mut left = 2 * count;
        while left > 0 {
            let part = left.min(from.len());
            write(&from[..part]);
            left -= part;
        }
    }
    model
}

/// Bytes of the layers' weights in f32.
fn bytes([width, feed_forward, layers]: Shape) -> u64 {
    // Two of four heads keep keys and values.
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

/// The largest sum of memory of `command` and its descendants while `counts` is true, in bytes.
/// Shared pages count by their share.
fn peak(mut command: Command, out: &Path, counts: impl Fn() -> bool) -> u64 {
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child: Child = command.spawn().expect("it starts");
    let mut peak = 0;
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        if counts() {
            peak = peak.max(proportional(child.id()));
        }
        sleep(Duration::from_millis(10));
    };
    assert!(status.success(), "{status}");
    assert!(!trained(out).files.is_empty());
    peak
}

/// The memory of a process and its descendants now.
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
    // A device of the CPU backend is host memory; its planned memory excludes the base.
    let held = |ranks: u32| {
        let out = format!("ranks-{ranks}");
        let command = training.command(&out, &format!("{fsdp} --ranks {ranks}"));
        let out = training.path(&out);
        peak(command, &out, || true) - u64::from(ranks) * on_device(&out)
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

/// How the ranks of a run are started.
#[derive(Clone, Copy, Debug)]
enum Ranks {
    Threads(u32),
    Processes(u32),
}

impl Ranks {
    fn count(self) -> u32 {
        match self {
            Ranks::Threads(count) | Ranks::Processes(count) => count,
        }
    }

    /// The peak memory during training of a run on `shape` packed to NF4, less the planned memory
    /// of its devices. Also the bytes of the packed base.
    fn held(self, shape: Shape, gather: &str) -> [u64; 2] {
        let more = format!(
            "--set run.epochs=4 --set sharding.fsdp.offload=params --set sharding.fsdp.gather={gather}"
        );
        let (training, _model) = training_of(weights_of(shape), &more);
        let out = training.path("out");
        let command = match self {
            Ranks::Threads(count) => {
                let more = format!("--plugins nf4,lora,fsdp --ranks {count}");
                training.command("out", &more)
            }
            Ranks::Processes(count) => {
                let folder = mpi_folder();
                let more = format!(
                    "--plugins nf4,lora,fsdp,mpi --plugin-dir {}",
                    folder.display()
                );
                mpirun(count, &training.command("out", &more))
            }
        };
        let metrics = out.join("metrics.jsonl");
        let trains = || fs::metadata(&metrics).is_ok_and(|file| file.len() > 0);
        let peak = peak(command, &out, trains);
        // Four bits a weight and, doubly quantized, a byte for every 64 and 4 for every 256 of
        // these.
        let base = bytes(shape) / 4 * (64 * 256 / 2 + 256 + 4) / (64 * 256);
        [peak - u64::from(self.count()) * on_device(&out), base]
    }
}

/// A process adds 20 MB or more of program memory, so two models that differ only in layers are
/// compared. The larger one adds its base, and 0.2 MB a layer and rank for the plan; the heaps of
/// two threads were seen to add up to 0.66 of the base. Two copies would add twice as much.
#[test]
fn ranks_hold_one_copy_of_a_packed_base_as_threads_and_as_processes() {
    let of_layers = |layers| [1024, 2816, layers];
    for (ranks, gather) in [
        (Ranks::Threads(2), "host-direct"),
        (Ranks::Processes(2), "host-direct"),
        (Ranks::Processes(2), "shards"),
    ] {
        let [small, large] = [1, 7].map(|layers| ranks.held(of_layers(layers), gather));
        let [held, base] = [0, 1].map(|at| large[at] as f64 - small[at] as f64);
        let copies = held / base;
        println!("{ranks:?}, {gather}: {held} bytes more for a base of {base} more: {copies:.3}");
        assert!(
            (0.85..1.8).contains(&copies),
            "{ranks:?}, {gather}: {copies:.3} copies of the packed base"
        );
    }
}

/// Bytes on a rank's device, from the recorded plan.
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
