//! Standard output of commands, and the record of its failures.

use std::fmt;
use std::io::{self, IsTerminal, StdoutLock, Write};
use std::path::Path;

use crate::display;

/// Standard output, which records its first failure.
pub struct Output {
    inner: StdoutLock<'static>,
    /// Another place where the printed result can be read.
    place: Option<String>,
    failure: Option<Failure>,
}

/// Why standard output could not be written.
#[derive(Clone, Debug)]
pub enum Failure {
    /// Its reader closed it, as in `host doctor | head -1`: not an error.
    Closed,
    /// Any other cause, in words.
    Unwritten(String),
}

/// Whether what is printed may have colours.
pub fn has_colours() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

impl Output {
    /// The process's standard output.
    pub fn new() -> Self {
        Output {
            inner: io::stdout().lock(),
            place: None,
            failure: None,
        }
    }

    /// Sets the path that holds the printed results.
    pub fn set_place(&mut self, path: &Path) {
        self.place = Some(format!("is in {}", path.display()));
    }

    /// Prints a result that is written nowhere else. On failure it goes to standard error.
    ///
    /// # Errors
    /// The error of the write.
    pub fn print_result(&mut self, text: &str) -> io::Result<()> {
        let printed = self.write_all(text.as_bytes()).and_then(|()| self.flush());
        if let Some(Failure::Unwritten(_)) = &self.failure {
            self.place = Some("is above, on standard error".to_owned());
            display::say(text.trim_end());
        }
        printed
    }

    /// Flushes the output, and returns its first failure.
    pub fn end(&mut self) -> Option<Failure> {
        // The failure is recorded.
        let _ = self.flush();
        self.failure.clone()
    }

    /// The next step where output could not be printed.
    pub fn next_step(&self) -> String {
        match &self.place {
            Some(place) => format!("the work is done, and its result {place}"),
            None => "check that file or disk, then start again".to_owned(),
        }
    }

    fn remembered<T>(&mut self, done: io::Result<T>) -> io::Result<T> {
        if let (Err(error), None) = (&done, &self.failure) {
            self.failure = match error.kind() {
                io::ErrorKind::BrokenPipe => Some(Failure::Closed),
                // `write_all` tries again.
                io::ErrorKind::Interrupted => None,
                _ => Some(Failure::Unwritten(error.to_string())),
            };
        }
        done
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let done = self.inner.write(bytes);
        self.remembered(done)
    }

    fn flush(&mut self) -> io::Result<()> {
        let done = self.inner.flush();
        self.remembered(done)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Closed => f.write_str("the reader of standard output went away"),
            Failure::Unwritten(why) => write!(f, "standard output cannot be written: {why}"),
        }
    }
}
