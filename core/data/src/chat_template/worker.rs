//! The process that renders a template from outside -> its answers, or the bound that ended it.

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

/// Bytes read of what it wrote to standard error.
const READ_BYTES: u64 = 64 << 10;

/// A process that renders one template, one conversation after another.
pub(super) struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// A file, not a pipe: it is never full, and nobody has to read it.
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
            // Of its own: a signal of the terminal is meant for the program that waits for it.
            .process_group(0)
            .spawn()?;
        Ok(Worker {
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().expect("standard output is a pipe")),
            child,
            errors,
        })
    }

    /// Asks it.
    ///
    /// # Errors
    /// What ended it.
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
        // One that speaks no sense still runs.
        self.input = None;
        let status = self.child.wait();
        let mut said = Vec::new();
        let read = self
            .errors
            .rewind()
            .and_then(|()| (&self.errors).take(READ_BYTES).read_to_end(&mut said));
        // What cannot be read was not said.
        let _ = read;
        bound(status, &String::from_utf8_lossy(&said), memory_bytes)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.input = None;
        // One that has ended cannot be killed, and one that was killed is waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What ended a process; `said` are the last words of Rust's standard library.
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
