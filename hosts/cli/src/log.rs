//! The trainer's log records -> standard error and the output directory's log, filtered by
//! `HOST_LOG`.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::layer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::display::{LogWriter, TerminalWriter};

/// Holds the filter, in the syntax of `RUST_LOG`: `info`, `espalier_trainer=debug`.
const VARIABLE: &str = "HOST_LOG";

/// Starts the log; warnings and errors are shown by default.
pub fn start() {
    let filter = EnvFilter::builder()
        .with_env_var(VARIABLE)
        .with_default_directive(LevelFilter::WARN.into())
        .from_env_lossy();
    let colours = io::stderr().is_terminal();
    tracing_subscriber::registry()
        .with(filter)
        .with(layer().with_ansi(colours).with_writer(|| TerminalWriter))
        .with(layer().with_ansi(false).with_writer(|| LogWriter))
        .init();
}
