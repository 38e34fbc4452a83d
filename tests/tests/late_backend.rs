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

/// What happens today to a run on `late`, in the orders `late` and `early`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Today {
    /// It equals the run on `cpu`.
    Equal,
    /// It ends with an error that has these words.
    Fails(&'static str),
}

/// A run by the keys that differ from the usual ones.
struct Case {
    keys: &'static [&'static str],
    today: Today,
}

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

/// The loader frees memory of the host's that queued copies still use.
const FREED: Today = Today::Fails("was freed while");

/// Runs with copies between host and device, and runs of several ranks. They need waits between
/// streams; where the core records its events, each is [`Today::Equal`] in all five orders.
fn moving() -> Vec<Case> {
    let case = |keys, today| Case { keys, today };
    vec![
        case(&["plugins=\"nf4,lora,ddp\""], Today::Equal),
        case(
            &[
                "plugins=\"nf4,lora,fsdp\"",
                "sharding.fsdp.offload=\"params\"",
                "sharding.fsdp.prefetch=0",
            ],
            FREED,
        ),
        case(
            &[
                "plugins=\"nf4,lora,fsdp\"",
                "sharding.fsdp.offload=\"params\"",
                "sharding.fsdp.prefetch=1",
            ],
            FREED,
        ),
        case(
            &[
                "plugins=\"nf4,lora,fsdp\"",
                "sharding.fsdp.offload=\"params\"",
                "sharding.fsdp.prefetch=2",
            ],
            FREED,
        ),
        case(
            &[
                "plugins=\"nf4,lora,fsdp\"",
                "sharding.fsdp.offload=\"params\"",
                "sharding.fsdp.offload_activations=true",
            ],
            FREED,
        ),
        case(
            &[
                "plugins=\"nf4,lora,fsdp\"",
                "sharding.fsdp.offload=\"params+optimizer\"",
            ],
            FREED,
        ),
        case(&["plugins=\"nf4,lora,fsdp\"", "run.ranks=2"], FREED),
        case(&["plugins=\"nf4,lora,ddp\"", "run.ranks=2"], FREED),
    ]
}

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

#[test]
fn resident_runs_equal_cpu_in_every_order() {
    for keys in RESIDENT {
        let job = Job::new(keys);
        let folder = plugin_folder(&job, "late");
        let expected = job.run("cpu", &[]);
        for order in ORDERS {
            let out = named("late", order);
            let found = on_late(&job, &folder, order).run(&out, &[]);
            found.same_training(&expected, &format!("{keys:?} {order:?}"));
        }
    }
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

/// A run that lacks a wait ends with an error. None ends with other numbers.
#[test]
fn runs_that_move_bytes_equal_cpu_or_end_with_an_error() {
    for Case { keys, today } in moving() {
        let job = Job::new(keys);
        let folder = plugin_folder(&job, "late");
        let expected = job.run("cpu", &[]);
        for order in [("late", 0), ("early", 0)] {
            let found = try_run(&on_late(&job, &folder, order), &named("late", order));
            match (found, today) {
                (Ok(found), Today::Equal) => {
                    found.same_training(&expected, &format!("{keys:?} {order:?}"));
                }
                (Err(error), Today::Fails(words)) => {
                    let text = with_sources(&error);
                    assert!(text.contains(words), "{keys:?} {order:?}: {text}");
                }
                (Ok(_), Today::Fails(words)) => {
                    panic!("{keys:?} {order:?} ends well, expected an error with `{words}`")
                }
                (Err(error), Today::Equal) => panic!("{keys:?} {order:?}: {error}"),
            }
        }
    }
}
