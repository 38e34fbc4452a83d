//! Runs whose learning rate trains nothing: what is said of them, and of one that learns.

mod place;

use place::Place;
use serde_json::{Value as Json, json};

/// Runs of other seeds.
const SEEDS: u64 = 12;

/// A folder with forty short texts.
fn texts() -> Place {
    let place = Place::new();
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

/// The verdict of a run and what is said.
fn verdict(place: &Place, out: &str, more: &str) -> (String, String) {
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

/// Of twelve such verdicts at 5 % two or more come about by chance in one of eight tests; seeds are
/// fixed.
#[test]
fn nothing_trained_is_neither_learning_nor_getting_worse() {
    let place = texts();
    let mut wrong = Vec::new();
    for seed in 1..=SEEDS {
        let more = format!("{NOTHING} --set run.seed={seed}");
        let (verdict, said) = verdict(&place, &format!("seed-{seed}"), &more);
        if !["cannot_tell", "nothing_learned"].contains(&verdict.as_str()) {
            wrong.push(said);
        }
    }
    assert!(wrong.len() <= 1, "{} of {SEEDS}: {wrong:#?}", wrong.len());
}

#[test]
fn held_out_rows_tell_nothing_from_something() {
    let place = texts();
    let held_out = "--set data.eval_split=8";
    let (nothing, said) = verdict(&place, "nothing", &format!("{NOTHING} {held_out}"));
    assert_eq!(nothing, "nothing_learned", "{said}");
    assert!(
        said.contains("95 % interval") && said.contains("over 8 rows"),
        "{said}"
    );
    assert_eq!(place.names("nothing/held_out"), "step-0.json step-12.json");
    let learns = "--set optim.learning_rate=1e-3";
    let again = format!("{learns} --set data.eval_files=['rows.jsonl']");
    let (learned, said) = verdict(&place, "learned", &again);
    assert_eq!(learned, "learned", "{said}");
    let (learned, said) = verdict(&place, "learned-too", learns);
    assert_eq!(learned, "learned", "{said}");
}
