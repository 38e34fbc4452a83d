//! The memory that a comparison reports for an arm equals that of `host train` alone.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value as Json;

/// Largest relative deviation of an arm.
const MOST: f64 = 0.05;

fn host(line: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let line = format!("{} {line} --quiet", env!("CARGO_BIN_EXE_host"));
    let mut shell = Command::new("sh");
    let done = shell.args(["-c", &line]).current_dir(root).output();
    let done = done.expect("a shell");
    let words = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{line}: {words}");
}

/// The peak memory in a run's metrics.
fn peak(run: &Path) -> f64 {
    let metrics = fs::read_to_string(run.join("metrics.jsonl")).expect("metrics");
    let lines = metrics
        .lines()
        .map(|line| serde_json::from_str::<Json>(line).expect("JSON"));
    let peaks = lines.filter_map(|line| line["peak_host_bytes"].as_u64());
    peaks.max().expect("steps") as f64
}

#[test]
fn an_arms_peak_equals_that_of_training_alone_under_both_schedules() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    // 3.5 million parameters, and logits and activations of some hundred tokens.
    let run = "--config configs/compare.toml --set data.eval_files=[] --set data.eval_split=4 \
               --set run.max_steps=2 --set arms=[]";
    for schedule in ["interleaved", "sequential"] {
        let out = path(schedule).display().to_string();
        host(&format!(
            "compare {run} --arms nf4,int8 --seeds 1 --schedule {schedule} --out {out}"
        ));
    }
    let record = fs::read(path("interleaved/compare.json")).expect("a record");
    let record: Json = serde_json::from_slice(&record).expect("JSON");
    for arm in record["arms"].as_array().expect("arms") {
        let name = arm["name"].as_str().expect("a name");
        let command = arm["command"].as_str().expect("a command");
        let command = command.strip_prefix("host ").expect("the program");
        let alone = path(name);
        host(&format!(
            "{command} --set run.seed=42 --out {}",
            alone.display()
        ));
        for schedule in ["interleaved", "sequential"] {
            let run = path(schedule).join(format!("arms/{name}/seed-42"));
            let ratio = peak(&run) / peak(&alone);
            assert!((ratio - 1.0).abs() < MOST, "{name}, {schedule}: {ratio:.3}");
        }
    }
}
