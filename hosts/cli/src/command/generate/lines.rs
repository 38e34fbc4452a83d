//! Standard input -> its lines as they arrive; a signal ends the wait for one.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use espalier_system::stop::StopFlag;
use espalier_trainer::error::Error;

use super::prompts;
use crate::display;

/// Longest time until a signal is seen.
const POLL: Duration = Duration::from_millis(50);

/// Lines of standard input.
pub struct Lines {
    receiver: Receiver<io::Result<String>>,
    stop: StopFlag,
    terminal: bool,
}

impl Lines {
    /// Starts to read; the wait ends once `stop` is set.
    pub fn new(stop: &StopFlag) -> Self {
        let (sender, receiver) = sync_channel(0);
        // The thread ends with the input or with the process: a blocked read cannot be cancelled.
        thread::spawn(move || {
            for line in io::stdin().lines() {
                let failed = line.is_err();
                if sender.send(line).is_err() || failed {
                    break;
                }
            }
        });
        Lines {
            receiver,
            stop: stop.clone(),
            terminal: io::stdin().is_terminal(),
        }
    }

    /// Whether standard input is a terminal.
    pub fn typed(&self) -> bool {
        self.terminal
    }

    /// The next line without its end; none at the end of the input.
    ///
    /// # Errors
    /// Input that cannot be read or is no UTF-8; [`Error::Interrupted`].
    pub fn next(&self) -> Result<Option<String>, Error> {
        if self.terminal {
            display::show_text("> ");
        }
        loop {
            self.stop.check()?;
            match self.receiver.recv_timeout(POLL) {
                Ok(line) => return line.map(Some).map_err(|error| prompts::unreadable(&error)),
                Err(RecvTimeoutError::Disconnected) => {
                    if self.terminal {
                        display::show("");
                    }
                    return Ok(None);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}
