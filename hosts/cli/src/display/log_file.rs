//! Lines with their time -> the `log.txt` of an output directory, after those of earlier sessions.

use std::fs::{self, DirEntry, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use espalier_system::failure::one_line;
use espalier_system::files::{MadeDirectories, this_process};
use espalier_system::shell;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// Its file name in the output directory.
const NAME: &str = "log.txt";

/// Most bytes of buffered lines.
const WAITING: usize = 1 << 20;

/// The log of a process.
pub struct LogFile {
    state: State,
    origin: Option<Origin>,
}

enum State {
    /// No log.
    None,
    /// This process does not own the output directory yet: the lines so far.
    Waiting(String),
    Open(File),
    /// It cannot be written. It stays open: a handler of faults may still have its descriptor.
    Ended {
        _file: File,
    },
}

/// An output directory as it was before the log.
struct Origin {
    out: PathBuf,
    /// Directories that this process makes.
    made: MadeDirectories,
    /// Whether an earlier session left a log.
    has_log: bool,
}

impl LogFile {
    /// No log.
    pub const fn none() -> Self {
        LogFile {
            state: State::None,
            origin: None,
        }
    }

    /// Buffers lines until the log of `out` is open, after a line that describes this process.
    pub fn wait(&mut self, out: &Path) {
        if matches!(self.state, State::None) {
            self.state = State::Waiting(session());
            self.origin = Some(Origin {
                out: out.to_owned(),
                made: MadeDirectories::missing(out),
                has_log: out.join(NAME).symlink_metadata().is_ok(),
            });
        }
    }

    /// Opens the log, if lines wait for it.
    ///
    /// # Errors
    /// Why there is no log, in words.
    pub fn open(&mut self) -> Result<(), String> {
        let (State::Waiting(lines), Some(origin)) = (&mut self.state, &self.origin) else {
            return Ok(());
        };
        let text = std::mem::take(lines);
        let path = origin.out.join(NAME);
        match opened(&path) {
            Ok(file) => self.state = State::Open(file),
            Err(error) => {
                self.state = State::None;
                return Err(format!("no log in {}: {error}", path.display()));
            }
        }
        self.keep(&text)
    }

    /// Removes the log where it is new and alone in its directory, with the directories that were
    /// made for it.
    pub fn withdraw(&mut self) {
        let (State::Open(_), Some(origin)) = (&self.state, self.origin.take()) else {
            return;
        };
        let is_log = |entry: io::Result<DirEntry>| entry.is_ok_and(|it| it.file_name() == NAME);
        let entries = fs::read_dir(&origin.out);
        if !origin.has_log && entries.is_ok_and(|mut all| all.all(is_log)) {
            // A file that cannot be removed stays.
            let _ = fs::remove_file(origin.out.join(NAME));
            self.state = State::None;
        }
        // Empty directories are removed.
        drop(origin.made);
    }

    /// Writes `text`, which ends a line, or buffers it; beyond the buffer's capacity it is dropped.
    ///
    /// # Errors
    /// Why the log ends, in words.
    pub fn keep(&mut self, text: &str) -> Result<(), String> {
        match &mut self.state {
            State::None | State::Ended { .. } => {}
            State::Waiting(lines) if lines.len() + text.len() > WAITING => {}
            State::Waiting(lines) => lines.push_str(text),
            State::Open(file) => {
                let written = file.write_all(text.as_bytes());
                return written.map_err(|error| self.ended(&error));
            }
        }
        Ok(())
    }

    fn ended(&mut self, error: &io::Error) -> String {
        if let State::Open(file) = std::mem::replace(&mut self.state, State::None) {
            self.state = State::Ended { _file: file };
        }
        format!("{NAME} ends here: {error}")
    }

    /// The descriptor of the open file.
    pub fn descriptor(&self) -> Option<i32> {
        match &self.state {
            State::Open(file) => Some(file.as_raw_fd()),
            _ => None,
        }
    }
}

/// `line` with its time before it and a line end.
pub fn stamped(line: &str) -> String {
    let mut text = String::new();
    // If the clock cannot be formatted, only its text is missing.
    let _ = SystemTime.format_time(&mut Writer::new(&mut text));
    text + " " + line + "\n"
}

/// The first line that this process writes.
fn session() -> String {
    let words = std::env::args().map(|word| shell::quoted(&word));
    let command = one_line(&words.collect::<Vec<_>>().join(" "));
    let version = env!("CARGO_PKG_VERSION");
    stamped(&format!(
        "=== {}, host {version}: {command}",
        this_process()
    ))
}

/// A regular file, opened to append. Opening does not wait for a pipe.
fn opened(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = options.open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("expected a regular file"))
    }
}

#[cfg(test)]
mod tests;
