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
        Ok(child) => watch(child, part, setting, begin),
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
    command.args(["--layers", &setting.layers.to_string()]);
    if setting.is_small {
        command.arg("--small");
    }
    command.process_group(0);
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().context("the part cannot be started")
}

/// Collects a part's rows until it ends or its time is over.
fn watch(mut child: Child, part: &Part, setting: &Setting, begin: Instant) -> Done {
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
    let times = if setting.is_small { SMALL_TIMES } else { 1 };
    let end = Instant::now() + Duration::from_secs(part.limit_secs * times);
    let mut done = Done::new(part.name);
    loop {
        match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => match serde_json::from_str::<Json>(&line) {
                Ok(row) => done.rows.push(row),
                Err(_) => say(begin, part.name, &line),
            },
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                done.ending = Ending::TimedOut(part.limit_secs * times);
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
