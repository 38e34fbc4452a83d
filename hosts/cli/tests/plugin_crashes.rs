//! Plugins that crash the process during a run -> the last line, and the result of a resumed run.

use espalier_torture::training;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use espalier_samples::{faulty, put};
use training::{Training, last_line, names};

/// A run of a few steps with a library that crashes during it.
struct Crash {
    training: Training,
}

impl Crash {
    fn new(fault: &str, plugins: &str) -> Self {
        let training = Training::new(&format!("--plugins {plugins} --plugin-dir plugins"));
        fs::create_dir(training.path("plugins")).expect("a folder");
        let path = training.path("plugins/libcase.so");
        put(&path, &faulty(fault));
        Crash { training }
    }

    /// Runs it with the fault in that call, on two threads if `threads` is set.
    fn run(&self, out: &str, call: u64, more: &str) -> Output {
        let mut command = self.training.command(out, more);
        command.env("FAULT_CALL", call.to_string());
        command.output().expect("the host starts")
    }
}

/// Expects a last line that names `plugin` and `callback`.
fn names_plugin(output: &Output, plugin: &str, signal: &str, callback: &str) {
    let line = last_line(output);
    assert_eq!(output.status.code(), Some(5), "{line}");
    assert!(
        line.starts_with(&format!("error: plugin `{plugin}` (/")),
        "{line}"
    );
    let words = format!("/plugins/libcase.so) crashed with {signal} in {callback}; next: ");
    assert!(line.contains(&words) && line.contains("--resume"), "{line}");
}

#[test]
fn a_crash_inside_a_run_names_plugin_and_callback() {
    let cases = [
        (
            "encode:segfault",
            "faulty,lora",
            "signal 11 (SIGSEGV)",
            "encode",
        ),
        (
            "encode:abort",
            "faulty,lora",
            "signal 6 (SIGABRT)",
            "encode",
        ),
        (
            "encode:overflow",
            "faulty,lora",
            "signal 11 (SIGSEGV)",
            "encode",
        ),
        (
            "adapt:segfault",
            "faulty-adapter",
            "signal 11 (SIGSEGV)",
            "adapt",
        ),
        (
            "launch:abort",
            "faulty-backend,lora",
            "signal 6 (SIGABRT)",
            "launch",
        ),
    ];
    for (fault, plugins, signal, callback) in cases {
        let crash = Crash::new(fault, plugins);
        let name = plugins.split(',').next().expect("a name");
        names_plugin(&crash.run("out", 1, ""), name, signal, callback);
    }
}

#[test]
fn a_run_resumes_from_its_checkpoint_after_a_crash_on_a_worker_thread() {
    for (fault, signal) in [
        ("decode:segfault", "signal 11 (SIGSEGV)"),
        ("decode:overflow", "signal 11 (SIGSEGV)"),
    ] {
        let crash = Crash::new(fault, "faulty,lora");
        let threads = "--set run.threads=3";
        let whole = crash.run("whole", 0, threads);
        assert_eq!(whole.status.code(), Some(0), "{}", last_line(&whole));
        // A call of the fifth of six steps, well after the checkpoint of step four.
        let call = calls_until_step(&crash, 5);
        names_plugin(&crash.run("out", call, threads), "faulty", signal, "decode");
        let left = training::names(&crash.training.path("out/checkpoints"));
        assert_eq!(left, ["step-2", "step-4"]);
        let resumed = crash.run("out", 0, &format!("{threads} --resume"));
        assert_eq!(resumed.status.code(), Some(0), "{}", last_line(&resumed));
        let trained = |out: &str| training::trained(&crash.training.path(out));
        assert!(trained("out") == trained("whole"), "{fault}: other bits");
    }
}

/// The trace in a crash's line: each frame's module, build id and address; `None` for omitted
/// frames.
fn frames(line: &str) -> Vec<Option<(String, String, u64)>> {
    let (_, trace) = line.split_once("; trace: ").expect("a trace");
    let mut frames = Vec::new();
    for word in trace
        .split_whitespace()
        .filter(|word| !word.ends_with("more..."))
    {
        let Some((module, addresses)) = word.split_once("+0x") else {
            frames.push(None);
            continue;
        };
        let (name, id) = module.split_once('[').unwrap_or((module, ""));
        for address in addresses.split(",+0x") {
            let address = u64::from_str_radix(address, 16).expect("an address");
            let id = id.trim_end_matches(']').to_owned();
            frames.push(Some((name.to_owned(), id, address)));
        }
    }
    frames
}

/// The function of an address in a file.
fn function(file: &Path, address: u64) -> String {
    let mut command = Command::new("addr2line");
    command.args(["-f", "-C", "-e"]).arg(file);
    let output = command.arg(format!("{address:#x}")).output();
    let printed = output.expect("addr2line starts: install binutils").stdout;
    let printed = String::from_utf8_lossy(&printed).into_owned();
    printed.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn a_stack_overflow_on_a_worker_thread_reports_both_ends_of_its_stack() {
    // All work of ranks, including loading, runs on threads of their own.
    let crash = Crash::new("decode:overflow", "faulty,lora,ddp");
    let output = crash.run("out", 5, "--ranks 2");
    names_plugin(&output, "faulty", "signal 11 (SIGSEGV)", "decode");
    let line = last_line(&output);
    let frames = frames(&line);
    let gap = frames
        .iter()
        .position(Option::is_none)
        .expect("frames are left out");
    assert_eq!((gap, frames.len()), (16, 33), "{line}");
    let library = crash.training.path("plugins/libcase.so");
    let host = Path::new(env!("CARGO_BIN_EXE_host"));
    let ids = |file: &Path| {
        let output = Command::new("readelf").arg("-n").arg(file).output();
        let printed = output.expect("readelf starts: install binutils").stdout;
        String::from_utf8_lossy(&printed).into_owned()
    };
    let (of_library, of_host) = (ids(&library), ids(host));
    for frame in frames[..gap].iter().flatten() {
        let (name, id, address) = frame;
        assert_eq!(name, "libcase.so", "{line}");
        assert!(
            !id.is_empty() && of_library.contains(id.as_str()),
            "{id}: {of_library}"
        );
        let function = function(&library, address - 1);
        assert!(
            function.contains("deeper"),
            "{function} of {address:#x}: {line}"
        );
    }
    // At the other end the host called the plugin, on its own thread.
    let outer = frames[gap + 1..].iter().flatten();
    let of_the_host: Vec<String> = outer
        .filter(|(name, id, _)| name == "host" && of_host.contains(id.as_str()))
        .map(|(.., address)| function(host, address - 1))
        .collect();
    assert!(of_the_host.len() > 3, "{line}");
    // Start of a thread in the standard library; which of its functions are inlined differs.
    let begins = ["thread", "__rust_begin_short_backtrace"];
    let mut names = of_the_host.iter();
    let thread = names.any(|name| begins.iter().any(|begin| name.contains(begin)));
    assert!(thread, "{of_the_host:?}: {line}");
}

#[test]
fn a_stack_that_cannot_be_unwound_loses_only_the_trace() {
    let crash = Crash::new("encode:lost-stack", "faulty,lora");
    let output = crash.run("out", 1, "");
    names_plugin(&output, "faulty", "signal 11 (SIGSEGV)", "encode");
    let frames = frames(&last_line(&output));
    let (name, ..) = frames[0].as_ref().expect("where it was");
    assert_eq!(name, "libcase.so", "{frames:?}");
    assert!(frames.len() < 16, "{frames:?}");
}

#[test]
fn a_crash_outside_plugins_ends_by_its_signal_with_a_trace() {
    let training = Training::new("--plugins lora --set run.epochs=4000");
    let mut run = training.command("out", "");
    let run = run.stderr(Stdio::piped()).stdout(Stdio::null()).spawn();
    let mut run = run.expect("the host starts");
    while names(&training.path("out/checkpoints")).is_empty() {
        assert!(run.try_wait().expect("ours").is_none(), "it ended");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    // Its first thread waits or works: the signal is reported in either state.
    let mut kill = Command::new("kill");
    let sent = kill.args(["-SEGV", &run.id().to_string()]).status();
    assert!(sent.expect("kill starts").success());
    let output = run.wait_with_output().expect("ours");
    let line = last_line(&output);
    assert_eq!(output.status.signal(), Some(11), "{line}");
    assert!(line.contains("signal 11 (SIGSEGV)"), "{line}");
    let frames = frames(&line);
    assert!(frames.len() > 4, "{line}");
    let host = Path::new(env!("CARGO_BIN_EXE_host"));
    let named = frames.iter().flatten().filter(|(name, ..)| name == "host");
    let functions: Vec<String> = named.map(|(.., at)| function(host, at - 1)).collect();
    let has_main = functions.iter().any(|name| name.contains("main"));
    assert!(has_main, "{functions:?}: {line}");
}

/// The number of a call of `decode` in step number `step`, found by bisection from the number of
/// steps that the run completes.
fn calls_until_step(crash: &Crash, step: usize) -> u64 {
    let (mut low, mut high) = (0u64, 1 << 14);
    while low + 1 < high {
        let middle = low.midpoint(high);
        let out = format!("search-{middle}");
        let output = crash.run(&out, middle, "--set run.threads=3");
        let metrics = fs::read_to_string(crash.training.path(&out).join("metrics.jsonl"));
        let done = metrics
            .unwrap_or_default()
            .lines()
            .filter(|line| line.contains("\"loss\""))
            .count();
        match output.status.code() {
            Some(5) if done + 1 == step => return middle,
            Some(5) if done + 1 < step => low = middle,
            _ => high = middle,
        }
    }
    panic!("no call in step {step}");
}
