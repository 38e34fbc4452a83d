//! Trainings over the mock libraries with third parties' quantizers that no description covers:
//! with device code, or where the processor decodes, they have the losses of backend `cpu`; else
//! they are refused.

use std::fs;
use std::path::Path;

use espalier_samples::{faulty, put};
use espalier_tests_gpu::third_party::folder as sample_folder;
use espalier_tests_gpu::{Case, ORDERS, libraries};
use espalier_torture::training::{Training, last_line, refused};
use tempfile::TempDir;

/// Where the mock libraries and the kernels are kept.
fn folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// The option with which the processor decodes.
const HOST_DECODE: &str = "--set backend.cuda.host_decode=true";

/// Two steps of a training with the quantizer `words` of a folder, on `cuda` as on `cpu`.
fn assert_as_on_cpu(words: &'static str, plugins: &TempDir, more: &str) {
    for (compute, bound) in [("f32", 1e-4), ("bf16", 5e-3)] {
        let case = Case {
            name: words,
            compute,
            words,
            ranks: 1,
            bound,
        };
        let folder_of = plugins.path().display();
        let more = format!("{more} --set run.max_steps=2 --plugin-dir {folder_of}");
        let training = case.training(&more);
        let cpu = case.on_cpu(&training);
        case.assert_near(&case.on_cuda(&training, folder(), ORDERS[0]), &cpu);
    }
}

#[test]
fn device_code_trains_as_the_quantizers_decode() {
    let plugins = sample_folder("decode-only");
    assert_as_on_cpu("--plugins decode-only,lora,single", &plugins, "");
}

#[test]
fn the_processor_decodes_where_the_user_asks_for_it() {
    let plugins = sample_folder("faulty-load");
    assert_as_on_cpu("--plugins faulty,lora,single", &plugins, HOST_DECODE);
}

/// A training on `cuda` with the sample `faulty`, with a fault of its `decode`.
fn with_faulty(plugins: &TempDir, more: &str) -> Training {
    Training::new(&format!(
        "--plugins faulty,lora,single --plugin-dir {} --backend cuda \
         --set backend.cuda.libraries={} {more}",
        plugins.path().display(),
        libraries(folder()).display()
    ))
}

#[test]
fn without_device_code_a_run_is_refused() {
    let plugins = sample_folder("faulty-load");
    let output = with_faulty(&plugins, "").run("out", "");
    let expected =
        "quantizer `faulty` | `device_code` | backend `cuda` | backend `cpu` | host_decode";
    refused(&output, 5, expected, "without device code");
}

#[test]
fn a_failure_of_decode_on_the_processor_names_the_quantizer() {
    let plugins = tempfile::tempdir().expect("a folder");
    put(
        &plugins.path().join("libfaulty_load.so"),
        &faulty("decode:panic"),
    );
    let training = with_faulty(&plugins, HOST_DECODE);
    // Behind the calls that check a packed weight, and those of a step.
    let mut command = training.command("out", "");
    let output = command
        .env("FAULT_CALL", "6000")
        .output()
        .expect("the host starts");
    let line = last_line(&output);
    assert_eq!(output.status.code(), Some(5), "{line}");
    for part in ["plugin `faulty` failed in decode", "a fault by choice"] {
        assert!(line.contains(part), "expected `{part}`, found {line}");
    }
    let steps = fs::read_to_string(training.path("out/metrics.jsonl")).unwrap_or_default();
    assert!(!steps.is_empty(), "{line}: not within a launch");
}
