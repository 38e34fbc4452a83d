//! The held-out loss decides what a run writes (`run.keep_best`) and when it ends
//! (`run.stop_after_worse`), also over a stop and at several ranks.
#![cfg(feature = "embedded")]

mod swapping;

use std::fs;

use espalier_config::{Sources, resolve};
use espalier_trainer::checkpoint::ResumeFrom;
use espalier_trainer::train;
use serde_json::Value as Json;

use swapping::{Job, STEPS};

/// A rate that is too high after a few steps, evaluated after each.
const KEYS: [&str; 6] = [
    "plugins=\"lora\"",
    "run.eval_every=1",
    "run.keep_best=true",
    "run.keep_last=1",
    "run.save_every=1",
    "optim.learning_rate=0.4",
];

fn job(more: &[&str]) -> Job {
    Job::new(&[&KEYS, more].concat())
}

/// Held-out losses by step, without that before the first.
fn held_out(job: &Job, out: &str) -> Vec<(u64, f64)> {
    let lines = fs::read_to_string(job.path(out).join("metrics.jsonl")).expect("metrics");
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str::<Json>(line).expect("JSON"));
    let of = |line: Json| Some((line["step"].as_u64()?, line["eval_loss"].as_f64()?));
    lines.filter_map(of).filter(|(step, _)| *step > 0).collect()
}

/// The first step with the lowest loss.
fn lowest(losses: &[(u64, f64)]) -> (u64, f64) {
    let better = |best: (u64, f64), next: &(u64, f64)| if next.1 < best.1 { *next } else { best };
    losses[1..].iter().fold(losses[0], better)
}

fn adapter(job: &Job, folder: &str) -> Vec<u8> {
    let path = job.path(folder).join("adapter_model.safetensors");
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn run_json(job: &Job, out: &str) -> Json {
    let text = fs::read(job.path(out).join("run.json")).expect("a record");
    serde_json::from_slice(&text).expect("JSON")
}

#[test]
fn the_step_with_the_lowest_held_out_loss_is_written() {
    for more in [&[][..], &["plugins=\"lora,ddp\"", "run.ranks=2"]] {
        let job = job(more);
        let asking = job.asking("out", &[]);
        let summary = train::run(&job.config("out"), &asking, &asking.stop).expect("a run");
        let (best, loss) = lowest(&held_out(&job, "out"));
        assert!(best < STEPS, "{more:?}: {:?}", held_out(&job, "out"));
        let kept = adapter(&job, &format!("out/checkpoints/step-{best}/adapter"));
        assert!(adapter(&job, "out/adapter") == kept, "{more:?}");
        let last = adapter(&job, &format!("out/checkpoints/step-{STEPS}/adapter"));
        assert!(kept != last);
        let eval = summary.eval_after.expect("it was evaluated");
        assert_eq!((eval.step, eval.eval_loss), (best, loss));
        assert_eq!(run_json(&job, "out")["kept"]["step"], best);
        let checkpoints = fs::read_dir(job.path("out/checkpoints")).expect("a folder");
        assert_eq!(checkpoints.count(), 2, "the best and the last");
        let notes = asking.notes.lock().expect("ours").join("\n");
        assert!(
            notes.contains(&format!("of step {best}, with the lowest")),
            "{notes}"
        );
    }
}

#[test]
fn a_stopped_run_writes_the_same_step() {
    let job = job(&[]);
    let asking = job.asking("whole", &[]);
    train::run(&job.config("whole"), &asking, &asking.stop).expect("a run");
    for stop_after in [1, 3, STEPS - 1] {
        let out = format!("stopped-{stop_after}");
        let mut asking = job.asking(&out, &[]);
        asking.stop_after = Some(stop_after);
        let config = job.config(&out);
        train::run(&config, &asking, &asking.stop).expect_err("it was stopped");
        let asking = job.asking(&out, &[]);
        train::resume(&config, ResumeFrom::Newest, &asking, &asking.stop).expect("the rest");
        assert!(
            adapter(&job, "whole/adapter") == adapter(&job, &format!("{out}/adapter")),
            "stopped after step {stop_after}"
        );
        assert_eq!(
            run_json(&job, "whole")["kept"],
            run_json(&job, &out)["kept"]
        );
    }
}

#[test]
fn a_run_ends_after_evaluations_that_are_no_better() {
    let job = job(&[
        "run.stop_after_worse=2",
        "run.keep_best=false",
        "run.max_steps=40",
    ]);
    let asking = job.asking("out", &[]);
    let summary = train::run(&job.config("out"), &asking, &asking.stop).expect("a run");
    let losses = held_out(&job, "out");
    let (best, _) = lowest(&losses);
    assert!(summary.steps < 40, "it did not end early");
    assert_eq!(summary.steps, best + 2);
    assert_eq!(losses.len() as u64, summary.steps);
    let run = run_json(&job, "out");
    assert_eq!(run["ended_early"]["worse"], 2);
    assert!(run["kept"].is_null(), "the last step is written");
    let asking = job.asking("out", &[]);
    let again = train::resume(
        &job.config("out"),
        ResumeFrom::Newest,
        &asking,
        &asking.stop,
    );
    assert!(again.expect("a finished run").finished_before);
}

#[test]
fn a_missing_checkpoint_of_the_best_step_loses_no_params() {
    let job = job(&[]);
    let mut asking = job.asking("out", &[]);
    asking.stop_after = Some(STEPS - 1);
    train::run(&job.config("out"), &asking, &asking.stop).expect_err("it was stopped");
    let (best, _) = lowest(&held_out(&job, "out"));
    assert!(best < STEPS - 1);
    fs::remove_dir_all(job.path(&format!("out/checkpoints/step-{best}"))).expect("removed");
    let asking = job.asking("out", &[]);
    train::resume(
        &job.config("out"),
        ResumeFrom::Newest,
        &asking,
        &asking.stop,
    )
    .expect("the rest");
    let last = adapter(&job, &format!("out/checkpoints/step-{STEPS}/adapter"));
    assert!(adapter(&job, "out/adapter") == last);
    assert!(run_json(&job, "out")["kept"].is_null());
}

#[test]
fn both_need_evaluations_on_the_way() {
    for key in ["run.keep_best=true", "run.stop_after_worse=3"] {
        let error = resolve(&Sources::default().set(key)).expect_err(key);
        let text = error.to_string();
        assert!(text.contains("run.eval_every"), "{text}");
    }
    let none = "run.stop_after_worse=0";
    let sources = Sources::default().set(none).set("run.eval_every=1");
    assert!(resolve(&sources).is_err());
}
