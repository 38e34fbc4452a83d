//! Processes started by mpirun train like threads of one process, bit for bit, on one machine and
//! on two hosts.

mod hosts;
use espalier_torture::training;

use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use espalier_conformance::largest;
use espalier_samples::{Facility, assert_reports_skip, lacks, mpi_folder, mpirun};
use hosts::TwoHosts;
use training::{Trained, Training, messages, refused, trained};

/// LoRA on a packed base, sharded over all ranks and streamed from the host.
const SHARDED: &str = "--set model.compute=f32 --set adapter.lora.rank=4 --set sharding.fsdp.offload=params+optimizer";

fn training(more: &str) -> Training {
    let folder = mpi_folder();
    Training::new(&format!("{more} --plugin-dir {}", folder.display()))
}

/// The files of a run of `command` in `out`.
fn finished(training: &Training, out: &str, mut command: Command) -> Trained {
    let output = command.output().expect("mpirun starts");
    succeeded(&output, out);
    trained(&training.path(out))
}

fn succeeded(output: &Output, case: &str) {
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{case}: {printed}");
}

/// The run in `count` processes.
fn processes(training: &Training, count: u32, out: &str, more: &str) -> Trained {
    let command = mpirun(count, &training.command(out, more));
    finished(training, out, command)
}

#[test]
fn processes_and_threads_train_to_the_same_bits() {
    let training = training(SHARDED);
    for ranks in [2, 3, 4] {
        let threads = training.succeed(
            &format!("threads-{ranks}"),
            &format!("--plugins nf4,lora,fsdp --ranks {ranks}"),
        );
        let out = format!("processes-{ranks}");
        let apart = processes(&training, ranks, &out, "--plugins nf4,lora,fsdp,mpi");
        assert_eq!(apart.metrics, threads.metrics, "{ranks} ranks");
        assert!(apart.files == threads.files, "{ranks} ranks: the adapter");
    }
    let threads = training.succeed("threads-ddp", "--plugins nf4,lora,ddp --ranks 2");
    let apart = processes(&training, 2, "processes-ddp", "--plugins nf4,lora,ddp,mpi");
    assert!(apart == threads, "ddp");
}

/// Rows of tokens: prompts of different lengths, each of which determines its answer.
fn questions() -> String {
    let row = |(first, length): (i32, usize)| {
        let prompt: Vec<i32> = (0..length as i32).map(|i| 40 + first + i).collect();
        let answer = [100 + first, 200 - first, 130 + first, 1];
        let labels = [vec![-100; length], answer.to_vec()].concat();
        let tokens = [prompt, answer.to_vec()].concat();
        let row = serde_json::json!({"input_ids": tokens, "labels": labels});
        format!("{row}\n")
    };
    [(0, 3), (20, 9), (40, 5), (60, 12)].map(row).concat()
}

/// Held-out rows that equal trained ones are answered by the ranks together, between the steps.
#[test]
fn processes_answer_like_threads() {
    let more = "--set data.eval_split=4 --set run.eval_answers=4 --set run.epochs=60 \
                --set data.batch_size=4 --set optim.learning_rate=5e-3 --set run.eval_every=60 \
                --set run.save_every=60 --set model.compute=f32";
    let training = training(more);
    std::fs::write(training.path("rows.jsonl"), questions().repeat(4)).expect("written");
    let evaluations = |out: &str| {
        let metrics = std::fs::read_to_string(training.path(out).join("metrics.jsonl"));
        let metrics = metrics.expect("metrics");
        let lines = metrics
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"));
        let evaluations = lines.filter(|line: &serde_json::Value| line["eval_loss"].is_number());
        evaluations.collect::<Vec<_>>()
    };
    let exact = |out: &str| {
        let exact = evaluations(out).into_iter();
        let exact = exact.filter_map(|line| line["eval_exact_match"].as_f64());
        exact.collect::<Vec<f64>>()
    };
    let samples = |out: &str| {
        let samples = evaluations(out).into_iter();
        let samples = samples.map(|line| line["eval_samples"].clone());
        samples.collect::<Vec<_>>()
    };
    let plugins = "--plugins lora,fsdp --set sharding.fsdp.offload=params";
    let threads = training.succeed("threads", &format!("{plugins} --ranks 2"));
    let found = exact("threads");
    assert_eq!((found[0], found.last()), (0.0, Some(&1.0)), "{found:?}");
    let plugins = plugins.replace("fsdp ", "fsdp,mpi ");
    let apart = processes(&training, 2, "processes", &plugins);
    assert!(apart == threads);
    assert_eq!(exact("processes"), found);
    let of_threads = samples("threads");
    assert_eq!(samples("processes"), of_threads);
    assert_eq!(of_threads[0].as_array().map(Vec::len), Some(4));
    let both = processes(&training, 2, "both", &format!("{plugins} --ranks 2"));
    assert_eq!(both.metrics.len(), threads.metrics.len());
    assert_eq!(exact("both").last(), Some(&1.0));
}

/// Their calls pass through pinned memory of each process.
#[test]
fn processes_on_memory_that_the_host_cannot_touch_train_to_the_bits_of_threads_on_cpu() {
    let library = espalier_samples::library("late");
    let folder = tempfile::tempdir().expect("a folder");
    let name = library.file_name().expect("a file");
    std::fs::copy(&library, folder.path().join(name)).expect("a copy");
    let late = "--set run.backend=late --set backend.late.host_operands=refuse";
    for (name, more) in [
        ("offloaded", SHARDED),
        (
            "resident",
            "--set model.compute=f32 --set adapter.lora.rank=4",
        ),
    ] {
        let training = training(&format!("{more} --plugin-dir {}", folder.path().display()));
        for sharding in ["fsdp", "ddp"] {
            if sharding == "ddp" && more == SHARDED {
                continue;
            }
            let plugins = format!("--plugins nf4,lora,{sharding}");
            let threads = format!("{plugins} --ranks 2");
            let threads = training.succeed(&format!("{name}-{sharding}-cpu"), &threads);
            for order in ["late", "mixed"] {
                let out = format!("{name}-{sharding}-{order}");
                let on_late = format!("{plugins},mpi {late} --set backend.late.order={order}");
                let apart = processes(&training, 2, &out, &on_late);
                assert!(apart == threads, "{out}");
            }
        }
    }
}

/// The losses of a run's steps, in order; JSON has `null` for a loss that is not finite.
fn losses(trained: &Trained) -> Vec<f64> {
    // A line of an evaluation has its loss under another key.
    let steps = trained.metrics.iter().filter(|line| line[5].is_null());
    steps
        .map(|line| line[1].as_f64().unwrap_or(f64::NAN))
        .collect()
}

#[test]
fn threads_of_several_processes_train_like_threads_of_one() {
    let training = training("--set model.compute=f64 --set adapter.lora.rank=4");
    let threads = training.succeed("threads", "--plugins lora,fsdp --ranks 4");
    for (out, more) in [
        ("both", ""),
        (
            "hybrid",
            "--set sharding.fsdp.strategy=hybrid --set sharding.fsdp.shard_ranks=2",
        ),
    ] {
        let more = format!("--plugins lora,fsdp,mpi --ranks 2 {more}");
        let both = processes(&training, 2, out, &more);
        assert_eq!(both.metrics.len(), threads.metrics.len());
        let pairs = losses(&both).into_iter().zip(losses(&threads));
        let apart = largest(pairs.map(|(both, one)| ((both - one) / one).abs()));
        assert!(apart < 1e-12, "{out}: losses are {apart} apart");
    }
}

#[test]
fn processes_refuse_comparisons_and_swaps_and_the_run_goes_on() {
    let training =
        training("--plugins nf4,lora,ddp,mpi --set run.epochs=60 --set run.save_every=100000");
    let compared = training.command_of("compare", "compared", "--arms nf4 --seeds 1");
    let compared = mpirun(2, &compared).output().expect("mpirun starts");
    assert_eq!(compared.status.code(), Some(2));
    let said = messages(&compared);
    let words = "a comparison runs in one process, found 2; next: start it without a launcher";
    assert!(said.contains(words), "{said}");

    let mut running = mpirun(2, &training.command("out", ""));
    running.stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = running.spawn().expect("mpirun starts");
    let metrics = training.path("out/metrics.jsonl");
    let has_step =
        || std::fs::read_to_string(&metrics).is_ok_and(|text| text.contains("grad_norm"));
    while !has_step() {
        let ended = running.try_wait().expect("a child");
        assert!(ended.is_none(), "the run ended without a step: {ended:?}");
        sleep(Duration::from_millis(5));
    }
    let mut swap = Command::new(env!("CARGO_BIN_EXE_host"));
    swap.arg("swap")
        .arg("--run")
        .arg(training.path("out"))
        .arg("quantizer=nf4");
    let swap = swap.output().expect("the host starts");
    let words = "the run continues unchanged | all ranks in one process, found 2 | --ranks N";
    refused(&swap, 2, words, "a swap");
    assert!(running.wait().expect("a child").success());
}

#[test]
fn the_collective_passes_the_kit_in_several_processes() {
    let folder = mpi_folder();
    for count in [2, 3, 4] {
        let place = tempfile::tempdir().expect("a folder");
        let mut check = Command::new(env!("CARGO_BIN_EXE_host"));
        check
            .current_dir(place.path())
            .env("XDG_DATA_HOME", place.path());
        check.args(["plugins", "check"]);
        check.arg(folder.join("libcollective-mpi.so"));
        let output = mpirun(count, &check).output().expect("mpirun starts");
        succeeded(&output, &format!("{count} processes"));
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(printed.contains("sum.order"), "{printed}");
    }
}

#[test]
fn two_hosts_train_like_one() {
    let agent = tempfile::tempdir().expect("a folder");
    let hosts = match TwoHosts::new(agent.path()) {
        Ok(hosts) => hosts,
        Err(why) => return lacks(Facility::NetworkNamespaces, &why),
    };
    let training = training(SHARDED);
    let threads = training.succeed("threads", "--plugins nf4,lora,fsdp --ranks 2");
    let command = hosts.mpirun(&training.command("hosts", "--plugins nf4,lora,fsdp,mpi"));
    let before = hosts.bytes();
    let apart = finished(&training, "hosts", command);
    assert!(apart == threads, "two hosts");
    // At least the adapter's gradients and its params were sent over the network.
    assert!(
        hosts.bytes() - before > 100_000,
        "{} bytes",
        hosts.bytes() - before
    );
}

#[test]
fn without_namespaces_the_test_fails_or_reports_that_it_was_skipped() {
    assert_reports_skip("two_hosts_train_like_one", Facility::NetworkNamespaces);
}
