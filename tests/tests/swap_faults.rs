//! Faulty plugins that are swapped into a run: it continues with the old plugin, to the bits of a
//! run without a request. Faults are set in the environment, so each run is a separate process.

mod swapping;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use espalier_trainer::swap::{Outcome, SwapRequest};
use espalier_trainer::train;
use serde_json::{Value as Json, json};
use swapping::{Job, Outcomes, ask, plugin_folder};

/// The job of a child process of this test, as JSON.
const CHILD: &str = "ESPALIER_SWAP_TEST";

/// Not a test by itself: the run of a process that another test starts.
#[test]
fn child() {
    let Some(text) = env::var_os(CHILD) else {
        return;
    };
    let given: Json = serde_json::from_str(&text.to_string_lossy()).expect("JSON");
    let text = |key: &str| given[key].as_str().expect("a text").to_owned();
    let keys = serde_json::from_value(given["keys"].clone()).expect("texts");
    let job = Job::there(PathBuf::from(text("folder")), keys);
    let request: SwapRequest = serde_json::from_value(given["request"].clone()).expect("a request");
    let asking = job.asking(&text("out"), &[request]);
    train::run(&job.config(&text("out")), &asking, &asking.stop).expect("a run");
}

/// Runs `job` in a process whose plugins have `fault`, with one requested swap.
fn run(job: &Job, out: &str, request: &SwapRequest, fault: &str) -> Outcomes {
    let given = json!({"folder": job.folder, "keys": job.keys, "out": out, "request": request});
    let program = env::current_exe().expect("a test is a file");
    let output = Command::new(&program)
        .args(["--exact", "child", "--nocapture"])
        .env(CHILD, given.to_string())
        .env("FAULTY_RUN", fault)
        .env("FAULTY_RUN_CPU", cpu(&program))
        .env("RUST_BACKTRACE", "0")
        .output()
        .expect("the test starts");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{fault}: {printed}");
    job.outcomes(out, 1)
}

/// The library of the backend `cpu`, which Cargo builds beside its tests.
fn cpu(program: &Path) -> PathBuf {
    let deps = program.parent().expect("target/release/deps");
    let name = "libespalier_backend_cpu.so";
    let mut built = [deps.join(name), deps.with_file_name(name)].into_iter();
    let built = built.find(|path| path.is_file());
    built.unwrap_or_else(|| panic!("{name} is not beside {}", program.display()))
}

/// A request for a component of the faulty library.
fn theirs(job: &Job, assignment: &str, set: &[&str]) -> SwapRequest {
    SwapRequest {
        plugin_dirs: vec![plugin_folder(job, "faulty-run")],
        ..ask(assignment, 4, set)
    }
}

#[test]
fn a_faulty_plugin_leaves_the_run_on_the_old_one_with_the_same_bits() {
    let job = Job::new(&["plugins=\"nf4,lora\""]);
    let plain = job.run("plain", &[]);
    let described = ["quantizer.faulty-quantizer.described=true"];
    let called = theirs(&job, "quantizer=faulty-quantizer", &[]);
    let described = theirs(&job, "quantizer=faulty-quantizer", &described);
    let backend = theirs(&job, "backend=faulty-backend", &[]);
    let sharding = theirs(&job, "sharding=faulty-sharding", &[]);
    let adapter = theirs(&job, "adapter=faulty-adapter", &[]);
    for (request, fault) in [
        (&called, "create:panic"),
        (&called, "format:panic"),
        (&called, "format:bytes"),
        (&called, "format:shape"),
        (&described, "format:short"),
        (&described, "format:absurd"),
        (&called, "encode_workspace:huge"),
        (&called, "encode:panic"),
        (&called, "encode:error"),
        (&described, "encode:nan"),
        (&called, "decode:panic"),
        (&called, "decode:nan"),
        (&called, "decode:silent"),
        (&backend, "devices:error"),
        (&backend, "open:panic"),
        (&backend, "alloc:error"),
        (&backend, "prepare:panic"),
        (&backend, "upload:error"),
        (&backend, "launch:panic"),
        (&sharding, "schedule:panic"),
        (&adapter, "adapt:error"),
    ] {
        let out = fault.replace(':', "-");
        let refused = run(&job, &out, request, fault);
        let record = &refused.answers[0].record;
        let reason = record.reason.clone().unwrap_or_default();
        assert_eq!(record.outcome, Outcome::Refused, "{fault}");
        assert_eq!(refused.answers[0].exit_code, 5, "{fault}: {reason}");
        let (callback, _) = fault.split_once(':').expect("two parts");
        assert!(reason.contains(&request.name), "{fault}: {reason}");
        assert!(reason.contains(callback), "{fault}: {reason}");
        assert_eq!(refused.run["swaps"], json!([]), "{fault}");
        refused.same_training(&plain, fault);
    }
}

#[test]
fn another_backend_can_be_swapped_in_with_the_same_bits() {
    let job = Job::new(&["plugins=\"nf4,lora\""]);
    let plain = job.run("plain", &[]);
    let backend = theirs(&job, "backend=faulty-backend", &[]);
    let swapped = run(&job, "swapped", &backend, "none:none");
    let record = &swapped.answers[0].record;
    assert_eq!(record.outcome, Outcome::Taken, "{record:?}");
    assert!(record.bytes_beside > 0 && record.encoded == 0, "{record:?}");
    swapped.same_training(&plain, "another backend");
}

/// What fails on ranks that were joined for the new plugin ends nothing of the old ones.
#[test]
fn a_faulty_plugin_leaves_all_ranks_on_the_old_one_with_the_same_bits() {
    let job = Job::new(&["plugins=\"nf4,lora,fsdp\"", "run.ranks=2"]);
    let plain = job.run("plain", &[]);
    let called = theirs(&job, "quantizer=faulty-quantizer", &[]);
    let backend = theirs(&job, "backend=faulty-backend", &[]);
    for (request, fault) in [
        (&called, "encode:panic"),
        (&called, "encode:error"),
        (&called, "decode:nan"),
        (&backend, "open:panic"),
        (&backend, "alloc:error"),
        (&backend, "upload:error"),
    ] {
        let out = format!("ranks-{}", fault.replace(':', "-"));
        let refused = run(&job, &out, request, fault);
        let record = &refused.answers[0].record;
        let reason = record.reason.clone().unwrap_or_default();
        assert_eq!(record.outcome, Outcome::Refused, "{fault}");
        let (callback, _) = fault.split_once(':').expect("two parts");
        assert!(reason.contains(callback), "{fault}: {reason}");
        assert_eq!(refused.run["swaps"], json!([]), "{fault}");
        refused.same_training(&plain, fault);
    }
    let swapped = run(&job, "ranks-taken", &backend, "none:none");
    let record = &swapped.answers[0].record;
    assert_eq!(record.outcome, Outcome::Taken, "{record:?}");
    swapped.same_training(&plain, "another backend");
}
