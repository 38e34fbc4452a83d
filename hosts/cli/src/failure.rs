//! Turns a failure into the last line on standard error and the process's exit code.

use std::error::Error as StdError;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use clap::error::ErrorKind;
use espalier_data::DataError;
use espalier_registry::archive::ArchiveError;
pub use espalier_system::failure::chain;
use espalier_system::failure::{self, ExitClass, UsageError, one_line};
use espalier_system::files::FileError;
use espalier_system::stop::Interrupted;
use espalier_trainer::error::Error;
use espalier_trainer::planner::Misfit;
use signal_hook::low_level;

use crate::display;
use crate::output::{Failure, Output, has_colours};

/// Exit code of a wrong command line.
const USAGE: u8 = 2;

/// Exit code where standard output cannot be written, as where a disk is full or removed.
const UNWRITTEN: u8 = 8;

/// Set by the first thread that reports a lost rank or a call that hangs: it prints the last line.
static REPORTED: AtomicBool = AtomicBool::new(false);

/// Prints the errors of the command line; for `--help` and `--version` prints those.
pub fn usage(error: &clap::Error) -> ExitCode {
    let shown = error.render().to_string();
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    ) {
        let mut out = Output::new();
        // `out` records the error.
        let _ = write!(out, "{}", styled(error));
        return concluded(Ok(()), &mut out);
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        display::show_text(&shown);
        display::show("error: no command is given; next: choose one of those above");
        return ExitCode::from(USAGE);
    }
    let (cause, rest) = split_usage(&shown);
    if !rest.is_empty() {
        display::show(&rest);
    }
    display::show(&format!(
        "error: {cause}; next: correct the command line, see --help"
    ));
    ExitCode::from(USAGE)
}

/// clap's text as the cause, in one line, and the usage and tips that follow it.
fn split_usage(shown: &str) -> (String, String) {
    let (cause, rest) = shown.split_once("\n\n").unwrap_or((shown, ""));
    let cause = cause.strip_prefix("error: ").unwrap_or(cause);
    let rest = rest
        .lines()
        .filter(|line| !line.starts_with("For more information"));
    let rest: Vec<&str> = rest.collect();
    (one_line(cause), rest.join("\n").trim_end().to_owned())
}

/// clap's text, in colours where standard output shows them.
fn styled(error: &clap::Error) -> String {
    let text = error.render();
    if has_colours() {
        text.ansi().to_string()
    } else {
        text.to_string()
    }
}

/// The exit code of a command. A failure is printed once, as one line that ends with the next step.
/// Failed output alone is reported after all else.
pub fn concluded(done: anyhow::Result<()>, out: &mut Output) -> ExitCode {
    let failure = out.end();
    match (done, failure) {
        (Ok(()), None) => ExitCode::SUCCESS,
        // The output's own failure is printed instead.
        (Err(error), failure) if failure.is_none() || !is_of_output(&error) => report(&error),
        (_, Some(failure @ Failure::Unwritten(_))) => {
            display::say(&format!("error: {failure}; next: {}", out.next_step()));
            ExitCode::from(UNWRITTEN)
        }
        (_, Some(Failure::Closed) | None) => ExitCode::SUCCESS,
    }
}

/// Whether a command failed because standard output could not be written, as lines or as JSON.
fn is_of_output(error: &anyhow::Error) -> bool {
    let of_output = |cause: &(dyn std::error::Error + 'static)| {
        let json = cause.downcast_ref::<serde_json::Error>();
        cause.is::<io::Error>() || json.is_some_and(serde_json::Error::is_io)
    };
    ours(error).is_none() && error.chain().any(of_output)
}

/// The project's own error in the chain of a command's error.
fn ours(error: &anyhow::Error) -> Option<&dyn failure::Failure> {
    error.chain().find_map(as_failure)
}

/// The same error as a type with an exit code, from any of the crates.
fn as_failure<'a>(cause: &'a (dyn StdError + 'static)) -> Option<&'a dyn failure::Failure> {
    fn of<'a, E: failure::Failure + 'static>(
        cause: &'a (dyn StdError + 'static),
    ) -> Option<&'a dyn failure::Failure> {
        let ours = cause.downcast_ref::<E>()?;
        Some(ours)
    }
    of::<Error>(cause)
        .or_else(|| of::<espalier_compare::Error>(cause))
        .or_else(|| of::<espalier_report::Error>(cause))
        .or_else(|| of::<espalier_engine::Error>(cause))
        .or_else(|| of::<espalier_plan::Error>(cause))
        .or_else(|| of::<espalier_registry::Error>(cause))
        .or_else(|| of::<ArchiveError>(cause))
        .or_else(|| of::<DataError>(cause))
        .or_else(|| of::<FileError>(cause))
        .or_else(|| of::<Misfit>(cause))
        .or_else(|| of::<UsageError>(cause))
        .or_else(|| of::<Interrupted>(cause))
}

/// Whether a rank is lost.
fn is_lost(cause: &(dyn StdError + 'static)) -> bool {
    matches!(cause.downcast_ref(), Some(Error::Peer(_)))
        || matches!(cause.downcast_ref(), Some(espalier_engine::Error::Peer(_)))
}

fn report(error: &anyhow::Error) -> ExitCode {
    let ours = ours(error);
    let next_step = ours.map(|ours| ours.next_step()).unwrap_or_default();
    let exit_code = ours.map_or(1, |ours| ours.exit_code());
    let class = ours.map(|ours| ours.exit_class());
    let parts = ours.map(|ours| ours.parts()).unwrap_or_default();
    for part in &parts {
        display::say(&format!(
            "error: {}; next: {}",
            chain(*part),
            part.next_step()
        ));
    }
    let line = match parts.len() {
        0 => last_line(error, class, &next_step),
        several => format!("error: {several} faults, named above; next: {next_step}"),
    };
    if error.chain().any(is_lost) {
        end_with(&line, exit_code);
    }
    display::say(&line);
    display::withdraw_log();
    ExitCode::from(exit_code)
}

/// Prints that a rank is lost, or that a plugin's call hangs, and ends the process at once. Hanging
/// threads are not waited for. Exit handlers of libraries are skipped, since some wait for the
/// other processes.
pub fn last_word(error: &espalier_engine::Error) {
    let line = format!("error: {}; next: {}", chain(error), error.next_step());
    end_with(&line, error.exit_code());
}

fn end_with(line: &str, exit_code: u8) -> ! {
    if REPORTED.swap(true, Ordering::SeqCst) {
        loop {
            // The other thread ends the process.
            thread::park();
        }
    }
    display::say_last(line);
    low_level::exit(exit_code.into())
}

/// `error: what failed: why: why; next: what to do`. What a signal stopped is no error.
fn last_line(error: &anyhow::Error, class: Option<ExitClass>, next_step: &str) -> String {
    let word = match class {
        Some(ExitClass::Signal(_)) => "",
        _ => "error: ",
    };
    let causes = chain(error.as_ref());
    match next_step {
        "" => format!("{word}{causes}"),
        _ => format!("{word}{causes}; next: {next_step}"),
    }
}

#[cfg(test)]
mod tests {
    use espalier_config::ConfigError;

    use super::*;

    #[test]
    fn the_chain_is_printed_in_one_line_without_repeats() {
        let missing = io::Error::new(io::ErrorKind::NotFound, "no such file");
        let error = anyhow::Error::from(Error::from(ConfigError::Read {
            path: "a.toml".into(),
            source: missing,
        }));
        assert_eq!(
            last_line(&error, None, "check the path"),
            "error: cannot read the config file a.toml: no such file; next: check the path"
        );
        let twice = anyhow::anyhow!("no such file").context("cannot open x: no such file");
        assert_eq!(
            last_line(&twice, None, ""),
            "error: cannot open x: no such file"
        );
    }

    #[test]
    fn what_a_signal_stopped_is_no_error() {
        let stopped = anyhow::Error::from(Interrupted { signal: 2 });
        let class = ours(&stopped).map(failure::Failure::exit_class);
        assert_eq!(
            last_line(&stopped, class, "start again"),
            "stopped by signal 2; next: start again"
        );
    }

    #[test]
    fn claps_text_becomes_one_line_and_keeps_its_usage() {
        let shown = "error: the following arguments were not provided:\n  --a\n\n\
                     Usage: host x\n\nFor more information, try '--help'.\n";
        let (cause, rest) = split_usage(shown);
        assert_eq!(cause, "the following arguments were not provided: --a");
        assert_eq!(rest, "Usage: host x");
    }
}
