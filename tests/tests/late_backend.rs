//! Runs on the backend `late`, whose streams are queues and whose memory the host cannot touch:
//! every order of its tasks gives the bits of `cpu`.

mod swapping;

use std::path::Path;

use espalier_trainer::error::Error;
use espalier_trainer::swap::{Staging, SwapRequest};
use espalier_trainer::train;

use swapping::{Job, Outcomes, ask, plugin_folder};

/// Orders of the tasks, and seeds of `mixed`.
const ORDERS: [(&str, u64); 5] = [
    ("late", 0),
    ("early", 0),
    ("mixed", 1),
    ("mixed", 2),
    ("mixed", 3),
];

/// Runs whose work lies on the compute stream alone.
const RESIDENT: [&[&str]; 4] = [
    &["plugins=\"nf4,lora\""],
    &["plugins=\"hqq,lora\"", "model.recompute=\"selective\""],
    &[
        "plugins=\"lora\"",
        "model.params=\"bf16\"",
        "model.compute=\"bf16\"",
    ],
    &["plugins=\"nf4,lora,fsdp\""],
];

/// Runs with copies between host and device on streams of their own.
const MOVING: [&[&str]; 6] = [
    &["plugins=\"nf4,lora,ddp\""],
    &[
        "plugins=\"nf4,lora,fsdp\"",
        "sharding.fsdp.offload=\"params\"",
        "sharding.fsdp.prefetch=0",
    ],
    &[
        "plugins=\"nf4,lora,fsdp\"",
        "sharding.fsdp.offload=\"params\"",
        "sharding.fsdp.prefetch=1",
    ],
    &[
        "plugins=\"nf4,lora,fsdp\"",
        "sharding.fsdp.offload=\"params\"",
        "sharding.fsdp.prefetch=2",
    ],
    &[
        "plugins=\"nf4,lora,fsdp\"",
        "sharding.fsdp.offload=\"params\"",
        "sharding.fsdp.offload_activations=true",
    ],
    &[
        "plugins=\"nf4,lora,fsdp\"",
        "sharding.fsdp.offload=\"params+optimizer\"",
    ],
];

/// Runs whose ranks reduce by calls of the host.
const OF_RANKS: [&[&str]; 2] = [
    &["plugins=\"nf4,lora,fsdp\"", "run.ranks=2"],
    &["plugins=\"nf4,lora,ddp\"", "run.ranks=2"],
];

/// The same job on `late`, with its library in `folder`.
fn on_late(job: &Job, folder: &Path, (order, seed): (&str, u64)) -> Job {
    let more = [
        "run.backend=\"late\"".to_owned(),
        format!("run.plugin_dirs=[{folder:?}]"),
        format!("backend.late.order=\"{order}\""),
        format!("backend.late.seed={seed}"),
    ];
    let keys = job.keys.iter().cloned().chain(more).collect();
    Job::there(job.folder.clone(), keys)
}

/// Name of a run's directory.
fn named(what: &str, (order, seed): (&str, u64)) -> String {
    format!("{what}-{order}-{seed}")
}

/// Trains, or says why not.
fn try_run(job: &Job, out: &str) -> Result<Outcomes, Error> {
    let asking = job.asking(out, &[]);
    train::run(&job.config(out), &asking, &asking.stop)?;
    Ok(job.outcomes(out, 0))
}

/// An error and all its sources.
fn with_sources(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", with_sources(source)),
        None => error.to_string(),
    }
}

/// Runs a job on `cpu`, and on `late` in every order.
///
/// # Panics
/// If any bit differs.
fn equals_cpu(keys: &[&str]) {
    let job = Job::new(keys);
    let folder = plugin_folder(&job, "late");
    let expected = job.run("cpu", &[]);
    for order in ORDERS {
        let out = named("late", order);
        let found = on_late(&job, &folder, order).run(&out, &[]);
        found.same_training(&expected, &format!("{keys:?} {order:?}"));
    }
}

#[test]
fn resident_runs_equal_cpu_in_every_order() {
    RESIDENT.iter().copied().for_each(equals_cpu);
}

#[test]
fn a_run_that_is_resumed_or_swaps_its_quantizer_equals_cpu_in_every_order() {
    let job = Job::new(RESIDENT[0]);
    let folder = plugin_folder(&job, "late");
    let requests = [
        ask("quantizer=nf4", 3, &["quantizer.nf4.block_size=32"]),
        SwapRequest {
            staging: Staging::Mapped,
            ..ask("quantizer=nf4", 6, &["quantizer.nf4.block_size=64"])
        },
    ];
    let expected = job.run("cpu", &[]);
    let swapped = job.run("cpu-swapped", &requests);
    assert_ne!(expected.losses(), swapped.losses());
    for order in ORDERS {
        let job = on_late(&job, &folder, order);
        let (out, resumed) = (named("late", order), named("resumed", order));
        job.run(&out, &[]);
        job.unfinished(&out, &resumed);
        let found = job.resume(&resumed, 4).expect("a checkpoint");
        found.same_training(&expected, &format!("resumed, {order:?}"));
        let found = job.run(&named("swapped", order), &requests);
        assert_eq!(Job::swaps(&found), 2, "{order:?}");
        found.same_training(&swapped, &format!("swapped, {order:?}"));
    }
}

#[test]
fn runs_that_move_bytes_equal_cpu_in_every_order() {
    MOVING.iter().copied().for_each(equals_cpu);
}

/// Collectives work on memory that the host reaches.
#[test]
fn ranks_that_reduce_by_calls_of_the_host_are_refused() {
    for keys in OF_RANKS {
        let job = Job::new(keys);
        let folder = plugin_folder(&job, "late");
        let found = try_run(&on_late(&job, &folder, ORDERS[0]), "refused");
        let error = with_sources(&found.map(|_| ()).expect_err("it is refused"));
        assert!(
            error.contains("a device whose memory the host does not reach"),
            "{error}"
        );
    }
}
