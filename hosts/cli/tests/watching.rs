//! Output of a run for people: lines, a log, a summary, a report, TensorBoard files.

mod place;

use std::fs;
use std::process::{Command, Output};

use place::RunFolder;
use serde_json::Value as Json;

/// A run of the golden model, with its printed output.
fn train(place: &RunFolder, more: &str) -> Output {
    let words = RunFolder::words("m", &format!("--plugins lora {more}"));
    let output = place.command().args(words).output();
    output.expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_run_prints_plain_lines_and_a_summary() {
    let place = RunFolder::new();
    place.model("m");
    place.write("held.jsonl", "{\"input_ids\": [7, 8, 9]}\n");
    let output = train(&place, "--out out --set data.eval_files=['held.jsonl']");
    let (shown, printed) = (text(&output.stderr), text(&output.stdout));
    assert!(output.status.success(), "{shown}");
    let begins = [
        "reading 2 rows  ",
        "reading 1 rows  ",
        "m with llama, ",
        "loading ",
        "eval after step 0: loss ",
        "step 1/2  loss ",
        "step 2/2  loss ",
        "eval after step 2: loss ",
        "saved out/adapter",
        "saved out/report.html",
    ];
    let mut lines = shown.lines();
    for begin in begins {
        assert!(
            lines.any(|line| line.starts_with(begin)),
            "no {begin:?} in {shown}"
        );
    }
    assert_eq!(shown.matches("reading").count(), 2, "{shown}");
    assert!(
        !shown.contains('\u{1b}') && !shown.contains('\r'),
        "{shown:?}"
    );
    let begins = [
        "2 steps done",
        "  held-out loss ",
        "  perplexity ",
        "  token accuracy ",
    ];
    let ends = [
        "memory    ",
        "saved     out/adapter",
        "report    out/report.html",
        "next      ",
    ];
    assert_eq!(printed.lines().count(), 8, "{printed}");
    for (line, begin) in printed.lines().zip(begins.iter().chain(&ends)) {
        assert!(line.starts_with(begin), "{printed}");
    }

    let events = place.names("out/tensorboard");
    assert_eq!(events, "events.out.tfevents.0000000000.espalier");
    let page = fs::read(place.path("out/report.html")).expect("a report");
    place.host("report out").succeeded();
    assert_eq!(
        fs::read(place.path("out/report.html")).expect("a report"),
        page
    );
}

#[test]
fn a_quiet_run_prints_nothing() {
    let place = RunFolder::new();
    place.model("m");
    let output = train(&place, "--out out --quiet");
    assert_eq!(text(&output.stderr), "");
    assert_eq!(
        place.names("out").contains("report.html"),
        output.status.success()
    );
}

#[test]
fn a_failed_run_writes_a_report_and_a_refused_one_changes_none() {
    let place = RunFolder::new();
    place.model("m");
    let diverging = "--set optim.learning_rate=1e30 --set run.max_steps=9 --set run.epochs=9";
    let failed = train(&place, &format!("--out out {diverging}"));
    assert_eq!(failed.status.code(), Some(7), "{}", text(&failed.stderr));
    let numbers: Json = serde_json::from_str(&place.read("out/report.json")).expect("JSON");
    let steps = numbers["headline"]["steps"].as_u64();
    assert!(steps.is_some_and(|steps| steps < 9), "{numbers}");
    assert!(
        numbers["reading"]["sentences"]
            .to_string()
            .contains("of 9 steps are done")
    );

    place.write("out/report.html", "mine");
    train(&place, "--out out");
    assert_eq!(place.read("out/report.html"), "mine");
    place
        .host("report m")
        .refused("no run", 2, "run.json | output directory");
}

#[test]
fn a_resumed_run_has_no_duplicate_steps() {
    let place = RunFolder::new();
    place.model("m");
    let more = "--out out --set run.epochs=4 --set run.max_steps=4 --set run.save_every=2";
    assert!(train(&place, more).status.success());
    let whole = events(&place);
    fs::remove_dir_all(place.path("out/adapter")).expect("removed");
    let resumed = train(&place, &format!("{more} --resume=step-2"));
    assert!(resumed.status.success(), "{}", text(&resumed.stderr));
    assert_eq!(events(&place), whole);
}

#[test]
fn a_resumed_run_appends_to_the_log() {
    let place = RunFolder::new();
    place.model("m");
    let saved = "--plugins lora --out out --set run.save_every=1 --set run.keep_last=2";
    let steps = |more: &str| format!("{saved} {more}");
    // The remaining files are those of a run killed in its last step.
    place.train("m", &steps("")).succeeded();
    fs::remove_dir_all(place.path("out/adapter")).expect("removed");
    fs::remove_dir_all(place.path("out/checkpoints/step-2")).expect("removed");
    place.train("m", &steps("--resume --quiet")).succeeded();
    let log = place.read("out/log.txt");
    let headers = log.lines().filter(|line| line.contains(" === process "));
    assert_eq!(headers.count(), 2, "{log}");
    assert_eq!(log.matches("step 2/2").count(), 2, "{log}");
    assert!(log.contains("note: continuing from "), "{log}");
    let resumed = log.lines().position(|line| line.contains("--resume"));
    assert!(resumed.is_some_and(|line| line > 3), "{log}");
}

#[test]
fn a_log_that_is_not_a_file_is_reported_and_skipped() {
    let place = RunFolder::new();
    place.model("m");
    fs::create_dir(place.path("out")).expect("created");
    let made = Command::new("mkfifo")
        .arg(place.path("out/log.txt"))
        .status();
    assert!(made.expect("a tool of every system").success());
    let mut command = place.command();
    let output = command
        .args(RunFolder::words("m", "--plugins lora --out out"))
        .output();
    let output = output.expect("it starts");
    let printed = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    let reported = printed
        .lines()
        .filter(|line| line.contains("warning: no log in out/log.txt: "));
    assert_eq!(reported.count(), 1, "{printed}");
}

#[test]
fn a_plan_shows_the_largest_categories_and_the_total() {
    let place = RunFolder::new();
    place.model("m");
    let mut plan = place.command();
    plan.args("plan --model m --plugins lora --data rows.jsonl".split(' '));
    let printed = text(&plan.output().expect("the program starts").stdout);
    let longest = format!("  {}", "#".repeat(24));
    assert_eq!(
        printed
            .lines()
            .filter(|line| line.ends_with(&longest))
            .count(),
        1
    );
    assert!(!printed.contains(" 0 B"), "{printed}");
    for words in ["peak of a step", "fits: ", "first step  ", "1 such steps"] {
        assert!(printed.contains(words), "no {words:?} in {printed}");
    }
}

/// Occurrences of a step's loss in all event files.
fn events(place: &RunFolder) -> usize {
    let names = place.names("out/tensorboard");
    let count = |name: &str| {
        let bytes = fs::read(place.path("out/tensorboard").join(name)).expect("events");
        bytes
            .windows(10)
            .filter(|part| part == b"train/loss")
            .count()
    };
    names.split(' ').map(count).sum()
}
