//! Turns a failure into the last line on standard error and the process's exit code.

use std::error::Error as _;
use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use clap::error::ErrorKind;
pub use espalier_trainer::error::chain;
use espalier_trainer::error::{Error, one_line};
use signal_hook::low_level;

/// Exit code of a wrong command line.
const USAGE: u8 = 2;

/// Set by the first thread that tells of a lost rank or a call that hangs: it has the last word.
static TOLD: AtomicBool = AtomicBool::new(false);

/// Prints what is wrong with the command line; for `--help` and `--version` prints those.
pub fn usage(error: &clap::Error) -> ExitCode {
    let shown = error.render().to_string();
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    ) {
        // A closed pipe behind `host --help | head` is no failure.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        eprint!("{shown}");
        eprintln!("error: no command is given; next: choose one of those above");
        return ExitCode::from(USAGE);
    }
    let (cause, rest) = split_usage(&shown);
    if !rest.is_empty() {
        eprintln!("{rest}");
    }
    eprintln!("error: {cause}; next: correct the command line, see --help");
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

/// Prints the error once, as one line that ends with the next step.
pub fn report(error: &anyhow::Error) -> ExitCode {
    if is_closed_pipe(error) {
        return ExitCode::SUCCESS;
    }
    let ours = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<Error>());
    let next_step = ours.map(Error::next_step).unwrap_or_default();
    let line = last_line(error, &next_step);
    if let Some(lost @ Error::Peer(_)) = ours {
        end_with(&line, lost);
    }
    eprintln!("{line}");
    ExitCode::from(ours.map_or(1, Error::exit_code))
}

/// Prints that a rank is lost, or that a plugin's call hangs, and ends the process at once: threads that hang are not waited for, and what libraries do at
/// the end of a program is left out, since some of it waits for the other processes.
pub fn last_word(error: &Error) {
    let line = format!("error: {}; next: {}", chain(error), error.next_step());
    end_with(&line, error);
}

fn end_with(line: &str, error: &Error) -> ! {
    if TOLD.swap(true, Ordering::SeqCst) {
        loop {
            // The other thread ends the process.
            thread::park();
        }
    }
    eprintln!("{line}");
    low_level::exit(error.exit_code().into())
}

/// `error: what failed: why: why; next: what to do`.
fn last_line(error: &anyhow::Error, next_step: &str) -> String {
    let causes = chain(error.as_ref());
    match next_step {
        "" => format!("error: {causes}"),
        _ => format!("error: {causes}; next: {next_step}"),
    }
}

/// The reader of standard output went away, as in `host doctor | head -1`.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let outermost = error.downcast_ref::<io::Error>();
    outermost.is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe && e.source().is_none())
}

#[cfg(test)]
mod tests {
    use espalier_trainer::config::ConfigError;

    use super::*;

    #[test]
    fn the_chain_stands_in_one_line_and_nothing_twice() {
        let missing = io::Error::new(io::ErrorKind::NotFound, "no such file");
        let error = anyhow::Error::from(Error::from(ConfigError::Read {
            path: "a.toml".into(),
            source: missing,
        }));
        assert_eq!(
            last_line(&error, "check the path"),
            "error: cannot read the config file a.toml: no such file; next: check the path"
        );
        let twice = anyhow::anyhow!("no such file").context("cannot open x: no such file");
        assert_eq!(last_line(&twice, ""), "error: cannot open x: no such file");
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
