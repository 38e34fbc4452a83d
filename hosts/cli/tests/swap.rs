//! `host swap` beside a running `host train`: its output, its end, and a run that continues to the
//! same bits.

use espalier_torture::training;

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use espalier_samples::{faulty, put};
use espalier_torture::built::golden;
use serde_json::Value as Json;
use training::{Training, last_line, refused};

/// Longest wait for anything on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running job, stopped except while a request waits for it.
struct Job<'a> {
    training: &'a Training,
    process: Child,
}

impl<'a> Job<'a> {
    /// Starts a run in `out` and stops it after some steps, as a terminal does.
    fn start(training: &'a Training) -> Self {
        let mut command = training.command("out", "");
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let job = Job {
            training,
            process: process.expect("the program was built"),
        };
        let metrics = training.path("out/metrics.jsonl");
        until("no step", || {
            fs::read_to_string(&metrics).is_ok_and(|text| text.contains("grad_norm"))
        });
        job.signal("STOP");
        job
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([format!("-{name}"), self.process.id().to_string()])
            .status();
        assert!(sent.expect("a shell's kill").success());
    }

    /// Sends a request, and resumes the run once the request exists, after `then`.
    fn ask(&self, words: &str, number: u64, then: &str) -> Output {
        let client = swap(self.training, words)
            .spawn()
            .expect("the program was built");
        let request = format!("out/swap/request-{number:06}.json");
        until("no request", || self.training.path(&request).exists());
        self.signal(then);
        let output = client.wait_with_output().expect("it was started here");
        if then == "CONT" {
            self.signal("STOP");
        }
        output
    }
}

fn until(what: &str, done: impl Fn() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < PATIENCE, "{what} in {PATIENCE:?}");
        sleep(Duration::from_millis(5));
    }
}

fn swap(training: &Training, words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_host"));
    command.current_dir(training.folder.path());
    command
        .args("swap --run out".split(' '))
        .args(words.split_whitespace());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn long_training() -> Training {
    long_training_on("--plugins nf4,lora", 700)
}

fn long_training_on(plugins: &str, epochs: u32) -> Training {
    Training::new(&format!(
        "{plugins} --set run.epochs={epochs} --set run.save_every=100000 --set run.eval_every=700"
    ))
}

#[test]
fn a_run_answers_every_request_and_ends_with_the_same_bits() {
    let training = long_training();
    let mut job = Job::start(&training);
    let taken = job.ask("quantizer=nf4", 1, "CONT");
    let printed = String::from_utf8_lossy(&taken.stdout).into_owned();
    assert!(taken.status.success(), "{}", last_line(&taken));
    for words in [
        "swapped quantizer nf4",
        "weights encoded",
        "loss on the next rows",
    ] {
        assert!(printed.contains(words), "no {words:?} in {printed}");
    }
    let unknown = job.ask("quantizer=nf5", 2, "CONT");
    refused(
        &unknown,
        5,
        "the run continues unchanged | unknown quantizer `nf5`",
        "nf5",
    );
    let shaped = job.ask("adapter=lora --set adapter.lora.rank=3", 3, "CONT");
    refused(
        &shaped,
        2,
        "an adapter of another shape | such as alpha",
        "rank",
    );
    let late = job.ask("quantizer=nf4 --before-step 1000000 --timeout 1", 4, "STOP");
    refused(&late, 2, "not answered within 1 s | withdrawn", "timeout");
    let asked = swap(&training, "quantizer=nf4 --mapped --no-wait")
        .output()
        .expect("it starts");
    assert!(asked.status.success(), "{}", last_line(&asked));
    job.signal("CONT");
    let ended = job.process.wait().expect("it was started here");
    assert!(ended.success(), "{ended}");
    let plain = training.succeed("plain", "");
    assert!(
        training::trained(&training.path("out")) == plain,
        "other bits"
    );

    let report = fs::read_to_string(training.path("out/report.html")).expect("a report");
    assert!(report.contains("Swaps of plugins") && report.contains("class=\"mark\""));
    let numbers = fs::read_to_string(training.path("out/report.json")).expect("a report");
    assert!(
        numbers.contains("mapped file") && numbers.contains("unknown quantizer"),
        "{numbers}"
    );
    let over = swap(&training, "quantizer=nf4")
        .output()
        .expect("it starts");
    refused(
        &over,
        2,
        "the run in it has ended | --resume",
        "a finished run",
    );
}

#[test]
fn a_request_without_a_run_or_to_a_dying_run_is_reported() {
    let training = long_training();
    let nothing = swap(&training, "quantizer=nf4")
        .output()
        .expect("it starts");
    refused(&nothing, 2, "no job is running there | --out", "no run");
    for (words, expected) in [
        ("nf4", "expected ROLE=NAME"),
        ("family=llama", "cannot be swapped"),
        (
            "quantizer=nf4 --set optim.learning_rate=1",
            "is no option of quantizer",
        ),
        ("", "required arguments"),
    ] {
        let output = swap(&training, words).output().expect("it starts");
        refused(&output, 2, expected, words);
    }
    let mut job = Job::start(&training);
    let left = job.ask("quantizer=fp4", 1, "KILL");
    refused(
        &left,
        2,
        "the run ended before it came to this request | --resume",
        "killed",
    );
    job.process.wait().expect("it was started here");
    // The next process does not serve a request to the dead one.
    let resumed = training.succeed("out", "--resume");
    assert!(resumed == training.succeed("plain", ""), "other bits");
}

/// Its plugin would crash the process; the probe detects it in a child process.
#[test]
fn a_library_that_crashes_or_ends_a_process_does_not_change_the_run() {
    let training = long_training();
    let mut job = Job::start(&training);
    let faults = [
        (
            "encode:segfault",
            "crashed with signal 11 (SIGSEGV) in encode",
        ),
        ("decode:abort", "crashed with signal 6 (SIGABRT) in decode"),
        ("create:exit", "in create"),
        ("open:segfault", "crashed with signal 11 (SIGSEGV)"),
    ];
    for (number, (fault, cause)) in (1..).zip(faults) {
        let folder = training.path(&fault.replace(':', "-"));
        fs::create_dir(&folder).expect("a folder");
        let path = folder.join("libcase.so");
        put(&path, &faulty(fault));
        let words = format!("quantizer=faulty --plugin-dir {}", folder.display());
        let answer = job.ask(&words, number, "CONT");
        let words = format!("the run continues unchanged | libcase.so | {cause}");
        refused(&answer, 5, &words, fault);
    }
    job.signal("CONT");
    let ended = job.process.wait().expect("it was started here");
    assert!(ended.success(), "{ended}");
    let swapped = training::trained(&training.path("out"));
    assert!(swapped == training.succeed("plain", ""), "other bits");
}

/// `--run` takes the plugins that the run ended with.
#[test]
fn a_run_is_evaluated_with_the_quantizer_that_was_swapped_in() {
    let training = long_training();
    let mut job = Job::start(&training);
    let taken = job.ask("quantizer=hqq --set quantizer.hqq.bits=2", 1, "CONT");
    assert!(taken.status.success(), "{}", last_line(&taken));
    job.signal("CONT");
    let ended = job.process.wait().expect("it was started here");
    assert!(ended.success(), "{ended}");
    let loss = |words: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_host"));
        command.current_dir(training.folder.path());
        let words = format!("eval --quiet --json --threads 1 --data rows.jsonl {words}");
        let output = command.args(words.split_whitespace()).output();
        let output = output.expect("the host starts");
        assert!(output.status.success(), "{words}: {}", last_line(&output));
        let found: Json = serde_json::from_slice(&output.stdout).expect("JSON");
        found["loss"].as_f64().expect("a loss")
    };
    let model = golden("llama/tiny");
    let with = |quantizer: &str| {
        let model = model.display();
        let adapter = "--adapter out/adapter --set model.compute=f32";
        loss(&format!("--model {model} {adapter} --plugins {quantizer}"))
    };
    let swapped = loss("--run out");
    assert_eq!(swapped, with("hqq --set quantizer.hqq.bits=2"));
    assert_ne!(swapped, with("nf4"));
    assert_ne!(swapped, with("hqq --set quantizer.hqq.bits=8"));

    let report = fs::read_to_string(training.path("out/report.html")).expect("a report");
    assert!(
        report.contains(">nf4 -&gt; hqq</b>"),
        "a line without a label"
    );
}

#[test]
fn ranks_take_other_plugins_together_and_end_with_the_same_bits() {
    let training = long_training_on("--plugins nf4,lora,fsdp --ranks 2", 400);
    let mut job = Job::start(&training);
    for (number, words, changed) in [
        (1, "quantizer=nf4", "swapped quantizer nf4"),
        (
            2,
            "sharding=fsdp --set sharding.fsdp.offload=params+optimizer",
            "swapped sharding fsdp",
        ),
    ] {
        let taken = job.ask(words, number, "CONT");
        let printed = String::from_utf8_lossy(&taken.stdout).into_owned();
        assert!(taken.status.success(), "{}", last_line(&taken));
        assert!(printed.contains(changed), "no {changed:?} in {printed}");
    }
    for (number, words, expected) in [
        (3, "quantizer=nf4 --mapped", "leave --mapped out"),
        (4, "sharding=single", "sharding `single` serves one rank"),
    ] {
        let refusal = job.ask(words, number, "CONT");
        let expected = format!("the run continues unchanged | {expected}");
        refused(&refusal, 2, &expected, words);
    }
    job.signal("CONT");
    let ended = job.process.wait().expect("it was started here");
    assert!(ended.success(), "{ended}");
    let swapped = training::trained(&training.path("out"));
    assert!(swapped == training.succeed("plain", ""), "other bits");
}
