//! The process that probes a library -> its report, or how it ended.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::report::{Line, Report, Trial};
use crate::library::{Doing, LibraryFault, LibraryFile};

/// Interval between two checks whether it has ended.
const PAUSE: Duration = Duration::from_millis(2);

/// Bytes of its output that are read, and characters that are shown.
const READ_BYTES: u64 = 1 << 20;
const SHOWN: usize = 300;

/// Lets `program` probe `library`, for at most `time_limit`. A file that replaced it is not opened.
///
/// # Errors
/// How the process ended, where it made no report.
pub(super) fn run(
    program: &Path,
    time_limit: Duration,
    library: &LibraryFile,
    trial: Option<&Trial>,
) -> Result<Report, LibraryFault> {
    let untried = |error: io::Error| LibraryFault::Untried(error.to_string());
    // Files: a pipe can be full and has to be read while the process runs.
    let mut out = tempfile::tempfile().map_err(untried)?;
    let mut err = tempfile::tempfile().map_err(untried)?;
    let mut command = Command::new(program);
    command.args(["plugins", "probe"]).arg(&library.path);
    command.args(["--sha256", &library.sha256]);
    if let Some(trial) = trial {
        let trial = serde_json::to_string(trial).expect("a trial is plain data");
        command.arg("--trial").arg(trial);
    }
    command
        .stdin(Stdio::null())
        .stdout(out.try_clone().map_err(untried)?)
        .stderr(err.try_clone().map_err(untried)?)
        // A group of its own, so that processes of the library can be ended with it.
        .process_group(0);
    let mut child = command.spawn().map_err(untried)?;
    let ended = wait(&mut child, time_limit).map_err(untried)?;
    let (doing, report) = progress(&mut out);
    let Some(status) = ended else {
        let secs = time_limit.as_secs();
        return Err(LibraryFault::Hung { secs, doing });
    };
    let stderr = complaint(&mut err);
    match (status.signal(), report) {
        (Some(signal), _) => Err(LibraryFault::Crashed {
            signal,
            doing,
            stderr,
        }),
        (None, Some(report)) if status.success() => Ok(report),
        (None, _) => Err(LibraryFault::Exited {
            code: status.code().unwrap_or(-1),
            doing,
            stderr,
        }),
    }
}

/// How it ended; none where it had to be killed.
fn wait(child: &mut Child, time_limit: Duration) -> io::Result<Option<ExitStatus>> {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if begin.elapsed() >= time_limit {
            // It leads its group and is not reaped yet, so the group is still its own.
            if let Some(group) = rustix::process::Pid::from_raw(child.id().cast_signed()) {
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            }
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(PAUSE);
    }
}

fn text(file: &mut File) -> String {
    let mut bytes = Vec::new();
    let read = file
        .rewind()
        .and_then(|()| file.take(READ_BYTES).read_to_end(&mut bytes));
    // What cannot be read counts as empty.
    let _ = read;
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The last call that it was in, and its report.
fn progress(out: &mut File) -> (Doing, Option<Report>) {
    let mut last = Doing::new("open", None);
    let mut report = None;
    for line in text(out).lines() {
        match serde_json::from_str(line) {
            Ok(Line::Doing(doing)) => last = doing,
            Ok(Line::Report(found)) => report = Some(found),
            Err(_) => {}
        }
    }
    (last, report)
}

/// What it wrote to standard error, in one short line.
fn complaint(err: &mut File) -> String {
    let text = text(err);
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("note: "));
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    let line: String = lines
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .map(printable)
        .collect();
    match line.char_indices().nth(SHOWN) {
        None => line,
        Some((end, _)) => format!("{} ...", &line[..end]),
    }
}
