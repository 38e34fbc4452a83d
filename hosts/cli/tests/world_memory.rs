//! Memory of all ranks: printed at the start and the end, and in the record and the report; and
//! ranks without work.

mod place;

use std::process::Output;

use place::RunFolder;
use serde_json::{Value as Json, json};

/// Rows of 64 tokens, and a model of random weights. Its twelve layers hold most of the memory of
/// a rank all the time; the rest (room of kernels, layers in flight) is at its most in both ranks
/// at once only by chance.
fn prepared() -> RunFolder {
    let place = RunFolder::new();
    let config = json!({
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 384,
        "intermediate_size": 1152,
        "num_hidden_layers": 12,
        "num_attention_heads": 6,
        "num_key_value_heads": 6,
        "vocab_size": 4096,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "tie_word_embeddings": false,
        "bos_token_id": 0,
        "eos_token_id": 1,
    });
    std::fs::create_dir(place.path("blank")).expect("a folder");
    place.write("blank/config.json", &config.to_string());
    let row = |start: u32| json!({"input_ids": (start..start + 64).collect::<Vec<_>>()});
    let rows: Vec<String> = (0..16)
        .map(|index| row(5 + 9 * index).to_string())
        .collect();
    place.write("rows.jsonl", &rows.join("\n"));
    place
        .train(
            "blank",
            "--set model.init=random --set run.max_steps=0 --out made --quiet",
        )
        .succeeded();
    place
}

fn run(place: &RunFolder, words: &str) -> Output {
    let output = place.command().args(words.split_whitespace()).output();
    let output = output.expect("the program starts");
    let shown = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}: {shown}");
    output
}

/// A size such as `93.53 MiB` after `begin`, in bytes.
fn bytes_after(text: &str, begin: &str) -> f64 {
    let (_, rest) = text
        .split_once(begin)
        .unwrap_or_else(|| panic!("no {begin:?} in {text}"));
    let mut words = rest.split([' ', ',', ')', '\n']);
    let (number, unit) = (
        words.next().expect("a number"),
        words.next().expect("a unit"),
    );
    let unit = match unit {
        "KiB" => 1024.0,
        "MiB" => f64::from(1 << 20),
        "GiB" => f64::from(1 << 30),
        other => panic!("{other} in {text}"),
    };
    unit * number.parse::<f64>().expect("a number")
}

fn read(place: &RunFolder, name: &str) -> Json {
    serde_json::from_str(&place.read(name)).expect("JSON")
}

fn close(found: f64, expected: f64, within: f64, what: &str) {
    let off = (found / expected - 1.0).abs();
    assert!(off <= within, "{what}: {found} beside {expected}");
}

#[test]
fn two_ranks_hold_the_memory_reported_for_both() {
    let place = prepared();
    for (name, plugins, more) in [
        ("cut", "nf4,lora,fsdp", ""),
        ("alike", "nf4,lora,ddp", ""),
        (
            "offloaded",
            "nf4,lora,fsdp",
            "--set sharding.fsdp.offload=params+optimizer",
        ),
    ] {
        let words = format!(
            "--plugins {plugins} --ranks 2 --threads 2 --model made/model --data rows.jsonl \
             --set run.max_steps=3 --set data.batch_size=4 {more}"
        );
        let output = run(&place, &format!("train {words} --out {name}"));
        let shown = String::from_utf8_lossy(&output.stderr).into_owned();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let metrics = place.read(&format!("{name}/metrics.jsonl"));
        let lines = metrics
            .lines()
            .map(|line| serde_json::from_str::<Json>(line).expect("JSON"));
        let held = lines.filter_map(|line| line["peak_host_bytes"].as_f64());
        let held = held.fold(0.0, |most, bytes| if bytes > most { bytes } else { most });

        let started = bytes_after(&shown, "steps, peak ");
        close(started, held, 0.1, &format!("{name}, as it starts"));
        assert!(shown.contains("(2 ranks of "), "{shown}");
        let planned = run(&place, &format!("plan --json {words}"));
        let planned: Json = serde_json::from_slice(&planned.stdout).expect("JSON");
        let number = |key: &str| planned.pointer(key).and_then(Json::as_f64).expect("bytes");
        let all = [
            "weights",
            "trained",
            "saved_activations",
            "staging",
            "devices",
            "program",
        ];
        let step: f64 = all.iter().map(|key| number(&format!("/host/{key}"))).sum();
        let needed = step.max(number("/host/loading_peak"));
        close(
            started,
            needed,
            0.06,
            &format!("{name}, beside `host plan`"),
        );

        let summed = printed.lines().find(|line| line.starts_with("memory "));
        let summed = summed.unwrap_or_else(|| panic!("no memory in {printed}"));
        close(bytes_after(summed, "memory    "), held, 0.001, summed);
        close(bytes_after(summed, "at most, "), started, 0.001, summed);

        let record = read(&place, &format!("{name}/run.json"));
        let world = &record["world_memory"];
        assert_eq!(world["ranks_per_process"], 2, "{world}");
        let rank = bytes_after(&shown, "(2 ranks of ");
        close(
            world["rank_bytes"].as_f64().expect("bytes"),
            rank,
            0.001,
            name,
        );
        let report = read(&place, &format!("{name}/report.json"));
        let memory = &report["memory"];
        close(
            memory["planned_peak_bytes"].as_f64().expect("bytes"),
            started,
            0.001,
            name,
        );
        close(
            memory["observed_peak_bytes"].as_f64().expect("bytes"),
            held,
            0.001,
            name,
        );
        let page = place.read(&format!("{name}/report.html"));
        assert!(
            page.contains("Each of the 2 ranks of the process takes "),
            "{name}"
        );
    }
}

#[test]
fn a_rank_without_work_is_reported_with_the_option_to_set() {
    let place = prepared();
    let words = "--plugins lora,ddp --ranks 2 --model made/model --data rows.jsonl \
                 --set data.batch_size=4 --set run.max_steps=1";
    let note = "1 of 2 ranks has nothing to do: a step has 1 micro-batch of 4 rows in all; set \
                data.batch_size = 8 or data.micro_batch = 2";
    let idle = format!("{words} --set data.micro_batch=4");
    let output = run(&place, &format!("train {idle} --out idle"));
    let shown = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(shown.contains(&format!("note: {note}")), "{shown}");
    let planned = run(&place, &format!("plan {idle}"));
    let planned = String::from_utf8_lossy(&planned.stdout).into_owned();
    assert!(planned.contains(note), "{planned}");
    assert!(place.read("idle/report.html").contains(note));
    assert_eq!(read(&place, "idle/run.json")["idle_ranks"]["idle"], 1);
    for set in [
        "data.micro_batch=2",
        "data.micro_batch=4 --set data.batch_size=8",
    ] {
        let planned = run(&place, &format!("plan {words} --set {set}"));
        let planned = String::from_utf8_lossy(&planned.stdout).into_owned();
        assert!(!planned.contains("nothing to do"), "{set}: {planned}");
    }
}
