//! Comparisons whose arms train on several ranks, or beside weights that move: the numbers of one
//! rank, and the runs of `host train`.

mod comparing;
use espalier_torture::training;

use std::fs;
use std::process::Command;

use comparing::{ARMS, FOLDERS, SEEDS, base_of, compare, json, run_of, succeed};
use serde_json::Value as Json;
use training::{Training, last_line, refused, trained};

/// In f64, so that other orders of sums are told from other numbers.
const BASE: &str = "--set adapter.lora.dropout=0.1 --set model.compute=f64";

/// Ways to train an arm on ranks, or beside weights that move.
const WAYS: [&str; 4] = [
    "--plugins lora,ddp --ranks 2",
    "--plugins lora,fsdp --ranks 3",
    "--plugins lora,fsdp --ranks 2 --set sharding.fsdp.offload=params+optimizer",
    "--plugins lora,fsdp --set sharding.fsdp.offload=params",
];

/// Expects numbers that differ by the rounding of sums in f64 alone, and all else alike.
fn assert_close(found: &Json, expected: &Json, case: &str) {
    match (found, expected) {
        (Json::Object(found), Json::Object(expected)) => {
            let names = |of: &serde_json::Map<String, Json>| -> Vec<String> {
                of.keys().cloned().collect()
            };
            assert_eq!(names(found), names(expected), "{case}");
            for (key, found) in found {
                assert_close(found, &expected[key], &format!("{case}: {key}"));
            }
        }
        (Json::Array(found), Json::Array(expected)) => {
            assert_eq!(found.len(), expected.len(), "{case}");
            for (found, expected) in found.iter().zip(expected) {
                assert_close(found, expected, case);
            }
        }
        (Json::Number(one), Json::Number(other)) => {
            let [one, other] = [one, other].map(|number| number.as_f64().expect("a number"));
            let apart = (one - other).abs() / other.abs().max(1e-3);
            assert!(apart <= 1e-11, "{case}: {one} instead of {other}");
        }
        _ => assert_eq!(found, expected, "{case}"),
    }
}

#[test]
fn arms_on_ranks_have_the_numbers_of_one_rank_and_the_bits_of_train() {
    let training = Training::new(BASE);
    succeed(&training, "alone", &format!("--plugins lora {ARMS}"));
    for (index, way) in WAYS.iter().enumerate() {
        let out = format!("ranks-{index}");
        let schedule = ["interleaved", "sequential"][index % 2];
        let record = succeed(
            &training,
            &out,
            &format!("{way} {ARMS} --schedule {schedule}"),
        );
        assert_eq!(record["schedule"], schedule);
        for (arm, folder) in record["arms"].as_array().expect("arms").iter().zip(FOLDERS) {
            let case = format!("{way}: {folder}");
            assert_eq!(arm["failures"], serde_json::json!([]), "{case}");
            let [found, expected] = [&out, "alone"].map(|out| base_of(&training, out, folder));
            assert_close(&found, &expected, &case);
            for seed in SEEDS {
                let [found, expected] =
                    [&out, "alone"].map(|out| run_of(&training, out, folder, seed));
                found.0.assert_close(&expected.0, &case);
            }
        }
        // The last arm takes its packed weights under the second seed from those of the first.
        let arm = &record["arms"][2];
        let command = arm["command"].as_str().expect("a command");
        let host = command.strip_prefix("host ").expect("the program");
        let line = format!(
            "{} {host} --quiet --set run.seed={} --out train-{index}",
            env!("CARGO_BIN_EXE_host"),
            SEEDS[1]
        );
        let mut shell = Command::new("sh");
        let done = shell
            .args(["-c", &line])
            .current_dir(training.folder.path());
        let done = done.output().expect("a shell");
        assert!(done.status.success(), "{line}: {}", last_line(&done));
        let expected = trained(&training.path(&format!("train-{index}")));
        let (found, _) = run_of(&training, &out, FOLDERS[2], SEEDS[1]);
        assert!(found == expected, "{way}: other bits than {line}");
    }
}

#[test]
fn bases_alone_are_measured_on_ranks_and_the_report_counts_them() {
    let training = Training::new(BASE);
    let way = WAYS[1];
    succeed(&training, "out", &format!("{way} {ARMS} --eval-only"));
    succeed(&training, "whole", &format!("{way} {ARMS}"));
    for arm in FOLDERS {
        let [found, expected] = ["out", "whole"].map(|out| base_of(&training, out, arm));
        assert_close(&found, &expected, arm);
    }
    let report = json(&training.path("whole/report.json"));
    let arm = &report["arms"][1];
    assert_eq!(arm["memory"]["world"]["ranks_per_process"], 3, "{arm}");
    assert!(
        arm["memory"]["observed_peak_bytes"]
            .as_u64()
            .is_some_and(|bytes| bytes > 0)
    );
    assert!(arm["after"]["loss"].is_f64(), "{arm}");
}

#[test]
fn a_failed_arm_on_ranks_does_not_end_the_others() {
    let training = Training::new(BASE);
    let config = "[[arms]]\nname = \"wild\"\nplugins = [\"int8\"]\noptim.learning_rate = 1e300\n\
                  optim.clip_norm = 0.0\n";
    fs::write(training.path("arms.toml"), config).expect("written");
    let way = WAYS[1];
    let output = compare(
        &training,
        "out",
        &format!("{way} --config arms.toml --arms nf4 --seeds 1"),
    );
    refused(
        &output,
        9,
        "1 of 3 runs failed | arm `wild` | not finite",
        way,
    );
    succeed(&training, "whole", &format!("{way} --arms nf4 --seeds 1"));
    for arm in ["dense", "nf4"] {
        let [found, expected] = ["out", "whole"].map(|out| run_of(&training, out, arm, 42));
        assert!(found == expected, "{arm}");
    }
}

/// The ranks of one arm end by themselves, and the process goes on with the others.
#[test]
fn a_plugin_that_fails_on_ranks_ends_its_arm_alone() {
    let training = Training::new(BASE);
    let folder = training.path("plugins");
    fs::create_dir(&folder).expect("a folder");
    let library = espalier_samples::library("faulty-run");
    fs::copy(library, folder.join("libfaulty_run.so")).expect("a copy");
    let way = WAYS[1];
    succeed(&training, "whole", &format!("{way} --arms nf4 --seeds 1"));
    for fault in ["encode:error", "encode:panic"] {
        let out = fault.replace(':', "-");
        let arms = "--arms faulty-quantizer,nf4 --seeds 1 --plugin-dir plugins";
        let mut command = training.command_of("compare", &out, &format!("{way} {arms}"));
        command.env("FAULTY_RUN", fault).env("RUST_BACKTRACE", "0");
        let output = command.output().expect("the host starts");
        assert_eq!(
            output.status.code(),
            Some(9),
            "{fault}: {}",
            last_line(&output)
        );
        let line = last_line(&output);
        assert!(line.contains("arm `faulty-quantizer`"), "{fault}: {line}");
        for arm in ["dense", "nf4"] {
            let [found, expected] = [&out, "whole"].map(|out| run_of(&training, out, arm, 42));
            assert!(found == expected, "{fault}: {arm}");
        }
    }
}

/// The collective of devices stands beside the one of threads, and has options like any component.
#[test]
fn options_of_an_arm_that_joins_devices_are_kept() {
    let training = Training::new("--plugins lora");
    let output = compare(
        &training,
        "out",
        "--arms nccl:cache_dir=kept --no-dense --dry-run",
    );
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", last_line(&output));
    assert!(
        printed.contains("collective.nccl.cache_dir = "),
        "{printed}"
    );
}
