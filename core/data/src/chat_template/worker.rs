//! The process that renders an untrusted template -> its answers, or the bound that ended it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::bounds::Bound;
use super::exchange;
use super::serve::OUT_OF_TIME;

/// Bytes of standard error that are read.
const READ_BYTES: u64 = 64 << 10;

/// A process that renders one template, one conversation after another.
pub(super) struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// Standard error; a file, since a pipe can be full and has to be read.
    errors: File,
}

impl Worker {
    /// Starts one with `program`.
    pub fn start(program: &OsStr) -> io::Result<Self> {
        let errors = tempfile::tempfile()?;
        let mut child = Command::new(program)
            .args(["data", "render"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors.try_clone()?)
            // A group of its own: the terminal's signals are for the parent only.
            .process_group(0)
            .spawn()?;
        Ok(Worker {
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().expect("standard output is a pipe")),
            child,
            errors,
        })
    }

    /// Sends a message and returns the answer.
    ///
    /// # Errors
    /// The bound that ended the process.
    pub fn ask<T: DeserializeOwned>(
        &mut self,
        what: &impl Serialize,
        memory_bytes: u64,
    ) -> Result<T, Bound> {
        let input = self.input.as_mut().expect("open until the end");
        let said = exchange::write(input, what).and_then(|()| exchange::read(&mut self.output));
        match said {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) | Err(_) => Err(self.ending(memory_bytes)),
        }
    }

    fn ending(&mut self, memory_bytes: u64) -> Bound {
        // A process with a malformed answer still runs.
        self.input = None;
        let status = self.child.wait();
        let mut said = Vec::new();
        let read = self
            .errors
            .rewind()
            .and_then(|()| (&self.errors).take(READ_BYTES).read_to_end(&mut said));
        // What cannot be read counts as empty.
        let _ = read;
        bound(status, &String::from_utf8_lossy(&said), memory_bytes)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.input = None;
        // A process that has ended cannot be killed; a killed one is waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The bound that ended a process; `said` is the last message of Rust's standard library.
fn bound(status: io::Result<ExitStatus>, said: &str, memory_bytes: u64) -> Bound {
    let how = match &status {
        Ok(status) if status.code() == Some(OUT_OF_TIME) => return Bound::Time,
        _ if said.contains("memory allocation of ") => {
            return Bound::Memory {
                bytes: memory_bytes,
            };
        }
        _ if said.contains("has overflowed its stack") => return Bound::Stack,
        Ok(status) => match status.signal() {
            Some(signal) => format!("signal {signal}"),
            None => format!("exit code {}", status.code().unwrap_or(-1)),
        },
        Err(error) => error.to_string(),
    };
    let said = said.lines().last().unwrap_or_default();
    let how = if said.is_empty() {
        how
    } else {
        format!("{how}: {said}")
    };
    Bound::Ended { how }
}
