//! A plugin call that hangs on one of several ranks -> that rank ends with the plugin as its cause,
//! the others with a lost rank.
#![cfg(feature = "embedded")]

use espalier_torture::built;
use espalier_torture::training;
use espalier_torture::victims;

use std::fs;
use std::process::Command;

use espalier_samples::{mpi_folder, put};
use training::{Training, refused};
use victims::RankGroup;

/// A run on two ranks whose backend hangs on the second rank once two steps are saved.
fn hanging(plugins: &str, more: &str) -> (Training, Command) {
    let training = Training::new(&format!(
        "--plugins nf4,lora,fsdp,{plugins}faulty-backend --plugin-dir plugins {more}"
    ));
    fs::create_dir(training.path("plugins")).expect("a folder");
    let library = fs::read(espalier_samples::library("faulty-run")).expect("just built");
    put(&training.path("plugins/libfaulty_run.so"), &library);
    let mut command = training.command("out", "");
    command.env("FAULTY_RUN_CPU", built::library("backend_cpu"));
    command.env("FAULTY_RUN", "launch:hang");
    let saved = training.path("out/checkpoints/step-2");
    command.env("FAULTY_RUN_AFTER", saved);
    (training, command)
}

#[test]
fn a_thread_with_a_hanging_plugin_ends_its_process_with_the_plugin_as_its_cause() {
    let more = "--ranks 2 --set run.plugin_timeout_secs=2 --set run.peer_timeout_secs=60";
    let (_training, mut command) = hanging("", more);
    command.env("FAULTY_RUN_ON", "rank-1");
    let output = command.output().expect("the host starts");
    let words = "plugin `faulty-backend` ( | in launch does not return | run.plugin_timeout_secs";
    refused(&output, 5, words, "threads");
}

#[test]
fn waiting_ranks_of_one_process_print_the_pending_plugin() {
    let (_training, mut command) = hanging("", "--ranks 2 --set run.peer_timeout_secs=3");
    command.env("FAULTY_RUN_ON", "rank-1");
    let output = command.output().expect("the host starts");
    refused(&output, 6, "rank 1, step | it hangs", "threads");
    let printed = String::from_utf8_lossy(&output.stderr);
    let reported = "note: rank 1 is waited for in plugin `faulty-backend` (";
    let reported = printed.lines().find(|line| line.starts_with(reported));
    let reported = reported.unwrap_or_else(|| panic!("no note: {printed}"));
    assert!(reported.ends_with(") in launch"), "{reported}");
}

#[test]
fn a_process_with_a_hanging_plugin_names_it_and_the_others_end_with_the_lost_rank_code() {
    let folder = mpi_folder();
    let more = format!(
        "--plugin-dir {} --set run.peer_timeout_secs=4",
        folder.display()
    );
    let (training, mut command) = hanging("mpi,", &more);
    command.env("FAULTY_RUN_RANK", "1");
    let out = training.path("out");
    let mut group = RankGroup::start(2, &command, &out, &training.path("codes"));
    group.await_file(&out.join("checkpoints/step-2"));
    group.await_end(0);
    let (output, codes) = group.end();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(codes[..2], [Some(6), Some(5)], "{printed}");
    let begins = "error: plugin `faulty-backend` (";
    let naming_plugin = printed.lines().filter(|line| line.starts_with(begins));
    let naming_plugin: Vec<&str> = naming_plugin.collect();
    assert_eq!(naming_plugin.len(), 1, "{printed}");
    assert!(
        naming_plugin[0].contains("in launch does not return"),
        "{}",
        naming_plugin[0]
    );
    let lost = printed
        .lines()
        .any(|line| line.starts_with("error: rank 1 (process 1 on "));
    assert!(lost, "{printed}");
}
