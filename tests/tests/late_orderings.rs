//! The events by which the engine orders its lanes are needed: for each of them the backend `late`
//! says which two tasks use the same bytes unordered without it.

#![allow(clippy::print_stdout)] // Figures, for whoever looks.

mod lately;
mod swapping;

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value as Json;
use swapping::{Job, plugin_folder};

use lately::{add_library, on_late, try_run};

/// Schedules with tasks on more than one lane, by name.
const SCHEDULES: [(&str, &[&str]); 11] = [
    (
        "params, prefetch 1",
        &[
            "plugins=\"nf4,lora,fsdp\"",
            "sharding.fsdp.offload=\"params\"",
        ],
    ),
    (
        "params, prefetch 2",
        &[
            "plugins=\"nf4,lora,fsdp\"",
            "sharding.fsdp.offload=\"params\"",
            "sharding.fsdp.prefetch=2",
        ],
    ),
    (
        "params, host-direct",
        &[
            "plugins=\"nf4,lora,fsdp\"",
            "sharding.fsdp.offload=\"params\"",
            "sharding.fsdp.gather=\"host-direct\"",
        ],
    ),
    (
        "params, shard_grad_op",
        &[
            "plugins=\"nf4,lora,fsdp\"",
            "sharding.fsdp.offload=\"params\"",
            "sharding.fsdp.strategy=\"shard_grad_op\"",
        ],
    ),
    (
        "params and activations",
        &[
            "plugins=\"nf4,lora,fsdp\"",
            "sharding.fsdp.offload=\"params\"",
            "sharding.fsdp.offload_activations=true",
        ],
    ),
    (
        "params and optimizer",
        &[
            "plugins=\"nf4,lora,fsdp\"",
            "sharding.fsdp.offload=\"params+optimizer\"",
        ],
    ),
    (
        "params and optimizer, full",
        &[
            "plugins=\"fsdp\"",
            "sharding.fsdp.offload=\"params+optimizer\"",
            "sharding.fsdp.prefetch=2",
        ],
    ),
    (
        "params and optimizer, full, updates in the backward pass",
        &[
            "plugins=\"fsdp\"",
            "sharding.fsdp.offload=\"params+optimizer\"",
            "optim.in_backward=true",
            "optim.clip_norm=0.0",
            "data.micro_batch=2",
            "data.batch_size=2",
        ],
    ),
    (
        "params and activations, two micro-batches a fetch",
        &[
            "plugins=\"nf4,lora,fsdp\"",
            "sharding.fsdp.offload=\"params\"",
            "sharding.fsdp.offload_activations=true",
            "sharding.fsdp.micro_batches_per_fetch=2",
        ],
    ),
    // By a collective on devices: calls of the host wait on their own lane, and what the host knows
    // it knows for all lanes.
    (
        "two ranks",
        &[
            "plugins=\"nf4,lora,fsdp\"",
            "run.ranks=2",
            "run.device_collective=\"late-collective\"",
        ],
    ),
    (
        "two ranks, updates in the backward pass",
        &[
            "plugins=\"nf4,lora,fsdp\"",
            "run.ranks=2",
            "run.device_collective=\"late-collective\"",
            "optim.in_backward=true",
            "optim.clip_norm=0.0",
            "data.batch_size=2",
        ],
    ),
];

/// A short run: the first steps, an evaluation, several micro-batches a step.
const SHORT: [&str; 2] = ["run.max_steps=3", "run.eval_every=2"];

/// The job of a schedule, and its keys with those of a short run.
fn short(keys: &[&str]) -> Job {
    let all: Vec<&str> = keys.iter().chain(&SHORT).copied().collect();
    Job::new(&all)
}

/// The calls that order streams in a run, as the backend writes them.
fn orderings(keys: &[&str]) -> Vec<Json> {
    let job = short(keys);
    let folder = plugin_folder(&job, "late");
    add_library(&folder, "late-collective");
    let path = job.path("orderings.jsonl");
    let mut run = on_late(&job, &folder, ("late", 0));
    run.keys.push(format!("backend.late.orderings={path:?}"));
    try_run(&run, "out").expect("no race with all of them");
    let text = fs::read_to_string(path).expect("lines");
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

/// The tasks of a race, without their numbers.
fn tasks(race: &str) -> String {
    let words = race.strip_prefix("race: ").expect("a race");
    let (tasks, _) = words.split_once(" use bytes").expect("its bytes");
    let named = tasks.split(" and ");
    let names = named.map(|task| task.split(" (task").next().expect("a name").to_owned());
    names.collect::<Vec<_>>().join(" and ")
}

#[test]
fn without_one_record_or_wait_between_lanes_two_tasks_race() {
    let mut of_schedules = Vec::new();
    for (name, keys) in SCHEDULES {
        let lines = orderings(keys);
        let mut shown: BTreeMap<String, usize> = BTreeMap::new();
        let mut needless = Vec::new();
        for line in &lines {
            let call = line["call"].as_str().expect("a name");
            match line["race"].as_str() {
                Some(race) => *shown.entry(format!("{call}: {}", tasks(race))).or_default() += 1,
                None => needless.push(line.to_string()),
            }
        }
        let all = lines.len();
        println!("{name}: {all} calls order lanes; without one of them race");
        for (tasks, count) in shown {
            println!("  {count:4} x {tasks}");
        }
        println!("  {:4} x nothing in this run", needless.len());
        assert!(all > 50, "{name}: {all} calls");
        if !needless.is_empty() {
            of_schedules.push(format!("{name}: {}", needless.join("\n  ")));
        }
    }
    assert!(of_schedules.is_empty(), "{}", of_schedules.join("\n"));
}

/// The same for real: each of the first calls is left out of a run, which then fails.
#[test]
fn a_run_without_one_of_the_first_records_or_waits_fails_and_names_two_tasks() {
    let (_, keys) = SCHEDULES[0];
    let job = short(keys);
    let folder = plugin_folder(&job, "late");
    let lines = orderings(keys);
    for line in &lines[..12] {
        let option = format!("drop_{}", line["call"].as_str().expect("a name"));
        let number = line["number"].as_u64().expect("a number");
        let mut run = on_late(&job, &folder, ("early", 0));
        run.keys.push(format!("backend.late.{option}={number}"));
        let error = try_run(&run, &format!("{option}-{number}")).expect_err("a race");
        let error = lately::with_sources(&error);
        assert!(error.contains("race: "), "{option} {number}: {error}");
        assert!(error.contains("no event orders them"), "{error}");
    }
}
