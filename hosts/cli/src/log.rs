//! The log on standard error, filtered by `HOST_LOG`, never torn by a progress bar.

use std::io::{self, IsTerminal, Write};

use indicatif::MultiProgress;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Holds the filter, in the syntax of `RUST_LOG`: `info`, `espalier_trainer=debug`.
const VARIABLE: &str = "HOST_LOG";

/// Starts the log; warnings and errors are shown where the variable says nothing.
pub fn start(bars: &MultiProgress) {
    let filter = EnvFilter::builder()
        .with_env_var(VARIABLE)
        .with_default_directive(LevelFilter::WARN.into())
        .from_env_lossy();
    let bars = bars.clone();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(move || AboveBars(bars.clone()))
        .init();
}

/// Standard error, with the bars out of the way while a line is written.
struct AboveBars(MultiProgress);

impl Write for AboveBars {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.suspend(|| io::stderr().write(line))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
