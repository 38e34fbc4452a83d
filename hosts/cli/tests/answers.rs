//! Held-out questions with their answers before and after training: on the terminal, in the
//! metrics, in the report, and over `--resume`.

mod place;

use std::fs;
use std::path::Path;
use std::process::Output;

use place::RunFolder;
use serde_json::{Value as Json, json};

/// Six questions, each with the expected answer.
const ROWS: [[&str; 2]; 6] = [
    ["And Moses said unto the king,\nWho is it?", " Moses"],
    ["And the king said,\nWho is it?", " the king"],
    ["In the beginning\tGod\nWho is it?", " God"],
    ["And he said unto her,\nWho is it?", " he"],
    ["<b>And</b> the LORD spake,\nWho is it?", " the LORD"],
    ["And David went up,\nWho is it?", " David"],
];

/// A folder with the rows, to be trained and held out.
fn questions() -> RunFolder {
    let place = RunFolder::new();
    place.model("m");
    let rows = ROWS.map(|[prompt, completion]| {
        let row = json!({"prompt": prompt, "completion": completion});
        format!("{row}\n")
    });
    place.write("rows.jsonl", &rows.concat());
    place
}

/// A run that is asked all rows; returns what it printed.
fn train(place: &RunFolder, more: &str) -> String {
    let more = format!(
        "--quiet --plugins nf4,lora --set data.eval_files=['rows.jsonl'] --set data.batch_size=6 \
         --set run.eval_answers=6 --set optim.learning_rate=1e-2 {more}"
    );
    let output: Output = (place.command().args(RunFolder::words("m", &more)))
        .output()
        .expect("the program starts");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    String::from_utf8(output.stdout).expect("text")
}

/// The samples of each evaluation, by step.
fn samples(out: &Path) -> Vec<(u64, Json)> {
    let metrics = fs::read_to_string(out.join("metrics.jsonl")).expect("metrics");
    let lines = metrics
        .lines()
        .map(|line| serde_json::from_str::<Json>(line).expect("JSON"));
    let evaluations = lines.filter(|line| line.get("eval_loss").is_some());
    evaluations
        .map(|line| {
            let step = line["step"].as_u64().expect("a step");
            (step, line["eval_samples"].clone())
        })
        .collect()
}

#[test]
fn five_questions_are_shown_before_and_after() {
    let place = questions();
    let printed = train(
        &place,
        "--out out --set run.epochs=60 --set run.max_steps=60",
    );
    let found = samples(&place.path("out"));
    let [(0, before), (last, after)] = &found[..] else {
        panic!("{found:?}")
    };
    assert!(*last > 0);
    let mut expected = Vec::new();
    for (index, [question, answer]) in ROWS.iter().take(5).enumerate() {
        for samples in [before, after] {
            assert_eq!(samples[index]["question"], *question);
            assert_eq!(samples[index]["expected"], answer.trim());
            let right = samples[index]["answer"] == answer.trim();
            assert_eq!(samples[index]["right"], right, "{samples}");
        }
        let shown = |text: &str| text.replace('\n', "⏎").replace('\t', "⇥");
        let text = |samples: &Json| shown(samples[index]["answer"].as_str().expect("text"));
        expected.push(format!("question  {}", shown(question)));
        expected.push(format!("  expected  {}", answer.trim()));
        expected.push(
            format!("  before    {}", text(before))
                .trim_end()
                .to_owned(),
        );
        expected.push(format!("  after     {}", text(after)).trim_end().to_owned());
    }
    assert_eq!(before.as_array().map(Vec::len), Some(5));
    let lines: Vec<&str> = printed.lines().collect();
    let begin = lines.iter().position(|line| line.starts_with("question "));
    let begin = begin.expect("questions");
    assert_eq!(lines[begin..begin + expected.len()], expected, "{printed}");
    assert_eq!(printed.matches("question ").count(), 5, "{printed}");
    // The model learns what it is asked.
    let right = |samples: &Json| {
        let samples = samples.as_array().expect("a list").iter();
        samples.filter(|one| one["right"] == true).count()
    };
    assert!(right(after) > right(before), "{printed}");

    let page = place.read("out/report.html");
    assert!(page.contains("Held-out questions") && page.contains("class=\"right\""));
    assert!(page.contains("&lt;b&gt;And&lt;&#x2f;b&gt; the LORD spake"));
    let report: Json = serde_json::from_str(&place.read("out/report.json")).expect("JSON");
    assert_eq!(report["samples"].as_array().map(Vec::len), Some(5));
    assert_eq!(report["samples"][0]["before"]["text"], before[0]["answer"]);
    assert_eq!(report["samples"][4]["after"]["text"], after[4]["answer"]);
}

#[test]
fn a_stopped_and_resumed_run_keeps_the_answers_of_its_beginning() {
    let place = questions();
    let longer = "--set run.epochs=4 --set run.max_steps=4";
    train(&place, &format!("--out whole {longer}"));
    train(&place, "--out parts --set run.epochs=4");
    let printed = train(&place, &format!("--out parts {longer} --resume"));
    let [whole, parts] = ["whole", "parts"].map(|out| samples(&place.path(out)));
    assert_eq!(parts.first(), whole.first());
    assert_eq!(parts.last(), whole.last());
    assert!(
        printed.contains("  before  ") && printed.contains("  after  "),
        "{printed}"
    );

    let printed = train(&place, "--out silent --set run.eval_answers=0");
    assert!(!printed.contains("question"), "{printed}");
    let silent = samples(&place.path("silent"));
    assert!(silent.iter().all(|(_, samples)| samples.is_null()));
}
