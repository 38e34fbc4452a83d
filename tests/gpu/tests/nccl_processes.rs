//! The collective `nccl` between processes of mpirun, over the mock libraries: the bits of threads,
//! and what is left of a run whose processes are killed.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use espalier_samples::mpi_folder;
use espalier_tests_gpu::nccl::{BY_KEY, JOINED, options};
use espalier_tests_gpu::{ALL_TRAININGS, Case, ORDERS, libraries};
use espalier_torture::training::{Trained, Training, trained};
use espalier_torture::victims::RankGroup;

/// Longest time until all processes have ended after one was lost.
const IN_TIME: Duration = Duration::from_secs(10);

/// Where the mock libraries and the kernels are kept.
fn folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// `host train` of a rank, which meets the others in files.
fn rank(case: &Case, training: &Training, (out, more): (&str, &str), order: &str) -> Command {
    let more = format!(
        "{BY_KEY} {} --plugins {},mpi --plugin-dir {} {more}",
        options(libraries(folder()), folder()),
        plugins(case),
        mpi_folder().display()
    );
    let mut host = training.command(out, &more);
    case.mocked(&mut host, folder(), order);
    let met = training.path(&format!("met-{out}"));
    std::fs::create_dir_all(&met).expect("a folder");
    host.env("MOCK_NCCL_FOLDER", met);
    host
}

/// The names behind `--plugins` of a case.
fn plugins(case: &Case) -> &'static str {
    let mut words = case.words.split_whitespace();
    words.nth(1).expect("names behind --plugins")
}

/// The case, without ranks that are threads and without its `--plugins`.
fn in_processes(case: &Case, more: &str) -> Training {
    let words = case.words.split_whitespace().skip(2);
    let words: Vec<&str> = words.collect();
    Training::new(&format!(
        "{} --set adapter.lora.rank=4 --set model.compute={} {more}",
        words.join(" "),
        case.compute
    ))
}

fn start(case: &Case, training: &Training, (out, more): (&str, &str), order: &str) -> RankGroup {
    let command = rank(case, training, (out, more), order);
    let codes = training.path(&format!("codes-{out}-{}", more.len()));
    RankGroup::start(case.ranks as u32, &command, &training.path(out), &codes)
}

/// The run in processes, until it ends.
fn finished(case: &Case, training: &Training, words: (&str, &str), order: &str) -> Trained {
    let (output, codes) = start(case, training, words, order).end();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}: {codes:?}: {printed}",
        case.name
    );
    let met = training.path(&format!("met-{}", words.0));
    let joined = std::fs::read_dir(met).expect("a folder").flatten();
    let joined = joined.filter(|file| file.file_name().to_string_lossy().contains(".joined."));
    assert!(joined.count() >= case.ranks, "NCCL joined no processes");
    trained(&training.path(words.0))
}

/// Without [`ALL_TRAININGS`] the first one, in one order.
#[test]
fn processes_have_the_bits_of_threads_in_every_order() {
    let is_all = std::env::var_os(ALL_TRAININGS).is_some();
    for case in &JOINED[..if is_all { JOINED.len() } else { 1 }] {
        let threads = case.training("--set run.max_steps=2");
        let threads = case.on_cuda(&threads, folder(), ORDERS[0]);
        let training = in_processes(case, "--set run.max_steps=2");
        for order in &ORDERS[..if is_all { ORDERS.len() } else { 1 }] {
            let found = finished(case, &training, (order, ""), order);
            assert_eq!(found, threads, "{}: {order}", case.name);
        }
    }
}

/// Without [`ALL_TRAININGS`] a process of the first one is killed once.
#[test]
fn a_killed_or_stopped_process_ends_all_in_time_and_the_run_resumes() {
    let is_all = std::env::var_os(ALL_TRAININGS).is_some();
    for (index, case) in JOINED.iter().enumerate().take(if is_all { 7 } else { 1 }) {
        let training = in_processes(case, "--set run.epochs=3 --set run.save_every=1");
        let whole = finished(case, &training, ("whole", ""), ORDERS[0]);
        for (round, signal) in
            ["-KILL", "-STOP"]
                .iter()
                .enumerate()
                .take(if is_all { 2 } else { 1 })
        {
            let out = format!("lost-{round}");
            let name = format!("{}: {signal}", case.name);
            let victim = ((index + round) % case.ranks) as u32;
            let order = ORDERS[(index + round) % ORDERS.len()];
            let mut group = start(case, &training, (&out, ""), order);
            group.await_file(&training.path(&out).join("checkpoints/step-2"));
            group.signal(victim, signal);
            let took = group.await_end(round);
            let (output, codes) = group.end();
            let printed = String::from_utf8_lossy(&output.stderr);
            assert!(took <= IN_TIME, "{name}: {took:?}: {printed}");
            for rank in (0..case.ranks).filter(|rank| *rank as u32 != victim) {
                assert_eq!(
                    codes[rank],
                    Some(6),
                    "{name}: rank {rank} of {codes:?}: {printed}"
                );
            }
            let lost = format!("error: rank {victim} (process {victim} on ");
            assert!(printed.contains(&lost), "{name}: {printed}");
            let resumed = finished(case, &training, (&out, "--resume"), ORDERS[0]);
            assert!(resumed == whole, "{name}: a resumed run gives other bits");
        }
    }
}
