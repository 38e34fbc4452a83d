//! The collective `nccl` over the mock libraries: the kit, trainings with the bits of `threads`,
//! and what a run says where it cannot join its ranks or loses one.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use espalier_tests_gpu::nccl::{self, BY_KEY, JOINED};
use espalier_tests_gpu::{ALL_TRAININGS, ORDERS, kernels, libraries};
use espalier_torture::training::{Training, messages, refused, trained};
use serde_json::Value as Json;

/// Where the mock libraries and the kernels are kept.
fn folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// Without [`ALL_TRAININGS`] in one order.
#[test]
fn the_kit_of_a_collective_passes_in_every_order() {
    let is_all = std::env::var_os(ALL_TRAININGS).is_some();
    for order in &ORDERS[..if is_all { ORDERS.len() } else { 1 }] {
        let output = Command::new(env!("CARGO_BIN_EXE_check_collective"))
            .arg(libraries(folder()))
            .arg(kernels(folder()))
            .env("MOCK_CUDA_DEVICES", "5")
            .env("MOCK_CUDA_ORDER", order)
            .output()
            .expect("the program starts");
        let said = String::from_utf8_lossy(&output.stdout);
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{order}: {said} {words}");
        assert_eq!(said, "passed", "{order}: {words}");
    }
}

/// The first training names the collective among its plugins. Without [`ALL_TRAININGS`] the first
/// two, each in one order.
#[test]
fn trainings_have_the_bits_of_threads_in_every_order() {
    let is_all = std::env::var_os(ALL_TRAININGS).is_some();
    for (index, case) in JOINED.iter().enumerate().take(if is_all { 7 } else { 2 }) {
        let training = case.training("--set run.max_steps=2");
        let threads = case.on_cuda(&training, folder(), ORDERS[0]);
        let mut options = nccl::options(libraries(folder()), folder());
        let mut joined = *case;
        if index == 0 {
            joined.words = format!("{},nccl", case.words).leak();
        } else {
            options = format!("{BY_KEY} {options}");
        }
        let orders = if is_all {
            &ORDERS[..]
        } else {
            &ORDERS[index..=index]
        };
        for order in orders {
            let out = format!("nccl-{order}");
            let found = joined.succeed(&training, folder(), order, [&out, &options]);
            assert_eq!(found, threads, "{}: {order}", case.name);
        }
    }
}

/// Runs a training whose ranks NCCL joins, with variables of the environment.
fn run(training: &Training, (out, more): (&str, &str), set: &[(&str, &str)]) -> Output {
    let more = format!(
        "{BY_KEY} {} {more}",
        nccl::options(libraries(folder()), folder())
    );
    let mut host = training.command(out, &more);
    let host = JOINED[0].mocked(&mut host, folder(), ORDERS[0]);
    host.envs(set.iter().copied())
        .output()
        .expect("the host starts")
}

/// A short training of two ranks, which must end with `code` and `words` in time.
fn refuse(more: &str, set: &[(&str, &str)], code: i32, words: &str) {
    let training = JOINED[0].training("--set run.max_steps=1");
    let begun = Instant::now();
    let output = run(&training, ("out", more), set);
    refused(&output, code, words, &format!("{more} {set:?}"));
    // Most of it is the model of a card, which compiles its kernels.
    assert!(begun.elapsed() < Duration::from_secs(120), "{more} {set:?}");
}

#[test]
fn ranks_that_nccl_does_not_join_are_told_what_to_do() {
    let old = "NCCL cannot be used | it is version 2.17, expected 2.18 or later | pip install";
    refuse("", &[("MOCK_NCCL_VERSION", "21705")], 5, old);
    let one = r#"--set run.devices=["cuda:0","cuda:0"]"#;
    let twice =
        "Duplicate GPU detected | NCCL takes one rank a card | leave run.device_collective out";
    refuse(one, &[], 5, twice);
    let late = "not all members joined within 2 s";
    let absent = [("MOCK_NCCL_ABSENT", "1")];
    refuse("--set run.join_timeout_secs=2", &absent, 5, late);
}

#[test]
fn a_machine_without_nccl_is_told_what_to_install() {
    let training = JOINED[0].training("--set run.max_steps=1");
    let made = training.path("libraries");
    fs::create_dir_all(&made).expect("a folder");
    for library in ["libcuda.so.1", "libnvrtc.so.13"] {
        fs::copy(libraries(folder()).join(library), made.join(library)).expect("copied");
    }
    let mut host = training.command(
        "out",
        &format!("{BY_KEY} {}", nccl::options(&made, folder())),
    );
    let host = JOINED[0].mocked(&mut host, folder(), ORDERS[0]);
    let output = host.output().expect("the host starts");
    let words = "NCCL cannot be used | has no libnccl.so.2 | pip install nvidia-nccl-cu13 | leave run.device_collective out";
    refused(&output, 5, words, "no library");
}

/// A count of a run, from the file that a mock library writes.
fn counted(file: &Path, name: &str) -> u64 {
    let lines = fs::read_to_string(file).expect("counts");
    let counts = lines.lines().map(|line| {
        let line: Json = serde_json::from_str(line).expect("JSON");
        line[name].as_u64().expect("a number")
    });
    counts.max().expect("a line")
}

/// What a run says whose call NCCL fails.
const FAILED_CALL: &str =
    "NCCL: group | remote process exited | MOCK_NCCL_FAIL asks for it | --resume";

/// A run whose calls fail from number `number` on, as variable `name` asks for, must end in time.
fn fail(training: &Training, (name, number): (&str, &str), codes: &[i32], words: &str) {
    let begun = Instant::now();
    let output = run(training, (name, ""), &[(name, number)]);
    let code = output.status.code().unwrap_or(-1);
    assert!(codes.contains(&code), "{name}: {}", messages(&output));
    refused(&output, code, words, name);
    assert!(begun.elapsed() < Duration::from_secs(120), "{name}");
}

/// Without [`ALL_TRAININGS`] NCCL's error alone, before a checkpoint.
#[test]
fn an_error_that_nccl_finds_and_a_card_that_fails_end_all_ranks() {
    let training = JOINED[0].training("--set run.save_every=1 --set run.max_steps=2");
    if std::env::var_os(ALL_TRAININGS).is_none() {
        fail(&training, ("MOCK_NCCL_FAIL", "12"), &[6], FAILED_CALL);
        return;
    }
    let [of_nccl, of_cuda] = ["nccl", "cuda"].map(|name| training.path(name));
    let set = [("MOCK_NCCL_CALLS", &of_nccl), ("MOCK_CUDA_CALLS", &of_cuda)];
    let set = set.map(|(name, file)| (name, file.to_str().expect("a path in UTF-8")));
    let whole = run(&training, ("whole", ""), &set);
    assert_eq!(whole.status.code(), Some(0), "{}", messages(&whole));
    // Every communicator is left in order.
    assert_eq!(counted(&of_nccl, "left"), counted(&of_nccl, "joined"));
    assert_eq!(counted(&of_nccl, "aborted"), 0);
    let late = |file: &Path, name: &str| (counted(file, name) * 3 / 4).to_string();
    // A rank names its card's failure, or the call of ranks that failed for it, whichever comes
    // first.
    let failing: [(&str, String, &[i32], &str); 2] = [
        ("MOCK_NCCL_FAIL", late(&of_nccl, "calls"), &[6], FAILED_CALL),
        (
            "MOCK_CUDA_FAIL",
            late(&of_cuda, "launches"),
            &[5, 6],
            "failed | --resume",
        ),
    ];
    for (name, number, codes, words) in failing {
        fail(&training, (name, &number), codes, words);
        let resumed = run(&training, (name, "--resume"), &[]);
        assert_eq!(resumed.status.code(), Some(0), "{}", messages(&resumed));
        let [found, expected] = [name, "whole"].map(|out| trained(&training.path(out)));
        assert_eq!(found.files, expected.files, "{name}");
    }
}
