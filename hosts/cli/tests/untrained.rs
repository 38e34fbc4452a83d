//! Runs whose learning rate trains nothing: their report, and that of a run that learns.

mod place;

use place::RunFolder;
use serde_json::{Value as Json, json};

/// Number of other seeds.
const SEEDS: u64 = 12;

/// A folder with forty short texts.
fn texts() -> RunFolder {
    let place = RunFolder::new();
    place.model("m");
    let questions = "../../configs/quickstart/data/held-out-questions.jsonl";
    let questions = std::fs::read_to_string(questions).expect("the quickstart's rows");
    let rows = questions.lines().take(40).map(|line| {
        let row: Json = serde_json::from_str(line).expect("JSON");
        let prompt = row["prompt"].as_str().expect("a prompt");
        json!({"text": prompt.lines().next()}).to_string()
    });
    place.write("rows.jsonl", &rows.collect::<Vec<_>>().join("\n"));
    place
}

/// The verdict of a run and its printed text.
fn verdict(place: &RunFolder, out: &str, more: &str) -> (String, String) {
    let words = format!(
        "train --threads 1 --quiet --plugins lora --model m --data rows.jsonl \
         --set model.compute=f32 --set adapter.lora.rank=2 --set data.max_seq_len=128 \
         --set run.epochs=3 --out {out} {more}"
    );
    place.host(&words).succeeded();
    let report: Json =
        serde_json::from_str(&place.read(&format!("{out}/report.json"))).expect("JSON");
    let reading = &report["reading"];
    let verdict = reading["verdict"].as_str().expect("a verdict");
    (verdict.to_owned(), reading["sentences"].to_string())
}

const NOTHING: &str = "--set optim.learning_rate=1e-15";

/// At a 5 % level, two or more such verdicts of twelve occur by chance in one of eight tests; seeds
/// are fixed.
#[test]
fn an_untrained_run_neither_improves_nor_worsens() {
    let place = texts();
    let mut wrong = Vec::new();
    for seed in 1..=SEEDS {
        let more = format!("{NOTHING} --set run.seed={seed}");
        let (verdict, printed) = verdict(&place, &format!("seed-{seed}"), &more);
        if !["cannot_tell", "nothing_learned"].contains(&verdict.as_str()) {
            wrong.push(printed);
        }
    }
    assert!(wrong.len() <= 1, "{} of {SEEDS}: {wrong:#?}", wrong.len());
}

#[test]
fn held_out_rows_distinguish_an_untrained_run_from_a_trained_one() {
    let place = texts();
    let held_out = "--set data.eval_split=8";
    let (nothing, printed) = verdict(&place, "nothing", &format!("{NOTHING} {held_out}"));
    assert_eq!(nothing, "nothing_learned", "{printed}");
    assert!(
        printed.contains("95 % interval") && printed.contains("over 8 rows"),
        "{printed}"
    );
    assert_eq!(place.names("nothing/held_out"), "step-0.json step-12.json");
    let learns = "--set optim.learning_rate=1e-3";
    let again = format!("{learns} --set data.eval_files=['rows.jsonl']");
    let (learned, printed) = verdict(&place, "learned", &again);
    assert_eq!(learned, "learned", "{printed}");
    let (learned, printed) = verdict(&place, "learned-too", learns);
    assert_eq!(learned, "learned", "{printed}");
}
