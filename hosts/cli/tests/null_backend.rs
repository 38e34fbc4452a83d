//! Schedules on the backend `null`, which checks every call and computes nothing. It tests a plan's
//! memory and launches in full, quickly, for models of any size.

use std::fs;
use std::process::Output;

use espalier_torture::built::golden;
use espalier_torture::training::{Training, last_line};
use serde_json::Value as Json;

/// Runs in a folder with the backend in `plugins`.
fn training() -> Training {
    let training = Training::new("--plugin-dir plugins --backend null");
    let folder = training.path("plugins");
    fs::create_dir(&folder).expect("a folder");
    let library = espalier_samples::library("null");
    let name = library.file_name().expect("a library is a file");
    fs::copy(&library, folder.join(name)).expect("a copy");
    training
}

/// Runs another command in the folder.
fn host(training: &Training, words: &str) -> Output {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_host"));
    command.current_dir(training.folder.path());
    command.env("XDG_DATA_HOME", training.path("data"));
    command.args(words.split_whitespace());
    command.output().expect("the host starts")
}

/// Plans a run of the tiny model.
fn plan(training: &Training, words: &str) -> Output {
    let model = golden("llama/tiny");
    let words = format!(
        "plan --model {} --plugin-dir plugins --backend null {words}",
        model.display()
    );
    host(training, &words)
}

/// Trains, and returns the lines of the run's metrics.
fn trained(training: &Training, out: &str, words: &str) -> Vec<Json> {
    let output = training.run(out, words);
    assert!(output.status.success(), "{words}: {}", error(&output));
    let metrics = fs::read_to_string(training.path(out).join("metrics.jsonl"));
    let metrics = metrics.expect("numbers of every step");
    let line = |line| serde_json::from_str(line).expect("JSON");
    metrics.lines().map(line).collect()
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn every_launch_and_copy_of_a_schedule_is_valid() {
    let training = training();
    let schedules = [
        "--plugins nf4,lora",
        "--plugins hqq,lora --set model.recompute=\"selective\"",
        "--plugins lora --set data.pack_tokens=96",
        "--plugins nf4,lora,fsdp --set sharding.fsdp.offload=\"params\" --set sharding.fsdp.prefetch=2",
        "--plugins nf4,lora,fsdp --set sharding.fsdp.offload=\"params\" --set sharding.fsdp.offload_activations=true",
        "--plugins nf4,lora,fsdp --ranks 2",
        "--plugins lora,ddp --ranks 2",
    ];
    for (index, words) in schedules.into_iter().enumerate() {
        let lines = trained(&training, &format!("out{index}"), words).into_iter();
        let losses: Vec<f64> = lines.filter_map(|line| line["loss"].as_f64()).collect();
        assert!(
            !losses.is_empty() && losses.iter().all(|loss| *loss == 0.0),
            "{losses:?}"
        );
    }
}

/// The plan counts the launches that the run makes, and a micro-batch takes one wait of the host.
#[test]
fn launches_of_a_step_are_those_of_the_plan() {
    let training = training();
    let cases = [
        "--plugins nf4,lora",
        "--plugins lora --set model.recompute=\"layer\" --set data.micro_batch=1",
        "--plugins lora --set data.pack_tokens=500 --set backend.null.head_chunk_bytes=1",
    ];
    for (index, words) in cases.into_iter().enumerate() {
        let words = format!("{words} --set data.batch_size=4");
        let rows = "--data rows.jsonl --set data.eval_split=1 --set model.compute=f32";
        let plan = plan(&training, &format!("{rows} {words} --json"));
        assert!(plan.status.success(), "{words}: {}", error(&plan));
        let plan: Json = serde_json::from_slice(&plan.stdout).expect("JSON");
        let lines = trained(&training, &format!("out{index}"), &words).into_iter();
        let first = { lines }.find(|line| line.get("loss").is_some());
        let first = first.expect("a step");
        let micro_batches = plan["work"]["micro_batches"].as_f64().expect("a number");
        for (key, of_plan) in [
            ("launches", "launches"),
            ("launch_flops", "flops"),
            ("launch_bytes", "bytes"),
        ] {
            let planned = plan["launches"]["micro_batch"][of_plan].as_f64();
            let planned = planned.expect("a number") * micro_batches;
            let made = first[key].as_f64().expect("a number");
            assert!(
                (made / planned - 1.0).abs() < 1e-9,
                "{words} {key}: {made}, {planned}"
            );
        }
        // One for the losses of each micro-batch, one for the norm.
        assert_eq!(
            first["host_waits"].as_f64(),
            Some(micro_batches + 1.0),
            "{words}"
        );
    }
}

/// The plan counts the bytes that the device fetches in a step. A fetch that is held for several
/// micro-batches is one.
#[test]
fn bytes_fetched_in_a_step_are_those_of_the_plan() {
    let training = training();
    let mut fetched = Vec::new();
    for (index, held) in [1, 2, 3, 4].into_iter().enumerate() {
        let words = format!(
            "--plugins nf4,lora,fsdp --set sharding.fsdp.offload=\"params+optimizer\" --set data.micro_batch=1 \
             --set data.batch_size=4 --set sharding.fsdp.micro_batches_per_fetch={held}"
        );
        let rows = "--data rows.jsonl --set data.eval_split=1 --set model.compute=f32";
        let json = plan(&training, &format!("{rows} {words} --json"));
        assert!(json.status.success(), "{words}: {}", error(&json));
        let json: Json = serde_json::from_slice(&json.stdout).expect("JSON");
        let planned = json["time"]["moved"]["host_to_device"].as_u64();
        let lines = trained(&training, &format!("out{index}"), &words).into_iter();
        let first = { lines }.find(|line| line.get("loss").is_some());
        let made = first.expect("a step")["fetched_bytes"].as_u64();
        assert_eq!(made, planned, "{words}");
        fetched.push(made.expect("a count"));
        let text = plan(&training, &format!("{rows} {words} --explain"));
        let text = String::from_utf8_lossy(&text.stdout).into_owned();
        let row = match held {
            1 => "GB a micro-batch".to_owned(),
            _ => format!("GB for {held} micro-batches"),
        };
        assert!(text.contains(&row), "{text}");
    }
    // Four micro-batches take two sweeps of two, and of three and one.
    assert_eq!(fetched[1], fetched[2]);
    let update = 2 * fetched[3] - fetched[1];
    assert_eq!(fetched[0], 4 * (fetched[3] - update) + update);
}

/// Llama 3 8B on a device with room for chunks of the head: NF4, LoRA on all linears, 4096 tokens.
#[test]
fn a_micro_batch_of_8b_moves_at_most_250_gb() {
    let training = training();
    let words = "plan --preset llama3-8b --assume 80GiB --plugin-dir plugins --backend null \
                 --plugins nf4,lora --set model.recompute=\"none\" --set data.max_seq_len=4096 \
                 --set data.micro_batch=1 --set backend.null.head_chunk_bytes=268435456 --json";
    let output = host(&training, words);
    assert!(output.status.success(), "{}", error(&output));
    let plan: Json = serde_json::from_slice(&output.stdout).expect("JSON");
    let number = |key| plan.pointer(key).and_then(Json::as_f64).expect("a number");
    assert_eq!(number("/launches/layer/launches"), 38.0);
    let bytes = number("/launches/micro_batch/bytes");
    assert!((200e9..250e9).contains(&bytes), "{bytes:e}");
}

/// A head of 512 outputs has 2 KiB of logits for each token. Chunks are multiples of 64 tokens.
#[test]
fn the_head_is_read_once_for_each_chunk_of_the_size_that_the_device_asks_for() {
    let training = training();
    let words = "--plugins lora --set data.max_seq_len=640 --set data.pack_tokens=640 --json \
                 --set model.compute=f32";
    let plan = |bytes: u64| {
        let words = format!("{words} --set backend.null.head_chunk_bytes={bytes}");
        let plan = plan(&training, &words);
        assert!(plan.status.success(), "{bytes}: {}", error(&plan));
        serde_json::from_slice::<Json>(&plan.stdout).expect("JSON")
    };
    let whole = plan(0);
    let number = |plan: &Json, path: &str| plan.pointer(path).and_then(Json::as_f64).expect(path);
    assert_eq!(whole["work"]["tokens"].as_f64(), Some(640.0));
    let (launches, bytes) = (
        "/launches/ops/cross_entropy/launches",
        "/launches/micro_batch/bytes",
    );
    assert_eq!(number(&whole, launches), 1.0);
    let mut before = number(&whole, bytes);
    for (chunk, chunks) in [(320, 2.0), (128, 5.0), (64, 10.0)] {
        let plan = plan(chunk * 2048);
        assert_eq!(number(&plan, launches), chunks, "{chunk} tokens in a chunk");
        let moved = number(&plan, bytes);
        assert!(
            moved > before,
            "{chunk} tokens in a chunk: {moved}, {before}"
        );
        before = moved;
        let logits = number(&plan, "/memory/logits");
        assert!(
            logits < number(&whole, "/memory/logits"),
            "{chunk}: {logits}"
        );
    }
}

#[test]
fn a_device_slightly_larger_than_the_plan_suffices_and_a_smaller_one_is_refused() {
    let training = training();
    let words = "--plugins nf4,lora,fsdp --set sharding.fsdp.offload=\"params\"";
    let whole = training.run("whole", words);
    assert!(whole.status.success(), "{}", error(&whole));
    let run = fs::read(training.path("whole").join("run.json")).expect("a record");
    let run: Json = serde_json::from_slice(&run).expect("JSON");
    let memory = run["memory"].as_object().expect("bytes by category");
    let on_device = memory
        .iter()
        .filter(|(name, _)| !["program", "loading"].contains(&name.as_str()));
    let planned: u64 = on_device
        .map(|(_, bytes)| bytes.as_u64().expect("bytes"))
        .sum();
    let fits = format!("{words} --set backend.null.memory={}", planned * 101 / 100);
    let output = training.run("fits", &fits);
    assert!(output.status.success(), "{}", error(&output));
    let small = format!("{words} --set backend.null.memory={}", planned * 95 / 100);
    let output = training.run("small", &small);
    assert_eq!(output.status.code(), Some(8), "{}", last_line(&output));
}

#[test]
fn an_op_that_a_backend_lacks_is_named_before_a_weight_is_read() {
    let training = training();
    let output = training.run(
        "out",
        "--plugins lora --set backend.null.ops=\"linear,add\"",
    );
    let error = error(&output);
    assert_eq!(output.status.code(), Some(5), "{error}");
    assert!(
        error.contains("is not among the ops of backend `null`")
            && error.contains("it has add, linear"),
        "{error}"
    );
    assert!(!training.path("out").exists(), "the directory is free");
}

/// Gradients that wait in host memory: one rank copies them there, and needs no access to the
/// device's memory.
#[test]
fn one_rank_offloads_everything_of_a_device_that_the_host_cannot_reach() {
    let training = training();
    let words = "--plugins lora,fsdp --set sharding.fsdp.offload=\"params+optimizer\"";
    let output = training.run("out", words);
    assert!(output.status.success(), "{}", error(&output));
}

/// Several ranks reduce gradients by calls of the host, on memory that it must reach.
#[test]
fn a_refusal_by_the_executor_names_the_strategy() {
    let training = training();
    let words = "--plugins lora,fsdp --ranks 2 --set backend.null.pinned=false";
    let output = training.run("out", words);
    let error = error(&output);
    assert_eq!(output.status.code(), Some(5), "{error}");
    assert!(
        error.contains("plugin `fsdp` failed in schedule"),
        "{error}"
    );
}

/// Ops of a run with an adapter but `swiglu` and its gradients, and the primitives that these are
/// made of.
const WITHOUT_SWIGLU: &str = "embedding,linear,linear_input_backward,linear_weight_backward,\
                              rms_norm,rms_norm_backward,rope,rope_backward,attention,\
                              attention_backward,cross_entropy,cross_entropy_backward,add,mul,scale,\
                              cast,sigmoid,zero,init,sum_squares,first_not_finite,adamw";

#[test]
fn what_is_decomposed_is_shown_and_runs() {
    let training = training();
    let ops = format!("backend.null.ops=\"{WITHOUT_SWIGLU}\"");
    let words = format!("--plugins lora --set {ops}");
    let output = training.run("out", &words);
    assert!(output.status.success(), "{}", error(&output));
    let plan = plan(&training, &words);
    assert!(plan.status.success(), "{}", error(&plan));
    let text = String::from_utf8_lossy(&plan.stdout).into_owned();
    let line = "decomposed swiglu, swiglu_backward: the backend lacks them";
    assert!(text.contains(line), "{text}");
    let words = format!("doctor --set run.plugin_dirs=[\"plugins\"] --set {ops}");
    let doctor = host(&training, &words);
    assert!(doctor.status.success(), "{}", error(&doctor));
    let text = String::from_utf8_lossy(&doctor.stdout).into_owned();
    for words in [
        "null runs by decomposition: swiglu, swiglu_backward, geglu_tanh, geglu_tanh_backward\n",
        "null lacks, with a part of its decomposition: rms_norm_weight_backward (of bias_backward), ",
        "null lacks, without a decomposition: embedding_backward, bias_backward, ",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!text.contains("cpu lacks"), "{text}");
}

#[test]
fn an_op_of_the_update_that_a_backend_lacks_is_named_before_a_weight_is_read() {
    let training = training();
    let ops = WITHOUT_SWIGLU.replace(",adamw", "");
    let words = format!("--plugins lora --set backend.null.ops=\"{ops}\"");
    let output = training.run("out", &words);
    let error = error(&output);
    assert_eq!(output.status.code(), Some(5), "{error}");
    let line = "op `adamw` is not among the ops of backend `null`";
    assert!(error.contains(line), "{error}");
}
