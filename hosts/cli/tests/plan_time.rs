//! The step time that `host plan` predicts from speeds measured here, compared with measured steps.
#![allow(clippy::print_stdout)] // Figures for the test log.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value as Json, json};

/// Largest ratio between the two, either way. The plan omits launch overhead, exponentials and
/// caches.
const FACTOR: f64 = 2.0;
/// Most rounds of a plan and two runs. The least time of each counts, as other load only makes it
/// longer.
const ROUNDS: usize = 5;
/// Steps of a short run and of a long one.
const STEPS: [u64; 2] = [4, 84];

/// A run: its arguments, sequences per step, and tokens of each.
struct Case {
    words: &'static str,
    model: &'static str,
    sequences: usize,
    length: usize,
}

const fn case(words: &'static str, model: &'static str, [sequences, length]: [usize; 2]) -> Case {
    Case {
        words,
        model,
        sequences,
        length,
    }
}

impl Case {
    /// Ranks, each on its own thread: their processor times add up.
    fn ranks(&self) -> usize {
        if self.words.contains("--ranks 2") {
            2
        } else {
            1
        }
    }
}

/// Steps dominated by different work: products, decoding, the update, kernels between narrow
/// products, transfers.
const CASES: [Case; 7] = [
    case("--plugins lora", "wide", [2, 64]),
    case("--plugins nf4,lora", "wide", [1, 16]),
    case(
        "--plugins lora --set model.compute=\"bf16\"",
        "wide",
        [2, 64],
    ),
    case("", "wide", [1, 16]),
    case("--plugins lora", "narrow", [4, 64]),
    case(
        "--plugins nf4,lora,fsdp --set sharding.fsdp.offload=\"params\"",
        "wide",
        [1, 16],
    ),
    case("--plugins lora,fsdp --ranks 2", "wide", [2, 64]),
];

fn host(place: &Path, words: &str) -> Vec<u8> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_host"));
    let command = command.current_dir(place).args(words.split_whitespace());
    let output = command.output().expect("the host starts");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}: {printed}");
    output.stdout
}

/// Makes a model of random weights, which can be packed.
fn make(place: &Path, name: &str, [width, feed_forward, layers, vocab]: [u64; 4]) {
    let config = json!({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
        "hidden_size": width, "intermediate_size": feed_forward, "num_hidden_layers": layers,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": vocab,
        "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "initializer_range": 0.02,
        "tie_word_embeddings": false, "rope_theta": 10000.0, "bos_token_id": 0, "eos_token_id": 1,
    });
    let blank = place.join(format!("{name}-blank"));
    fs::create_dir(&blank).expect("a folder");
    fs::write(blank.join("config.json"), config.to_string()).expect("a config");
    let row = "{\"input_ids\": [1, 2, 3]}\n";
    fs::write(place.join("row.jsonl"), row).expect("a row");
    host(
        place,
        &format!(
            "train --quiet --set model.init=\"random\" --set run.max_steps=0 --set model.compute=\"f32\" \
             --model {name}-blank --data row.jsonl --out {name}"
        ),
    );
}

/// The processor time of the ended child processes of this test, in ticks of 10 ms.
fn ticks() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux tells");
    let (_, fields) = stat.rsplit_once(')').expect("a name in brackets");
    let fields: Vec<&str> = fields.split_whitespace().collect();
    // Those of children in user and in system mode, the 16th and 17th of all fields.
    let of_children = fields[13..15].iter().map(|field| field.parse::<u64>());
    of_children.map(|ticks| ticks.expect("a number")).sum()
}

/// The processor time of a step, in seconds: the difference between runs of different lengths. On
/// one thread of an idle machine it is the step's time; on a busy one it excludes waiting for a
/// processor.
fn step_secs(place: &Path, words: &str, out: &str) -> f64 {
    let [short, long] = STEPS.map(|steps| {
        let before = ticks();
        let run = format!("train --quiet {words} --set run.max_steps={steps} --out {out}-{steps}");
        host(place, &run);
        (ticks() - before) as f64
    });
    (long - short) / 100.0 / (STEPS[1] - STEPS[0]) as f64
}

/// The seconds that both lanes of a step are busy.
fn busy_secs(place: &Path, words: &str) -> f64 {
    let plan = host(place, &format!("plan --json {words}"));
    let plan: Json = serde_json::from_slice(&plan).expect("JSON");
    let parts = ["compute_secs", "other_secs", "moving_secs"];
    let part = |key| plan["time"][key].as_f64().expect("seconds");
    parts.map(part).iter().sum()
}

#[test]
fn measured_step_times_match_the_plan() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path();
    make(place, "wide", [256, 704, 2, 2048]);
    make(place, "narrow", [128, 352, 3, 512]);
    let mut table = String::new();
    let mut far = 0;
    for (number, case) in CASES.iter().enumerate() {
        let row = |start: usize| -> Vec<usize> { (start..start + case.length).collect() };
        let rows =
            (0..40 * case.sequences * case.ranks()).map(|at| json!({"input_ids": row(5 + at)}));
        let rows: String = rows.map(|row| format!("{row}\n")).collect();
        fs::write(place.join("rows.jsonl"), rows).expect("rows");
        let words = format!(
            "--threads 1 --set model.compute=\"f32\" --model {}/model --data rows.jsonl --set run.epochs=3 \
             --set data.batch_size={batch} --set data.micro_batch={micro} {}",
            case.model,
            case.words,
            batch = case.sequences * case.ranks(),
            micro = case.sequences
        );
        let (mut predicted, mut found) = (f64::INFINITY, f64::INFINITY);
        for round in 0..ROUNDS {
            predicted = predicted.min(busy_secs(place, &words));
            let out = format!("out-{number}-{round}");
            found = found.min(step_secs(place, &words, &out) / case.ranks() as f64);
            if is_near(predicted, found) {
                break;
            }
        }
        far += usize::from(!is_near(predicted, found));
        table += &format!(
            "{}, {} x {} tokens, `{}`: predicted {:.2} ms, found {:.2} ms, ratio {:.2}\n",
            case.model,
            case.sequences,
            case.length,
            case.words,
            1e3 * predicted,
            1e3 * found,
            found / predicted
        );
    }
    println!("{table}");
    assert_eq!(far, 0, "more than a factor of {FACTOR} apart:\n{table}");
}

fn is_near(predicted: f64, found: f64) -> bool {
    (1.0 / FACTOR..=FACTOR).contains(&(found / predicted))
}
