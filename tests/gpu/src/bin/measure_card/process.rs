//! Parts -> processes of this program, each ended with all that it started when its time is over.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value as Json;

use crate::part::Part;
use crate::record::{Done, Ending};
use crate::setting::{Arguments, Setting};

/// How much longer parts may take with small shapes, which run on models of cards.
const SMALL_TIMES: u64 = 5;

/// The environment variable that hosts read option `kernels` of the backend from.
const KERNELS_KEY: &str = "HOST__BACKEND__CUDA__KERNELS";

/// Bytes of a part's errors that are kept, the last ones.
const MOST_ERRORS: usize = 4096;

/// Runs parts at the same time, and returns what each gave, in their order.
pub fn run_all(
    parts: &[&Part],
    arguments: &Arguments,
    setting: &Setting,
    begin: Instant,
) -> Vec<Done> {
    thread::scope(|scope| {
        let running: Vec<_> = parts
            .iter()
            .map(|part| scope.spawn(move || run(part, arguments, setting, begin)))
            .collect();
        let joined = running.into_iter().zip(parts);
        let joined = joined.map(|(running, part)| {
            let failed = |_| Done::failed(part.name, "the thread that watches it panicked");
            running.join().unwrap_or_else(failed)
        });
        joined.collect()
    })
}

fn run(part: &Part, arguments: &Arguments, setting: &Setting, begin: Instant) -> Done {
    say(begin, part.name, "begins");
    let start = Instant::now();
    let mut done = match start_part(part, arguments, setting) {
        Ok(child) => {
            let times = if setting.is_small { SMALL_TIMES } else { 1 };
            watch(child, part.name, part.limit_secs * times, begin)
        }
        Err(error) => Done::failed(part.name, &format!("{error:#}")),
    };
    done.secs = start.elapsed().as_secs_f64();
    say(begin, part.name, &done.told());
    done
}

/// A line with the seconds since the run began.
fn say(begin: Instant, part: &str, what: &str) {
    println!("[{:6.1} s] {part}: {what}", begin.elapsed().as_secs_f64());
}

fn start_part(part: &Part, arguments: &Arguments, setting: &Setting) -> Result<Child> {
    let program = std::env::current_exe()?;
    let mut command = Command::new(program);
    command.arg(arguments.run.to_string());
    command.args(["--part", part.name, "--tree"]);
    command.arg(&setting.tree).arg("--out").arg(&setting.out);
    command.arg("--python").arg(&setting.python);
    if let Some(layers) = setting.layers {
        command.args(["--layers", &layers.to_string()]);
    }
    for value in &setting.settings {
        command.args(["--set", value]);
    }
    if setting.is_small {
        command.arg("--small");
    }
    // Kernels are compiled anew in a run's first part, and kept for the others. The compiler may
    // be among the packages of the peers' Python.
    command.env("XDG_CACHE_HOME", setting.programs.join("cache"));
    if let Some(kernels) = &setting.kernels {
        command.env(KERNELS_KEY, kernels);
    }
    if let Some(packages) = &setting.packages {
        command.env("VIRTUAL_ENV", packages);
    }
    command.process_group(0);
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().context("the part cannot be started")
}

/// Collects a part's rows until it ends or its time is over.
fn watch(mut child: Child, name: &'static str, limit_secs: u64, begin: Instant) -> Done {
    let (sender, lines) = mpsc::channel();
    let out = child.stdout.take();
    thread::spawn(move || {
        let lines = out.map(|out| BufReader::new(out).lines());
        for line in lines.into_iter().flatten().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let errors = child.stderr.take();
    let errors = thread::spawn(move || {
        let mut text = Vec::new();
        errors.map(|mut errors| errors.read_to_end(&mut text));
        let from = text.len().saturating_sub(MOST_ERRORS);
        String::from_utf8_lossy(&text[from..]).into_owned()
    });
    let end = Instant::now() + Duration::from_secs(limit_secs);
    let mut done = Done::new(name);
    loop {
        match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => match serde_json::from_str::<Json>(&line) {
                Ok(row) => done.rows.push(row),
                Err(_) => say(begin, name, &line),
            },
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                done.ending = Ending::TimedOut(limit_secs);
                break;
            }
        }
    }
    let is_over = matches!(done.ending, Ending::TimedOut(_));
    if is_over {
        end_group(&child);
    }
    let status = child.wait();
    // What it started may still run.
    end_group(&child);
    let errors = errors.join().unwrap_or_default();
    if !is_over && !status.is_ok_and(|status| status.success()) {
        done.ending = Ending::Failed(errors.trim().to_owned());
    }
    done
}

fn end_group(child: &Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // It may be over already.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(script: &str, limit_secs: u64) -> Done {
        let mut command = Command::new("sh");
        command.args(["-c", script]).process_group(0);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("a shell");
        watch(child, "part", limit_secs, Instant::now())
    }

    /// The process that the part has started holds the part's output open, which the end of the
    /// part's time must close.
    #[test]
    fn a_part_is_ended_with_all_that_it_started_and_keeps_its_rows() {
        let begin = Instant::now();
        let done = watched("sleep 100 & echo '{\"row\": 1}'; wait", 1);
        assert!(
            matches!(done.ending, Ending::TimedOut(1)),
            "{}",
            done.told()
        );
        assert_eq!(done.rows, [serde_json::json!({"row": 1})]);
        assert!(begin.elapsed() < Duration::from_secs(50));
    }

    #[test]
    fn a_part_that_fails_keeps_its_rows_and_last_words() {
        let done = watched("echo '{\"row\": 1}'; echo no card >&2; exit 3", 100);
        assert_eq!(done.rows.len(), 1);
        assert!(
            matches!(&done.ending, Ending::Failed(why) if why == "no card"),
            "{}",
            done.told()
        );
    }
}
