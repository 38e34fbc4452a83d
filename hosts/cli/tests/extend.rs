//! A run that ended, or was stopped, becomes longer or takes another learning rate: the bits, the
//! record, and refusals that name the way.

use espalier_torture::training;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use training::{Training, copy, messages, refused, trained};

/// Longest wait for a run's steps on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// `host train` with `words` alone, in another folder than the run's: the rest is on record.
fn continuing(training: &Training, words: &str) -> Command {
    let elsewhere = training.path("elsewhere");
    fs::create_dir_all(&elsewhere).expect("created");
    let mut command = Command::new(env!("CARGO_BIN_EXE_host"));
    command.current_dir(elsewhere);
    command.env("XDG_DATA_HOME", training.path("data"));
    command.arg("train").args(words.split_whitespace());
    command
}

fn go_on(training: &Training, words: &str) -> Output {
    let output = continuing(training, words).output();
    output.expect("the host starts")
}

/// Goes on, and expects success; returns what was printed.
fn gone_on(training: &Training, words: &str) -> String {
    let output = go_on(training, words);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{words}: {}",
        messages(&output)
    );
    messages(&output)
}

fn record(out: &Path) -> Json {
    let text = fs::read(out.join("run.json")).expect("a record");
    serde_json::from_slice(&text).expect("JSON")
}

/// The learning rates of all steps.
fn rates(out: &Path) -> Vec<f64> {
    let metrics = fs::read_to_string(out.join("metrics.jsonl")).expect("metrics");
    let lines = metrics
        .lines()
        .map(|line| serde_json::from_str::<Json>(line).expect("JSON"));
    lines
        .filter_map(|line| line["learning_rate"].as_f64())
        .collect()
}

#[test]
fn a_finished_run_becomes_longer_with_the_bits_of_one_that_was_longer_from_the_start() {
    for kind in [
        "--plugins nf4,lora --set adapter.lora.dropout=0.1 --set optim.warmup_steps=2",
        "--set optim.weight_decay=0.1",
    ] {
        let training = Training::new(kind);
        let whole = training.succeed("whole", "--set run.epochs=3");
        training.succeed("out", "");
        let printed = gone_on(&training, "--resume ../out --set run.epochs=3");
        let told = "note: from step 7 on: run.epochs 2 -> 3\n";
        assert!(printed.contains(told), "{kind}: {printed}");
        let out = training.path("out");
        let found = trained(&out);
        assert_eq!(found.metrics, whole.metrics, "{kind}");
        assert!(found.files == whole.files, "{kind}");
        let record = record(&out);
        let changed = [json!({"key": "run.epochs", "from": 2, "to": 3})];
        assert_eq!(
            record["resumptions"],
            json!([{"from_step": 6, "changed": changed}]),
            "{kind}"
        );
        assert_eq!(record["config"]["run"]["epochs"], 3);
        // Again there is nothing to do.
        let output = go_on(&training, "--resume ../out --set run.epochs=3");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("nothing to do"), "{text}");
    }
}

#[test]
fn a_schedule_up_to_the_end_is_computed_over_the_new_end_from_there_on() {
    let training = Training::new("--plugins lora --set optim.schedule=cosine");
    training.succeed("out", "");
    let before = rates(&training.path("out"));
    let printed = gone_on(&training, "--resume ../out --set run.epochs=4");
    let words = "from step 7 on: run.epochs 2 -> 4; the schedule is that of a run of 12 steps";
    assert!(printed.contains(words), "{printed}");
    training.succeed("whole", "--set run.epochs=4");
    let (found, whole) = (rates(&training.path("out")), rates(&training.path("whole")));
    assert_eq!(found.len(), 12);
    assert_eq!((&found[..6], &found[6..]), (&before[..], &whole[6..]));
    // In a file or by default the same change is no wish: it is refused with the way.
    training.unfinished("out", "again");
    let file = training.path("longer.toml");
    fs::write(&file, "[run]\nepochs = 5\n").expect("written");
    let words = format!("--resume=step-10 --config {} ../again", file.display());
    let case = "a file";
    let expected = "run.epochs: 4 -> 5 | the learning rate of step | `--set run.epochs=5`";
    refused(&go_on(&training, &words), 2, expected, case);
}

#[test]
fn an_extended_run_that_is_stopped_keeps_its_result_and_its_changes() {
    let training = Training::new("--plugins lora --set run.save_every=100000");
    training.succeed("out", "");
    copy(&training.path("out"), &training.path("whole"));
    let changes = "--set run.epochs=300 --set optim.learning_rate=1e-3";
    let words = |out: &str| format!("--quiet --resume ../{out} {changes}");
    gone_on(&training, &words("whole"));
    let metrics = training.path("out/metrics.jsonl");
    let steps = || {
        let text = fs::read_to_string(&metrics).unwrap_or_default();
        text.lines()
            .filter(|line| line.contains("grad_norm"))
            .count()
    };
    let mut command = continuing(&training, &words("out"));
    let run = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let run = run.expect("the program was built");
    let begin = Instant::now();
    while steps() < 8 {
        assert!(begin.elapsed() < PATIENCE, "no step in {PATIENCE:?}");
        sleep(Duration::from_millis(2));
    }
    let sent = Command::new("kill")
        .args(["-KILL", &run.id().to_string()])
        .status();
    assert!(sent.expect("a shell's kill").success());
    run.wait_with_output().expect("it was started here");
    // It died without a new checkpoint. What it had trained before can be used.
    assert!(training.path("out/adapter").is_dir());
    let mut generate = Command::new(env!("CARGO_BIN_EXE_host"));
    generate.args(["generate", "--prompt", "a", "--max-tokens", "1", "--run"]);
    let output = generate.arg(training.path("out")).output();
    let output = output.expect("the host starts");
    assert!(output.status.success(), "{}", messages(&output));
    // The record has the changes and the step from which they hold.
    gone_on(&training, "--quiet --resume ../out");
    assert!(
        trained(&training.path("out")) == trained(&training.path("whole")),
        "other bits"
    );
    let rates = rates(&training.path("out"));
    assert_eq!((rates[5], rates[6], rates.len()), (2e-4, 1e-3, 900));
}

#[test]
fn a_refusal_names_the_way() {
    let training = Training::new("--plugins lora");
    training.succeed("out", "");
    let out = training.path("out");
    let adapter = format!("--adapter {}/adapter", out.display());
    let refuse = |words: &str, expected: &str| {
        refused(
            &go_on(&training, &format!("--resume ../out {words}")),
            2,
            expected,
            words,
        )
    };
    let rank = refuse(
        "--set adapter.lora.rank=4",
        "adapter.lora.rank: unset -> 4 | another --out",
    );
    assert!(rank.contains(&adapter), "{rank}");
    refuse(
        "--set optim.learning_rate=1e-3",
        "the run of 6 steps has come to its end: `--set run.epochs=N` makes it longer",
    );
    refuse(
        "--set run.max_steps=10",
        "run.epochs = 2 ends the run after 6 steps: give `--set run.epochs=4`, too",
    );
    refuse(
        "--set run.max_steps=4",
        "a run of 6 steps cannot become one of 4",
    );
    fs::remove_dir_all(training.path("out/checkpoints")).expect("removed");
    refuse(
        "--set run.epochs=3",
        "has no checkpoint to go on from | --adapter DIR",
    );
    // The way: another run from the adapter.
    let more = format!("{adapter} --set run.max_steps=1");
    training.succeed("next", &more);
}

#[test]
fn a_run_that_the_held_out_loss_ended_goes_on_where_that_is_raised() {
    let early = "--plugins lora --set run.eval_every=1 --set run.stop_after_worse=1 \
                 --set optim.learning_rate=1e-30";
    let training = Training::new(early);
    training.succeed("out", "");
    let ended = record(&training.path("out"))["ended_early"]["step"].clone();
    assert!(ended.as_u64().is_some_and(|step| step < 6), "{ended}");
    let longer = "--resume ../out --set run.epochs=3";
    let words = format!("run.stop_after_worse = 1 ended the run after step {ended} | raise it");
    refused(&go_on(&training, longer), 2, &words, "ended early");
    gone_on(
        &training,
        &format!("{longer} --set run.stop_after_worse=100"),
    );
    assert_eq!(rates(&training.path("out")).len(), 9);
}
