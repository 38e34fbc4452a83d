//! A job on the backend `late`, whose streams are queues and whose memory the host cannot touch.
#![allow(dead_code)] // Each test takes what it needs.

use std::path::Path;

use espalier_trainer::error::Error;
use espalier_trainer::train;

use crate::swapping::{Job, plugin_folder};

/// Orders of the tasks, and seeds of `mixed`.
pub const ORDERS: [(&str, u64); 5] = [
    ("late", 0),
    ("early", 0),
    ("mixed", 1),
    ("mixed", 2),
    ("mixed", 3),
];

/// The same job on `late`, with its library in `folder`. Kernels may not work on host memory.
pub fn on_late(job: &Job, folder: &Path, (order, seed): (&str, u64)) -> Job {
    let more = [
        "run.backend=\"late\"".to_owned(),
        format!("run.plugin_dirs=[{folder:?}]"),
        format!("backend.late.order=\"{order}\""),
        format!("backend.late.seed={seed}"),
        "backend.late.host_operands=\"refuse\"".to_owned(),
    ];
    let keys = job.keys.iter().cloned().chain(more).collect();
    Job::there(job.folder.clone(), keys)
}

/// Copies the library of another sample plugin to `folder`.
pub fn add_library(folder: &Path, package: &str) {
    let library = espalier_samples::library(package);
    let name = library.file_name().expect("a file");
    std::fs::copy(&library, folder.join(name)).expect("copied");
}

/// Name of a run's directory.
pub fn named(what: &str, (order, seed): (&str, u64)) -> String {
    format!("{what}-{order}-{seed}")
}

/// Trains, or says why not.
pub fn try_run(job: &Job, out: &str) -> Result<(), Error> {
    let asking = job.asking(out, &[]);
    train::run(&job.config(out), &asking, &asking.stop).map(drop)
}

/// An error and all its sources.
pub fn with_sources(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", with_sources(source)),
        None => error.to_string(),
    }
}

/// Runs a job on `cpu`, and on `late` in every order.
///
/// # Panics
/// If any bit differs.
pub fn equals_cpu(keys: &[&str]) {
    equals_cpu_with(keys, "late", &[]);
}

/// As [`equals_cpu`], with more keys on `late` and the library `package` beside it.
pub fn equals_cpu_with(keys: &[&str], package: &str, more: &[&str]) {
    let job = Job::new(keys);
    let folder = plugin_folder(&job, "late");
    add_library(&folder, package);
    let expected = job.run("cpu", &[]);
    for order in ORDERS {
        let out = named("late", order);
        let mut run = on_late(&job, &folder, order);
        run.keys.extend(more.iter().map(|key| (*key).to_owned()));
        let found = run.run(&out, &[]);
        found.same_training(&expected, &format!("{keys:?} {more:?} {order:?}"));
    }
}
