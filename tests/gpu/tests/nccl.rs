//! The collective `nccl` over the mock libraries: the kit, trainings with the bits of `threads`,
//! and what a run says where it cannot join its ranks.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use espalier_tests_gpu::{ALL_TRAININGS, Case, ORDERS, libraries};
use espalier_torture::training::{Training, refused};

/// Where the mock libraries and the kernels are kept.
fn folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// A training of several ranks, of a few steps.
const fn case(
    name: &'static str,
    compute: &'static str,
    words: &'static str,
    ranks: usize,
) -> Case {
    Case {
        name,
        compute,
        words,
        ranks,
        bound: 0.0,
    }
}

const FULL_SHARD: &str = "--plugins nf4,lora,fsdp";
const SHARD_GRAD_OP: &str = "--plugins nf4,lora,fsdp --set sharding.fsdp.strategy=shard_grad_op";
const HYBRID: &str =
    "--plugins nf4,lora,fsdp --set sharding.fsdp.strategy=hybrid --set sharding.fsdp.shard_ranks=2";
const DDP: &str = "--plugins nf4,lora,ddp";
const OFFLOAD: &str = "--plugins nf4,lora,fsdp --set sharding.fsdp.offload=params+optimizer";

/// Those of every run of the tests come first.
const CASES: [Case; 7] = [
    case("full_shard of 2, f32", "f32", FULL_SHARD, 2),
    case("ddp of 4, bf16", "bf16", DDP, 4),
    case("ddp of 2, f32", "f32", DDP, 2),
    case("full_shard of 4, bf16", "bf16", FULL_SHARD, 4),
    case("shard_grad_op of 2, bf16", "bf16", SHARD_GRAD_OP, 2),
    case("hybrid of 4, f32", "f32", HYBRID, 4),
    case("full_shard of 2 with offload, f32", "f32", OFFLOAD, 2),
];

/// The words that join ranks by NCCL of the mock libraries.
fn by_nccl(libraries: &Path) -> String {
    format!(
        "--set run.device_collective=nccl --set collective.nccl.libraries={} --set collective.nccl.cache_dir={}",
        libraries.display(),
        folder().join("mock-cuda-kernels").display()
    )
}

/// Without [`ALL_TRAININGS`] in one order.
#[test]
fn the_kit_of_a_collective_passes_in_every_order() {
    let is_all = std::env::var_os(ALL_TRAININGS).is_some();
    for order in &ORDERS[..if is_all { ORDERS.len() } else { 1 }] {
        let output = Command::new(env!("CARGO_BIN_EXE_check_collective"))
            .arg(libraries(folder()))
            .arg(folder().join("mock-cuda-kernels"))
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

/// Without [`ALL_TRAININGS`] the first two trainings, each in one order.
#[test]
fn trainings_have_the_bits_of_threads_in_every_order() {
    let is_all = std::env::var_os(ALL_TRAININGS).is_some();
    for (index, case) in CASES.iter().enumerate().take(if is_all { 7 } else { 2 }) {
        let training = case.training("--set run.max_steps=2");
        let threads = case.on_cuda(&training, folder(), ORDERS[0]);
        let nccl = by_nccl(libraries(folder()));
        let orders = if is_all {
            &ORDERS[..]
        } else {
            &ORDERS[index..=index]
        };
        for order in orders {
            let out = format!("nccl-{order}");
            let found = case.succeed(&training, folder(), order, [&out, &nccl]);
            assert_eq!(found, threads, "{}: {order}", case.name);
        }
    }
}

/// Runs a training whose ranks NCCL joins, with variables of the environment.
fn run(training: &Training, (out, more): (&str, &str), set: &[(&str, &str)]) -> Output {
    let more = format!("{} {more}", by_nccl(libraries(folder())));
    let mut host = training.command(out, &more);
    let host = CASES[0].mocked(&mut host, folder(), ORDERS[0]);
    host.envs(set.iter().copied())
        .output()
        .expect("the host starts")
}

/// A short training of two ranks, which must end with `code` and `words` in time.
fn refuse(more: &str, set: &[(&str, &str)], code: i32, words: &str) {
    let training = CASES[0].training("--set run.max_steps=1");
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
    let training = CASES[0].training("--set run.max_steps=1");
    let made = training.path("libraries");
    fs::create_dir_all(&made).expect("a folder");
    for library in ["libcuda.so.1", "libnvrtc.so.13"] {
        fs::copy(libraries(folder()).join(library), made.join(library)).expect("copied");
    }
    let mut host = training.command("out", &by_nccl(&made));
    let host = CASES[0].mocked(&mut host, folder(), ORDERS[0]);
    let output = host.output().expect("the host starts");
    let words = "NCCL cannot be used | has no libnccl.so.2 | pip install nvidia-nccl-cu13 | leave run.device_collective out";
    refused(&output, 5, words, "no library");
}
