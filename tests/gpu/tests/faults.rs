//! What a run says where a driver, a library, a card or its memory fails: over the mock libraries.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use espalier_tests_gpu::{CASES, Case, libraries};
use espalier_torture::training::{Training, messages, names, refused, trained};
use serde_json::Value as Json;

/// Where the mock libraries and the kernels are kept.
fn folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// A run with offload of weights and of the optimizer's state, whose memory the driver pins.
const OFFLOAD: &str = "--plugins nf4,lora,fsdp --set sharding.fsdp.offload=params+optimizer";

/// Bytes of the card: enough for the run. Products that are timed take as much as there is.
const CARD_BYTES: &str = "3000000";

fn training(more: &str) -> Training {
    CASES[0].training(&format!("--set run.save_every=1 {more}"))
}

/// Runs a training with the libraries in `libraries`, with variables of the environment.
fn run(
    training: &Training,
    libraries: &Path,
    (out, more): (&str, &str),
    set: &[(&str, &str)],
) -> Output {
    let cache = folder().join("mock-cuda-kernels");
    let mut host = training.command(
        out,
        &format!(
            "--backend cuda --set backend.cuda.libraries={} --set backend.cuda.cache_dir={} {more}",
            libraries.display(),
            cache.display()
        ),
    );
    host.env("MOCK_CUDA_MEMORY", CARD_BYTES)
        .envs(set.iter().copied());
    host.output().expect("the host starts")
}

/// Runs a short training with the mock libraries, which must end with `code` and `words`.
fn refuse(set: &[(&str, &str)], code: i32, words: &str) {
    let training = training("--set run.max_steps=1");
    let output = run(&training, libraries(folder()), ("out", ""), set);
    refused(&output, code, words, &format!("{set:?}"));
}

/// A folder below that of `training` with mock libraries: each one's file and its name there.
fn with_libraries(training: &Training, files: &[[&str; 2]]) -> PathBuf {
    let made = training.path("libraries");
    fs::create_dir_all(&made).expect("a folder");
    for [file, name] in files {
        let from = libraries(folder()).join(file);
        fs::copy(from, made.join(name)).expect("copied");
    }
    made
}

#[test]
fn drivers_and_cards_that_do_not_serve_are_refused_with_what_to_do() {
    let old = "serves CUDA 11.4, expected 12.0 or later | update the driver | install what";
    refuse(&[("MOCK_CUDA_VERSION", "11040")], 5, old);
    let none = "expected a card of NVIDIA, found none | nvidia-smi";
    refuse(&[("MOCK_CUDA_DEVICES", "0")], 5, none);
    let early = "compute capability 7.5, expected 8.0 or later";
    refuse(&[("MOCK_CUDA_CARD", "7.5")], 5, early);
    let training = training("--set run.max_steps=1");
    let named = ("out", r#"--set run.devices=["cuda:3"]"#);
    let output = run(&training, libraries(folder()), named, &[]);
    let words = "no device `cuda:3` | it has cuda:0 | host doctor";
    refused(&output, 2, words, "a device that is not there");
}

#[test]
fn libraries_of_other_versions_are_refused_by_name() {
    let training = training("--set run.max_steps=1");
    let driver = ["libcuda.so.1", "libcuda.so.1"];
    // No driver at all, by its name.
    let at = with_libraries(&training, &[["libnvrtc.so.13", "libcuda.so.1"]]);
    let output = run(&training, &at, ("out", ""), &[]);
    let words = "the driver of NVIDIA cannot be used | it lacks `cuInit`";
    refused(
        &output,
        5,
        words,
        "a library without the driver's functions",
    );
    // A compiler that is newer than the driver, by its name and without one. Its kernels are on
    // disk, but for a card that no other test has.
    let set = [("MOCK_CUDA_VERSION", "12040"), ("MOCK_CUDA_CARD", "8.7")];
    for (name, why) in [
        ("libnvrtc.so.13", "has no libnvrtc.so.12 or libnvrtc.so"),
        ("libnvrtc.so", "its version 13.0 needs a driver for CUDA 13"),
    ] {
        fs::remove_dir_all(training.path("libraries")).expect("removed");
        let at = with_libraries(&training, &[driver, ["libnvrtc.so.13", name]]);
        let output = run(&training, &at, ("out", ""), &set);
        let get = "pip install nvidia-cuda-nvrtc-cu12 | the driver serves CUDA 12";
        refused(&output, 5, &format!("{why} | {get}"), name);
    }
    // The functions that kernels need, but not the compiler's.
    fs::remove_dir_all(training.path("libraries")).expect("removed");
    let at = with_libraries(&training, &[driver, ["libcuda.so.1", "libnvrtc.so.13"]]);
    let output = run(&training, &at, ("out", ""), &[("MOCK_CUDA_CARD", "8.7")]);
    refused(&output, 5, "NVRTC | it lacks `nvrtcVersion`", "no compiler");
}

#[test]
fn memory_that_the_card_does_not_give_is_named_with_what_to_lower() {
    let lower = "lower data.max_seq_len or data.micro_batch";
    let planned = format!("not enough cuda:0 memory | {lower}");
    refuse(&[("MOCK_CUDA_MEMORY", "200000")], 8, &planned);
    // Free as the driver says, and then not given.
    let given = format!("bytes | memory of the card | CUDA_ERROR_OUT_OF_MEMORY | {lower}");
    refuse(&[("MOCK_CUDA_LARGEST", "100000")], 8, &given);
}

/// The launches that the mock driver counted.
fn launches(calls: &Path) -> u64 {
    let counted = fs::read_to_string(calls).expect("counts");
    let counts = counted.lines().map(|line| {
        let line: Json = serde_json::from_str(line).expect("JSON");
        line["launches"].as_u64().expect("a number")
    });
    counts.max().expect("a line")
}

#[test]
fn a_kernel_that_fails_is_named_and_the_run_resumes_from_its_last_checkpoint() {
    let training = training("");
    let mock = libraries(folder());
    let calls = training.path("calls");
    let counted = [("MOCK_CUDA_CALLS", calls.to_str().expect("a path in UTF-8"))];
    let whole = run(&training, mock, ("whole", ""), &counted);
    assert_eq!(whole.status.code(), Some(0), "{}", messages(&whole));
    // In a step behind checkpoints.
    let failing = (launches(&calls) * 3 / 4).to_string();
    let output = run(
        &training,
        mock,
        ("out", ""),
        &[("MOCK_CUDA_FAIL", &failing)],
    );
    let words = "CUDA_ERROR_LAUNCH_FAILED | behind launches of ` | --resume";
    refused(&output, 5, words, "a kernel that fails");
    let kept = names(&training.path("out/checkpoints"));
    assert!(
        kept.iter().any(|name| name.starts_with("step-")),
        "{kept:?}"
    );
    let resumed = run(&training, mock, ("out", "--resume"), &[]);
    assert_eq!(resumed.status.code(), Some(0), "{}", messages(&resumed));
    let [found, expected] = ["out", "whole"].map(|out| trained(&training.path(out)));
    assert_eq!(found.files, expected.files);
}

#[test]
fn memory_that_the_system_does_not_pin_is_used_with_a_warning() {
    let case = Case {
        words: OFFLOAD,
        ..CASES[0]
    };
    let training = case.training("--set run.max_steps=2");
    let mock = libraries(folder());
    let refusing = [("MOCK_CUDA_PINNED", "8000")];
    for (out, set) in [("pinned", &[][..]), ("pageable", &refusing[..])] {
        let output = run(&training, mock, (out, ""), set);
        let said = messages(&output);
        assert_eq!(output.status.code(), Some(0), "{said}");
        let warnings = said.lines().filter(|line| line.contains("not pinned"));
        assert_eq!(warnings.count(), 2 * usize::from(!set.is_empty()), "{said}");
    }
    let [found, expected] = ["pageable", "pinned"].map(|out| trained(&training.path(out)));
    assert_eq!(found, expected);
}

#[test]
fn the_path_of_the_oldest_card_serves_a_newer_one() {
    let training = training("--set run.max_steps=1");
    let mock = libraries(folder());
    let output = run(&training, mock, ("own", ""), &[]);
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    let cache = training.path("kernels");
    let more = format!(
        "--set backend.cuda.arch_path=sm_80 --set backend.cuda.cache_dir={}",
        cache.display()
    );
    let newer = [("MOCK_CUDA_CARD", "9.0")];
    let output = run(&training, mock, ("oldest", &more), &newer);
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    let kept = names(&cache);
    let is_text = |name: &String| name.contains("-compute_80-") && name.ends_with(".ptx");
    assert!(kept.len() > 5 && kept.iter().all(is_text), "{kept:?}");
    let [found, expected] = ["oldest", "own"].map(|out| trained(&training.path(out)));
    assert_eq!(found, expected);
    // A driver reads such texts of its own version and older.
    let more = format!("{more}-newer");
    let set = [newer[0], ("MOCK_NVRTC_VERSION", "13.2")];
    let output = run(&training, mock, ("newer", &more), &set);
    let words = "its compiler is newer than the driver | arch_path = \"auto\"";
    refused(&output, 5, words, "a newer compiler");
    let other = ("other", "--set backend.cuda.arch_path=sm_75");
    let output = run(&training, mock, other, &[]);
    refused(&output, 2, "auto | sm_80", "a path that is not there");
}

/// The host's command `doctor` says of a card what it is and what is missing.
#[test]
fn doctor_says_what_a_card_is_and_what_is_missing() {
    let training = training("");
    let at = with_libraries(&training, &[["libcuda.so.1", "libcuda.so.1"]]);
    for (libraries, words) in [
        (libraries(folder()), ["NVRTC 13.0", "sm_80"]),
        (&*at, ["without NVRTC", "pip install nvidia-cuda-nvrtc"]),
    ] {
        let mut host = std::process::Command::new(espalier_torture::built::program());
        host.arg("doctor")
            .env("XDG_DATA_HOME", training.path("data"));
        let set = [
            ("libraries", libraries.to_owned()),
            ("cache_dir", training.path(words[0])),
        ];
        for (key, path) in set {
            host.arg("--set")
                .arg(format!("backend.cuda.{key}={}", path.display()));
        }
        let output = host.output().expect("the host starts");
        assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
        let printed = String::from_utf8_lossy(&output.stdout);
        let of_card = [
            "cuda:0 (backend cuda)",
            "without a card",
            "capability 8.0",
            "CUDA 13.0",
        ];
        for word in of_card.iter().chain(&words) {
            assert!(printed.contains(word), "no {word:?} in {printed}");
        }
    }
}
