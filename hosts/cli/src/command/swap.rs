//! `host swap`: requests another plugin of a running job, and waits for the outcome.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use espalier_system::failure::UsageError;
use espalier_system::files::{holder_of, this_process};
use espalier_system::shell;
use espalier_trainer::bytes::Bytes;
use espalier_trainer::error::Error;
use espalier_trainer::swap::{
    Mailbox, Outcome, Stage, Staging, SwapAnswer, SwapRefused, SwapRequest,
};
use indicatif::ProgressBar;

use crate::arguments::SwapArguments;
use crate::display;
use crate::output::Output;

/// Time between two checks of the run's folder.
const LOOK: Duration = Duration::from_millis(100);

/// Sends the request and prints the answer.
pub fn run(arguments: &SwapArguments, out: &mut Output) -> Result<()> {
    let request = SwapRequest {
        plugin_dirs: absolute(&arguments.plugin_dir)?,
        before_step: arguments.before_step,
        staging: if arguments.mapped {
            Staging::Mapped
        } else {
            Staging::Auto
        },
        asked_by: this_process(),
        ..SwapRequest::new(&arguments.assignment, &arguments.set)?
    };
    let Some(holder) = holder_of(&arguments.run) else {
        return Err(nothing_runs(&arguments.run).into());
    };
    let mailbox = Mailbox::of(&arguments.run);
    let number = mailbox.ask(&request)?;
    let asked = request.assignment();
    out.set_place(&arguments.run);
    if arguments.no_wait {
        writeln!(out, "asked {holder} for {asked}: request {number}")?;
        return Ok(());
    }
    let waiting = Waiting {
        arguments,
        mailbox: &mailbox,
        number,
        bar: bar(&format!("{holder}: waiting for its next step")),
    };
    let answer = waiting.answer();
    waiting.bar.finish_and_clear();
    let answer = answer?;
    match answer.record.outcome {
        Outcome::Taken => Ok(write!(out, "{}", lines(&answer))?),
        Outcome::Refused => Err(refused(&asked, answer).into()),
    }
}

/// A request that was sent.
struct Waiting<'a> {
    arguments: &'a SwapArguments,
    mailbox: &'a Mailbox,
    number: u64,
    bar: ProgressBar,
}

impl Waiting<'_> {
    /// Polls until an answer arrives, the run ends or the time is over.
    fn answer(&self) -> Result<SwapAnswer, Error> {
        let begin = Instant::now();
        let timeout = self.arguments.timeout.map(Duration::from_secs);
        loop {
            // In this order: a run answers before it releases its directory.
            let runs = holder_of(&self.arguments.run).is_some();
            let there = self.mailbox.holds(self.number);
            if let Some(answer) = self.mailbox.answer(self.number)? {
                return Ok(answer);
            }
            if !runs || !there {
                return Err(Error::Usage(UsageError {
                    message: format!(
                        "{}: the run ended before it came to this request",
                        self.arguments.run.display()
                    ),
                    next_step: "continue it (host train --resume) and ask again".to_owned(),
                }));
            }
            if let Some(limit) = timeout.filter(|limit| begin.elapsed() >= *limit) {
                self.mailbox.withdraw(self.number);
                return Err(Error::Usage(UsageError {
                    message: format!(
                        "the run has not answered within {} s; the request is withdrawn",
                        limit.as_secs()
                    ),
                    next_step: "ask again with a longer --timeout, or with --no-wait".to_owned(),
                }));
            }
            if let Some(stage) = self.mailbox.stage(self.number) {
                self.bar.set_message(shown(&stage));
            }
            self.bar.tick();
            sleep(LOOK);
        }
    }
}

/// The run may have another working directory: folders get absolute paths.
fn absolute(dirs: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let absolute = |dir: &PathBuf| {
        std::path::absolute(dir).with_context(|| format!("{} is no path", dir.display()))
    };
    dirs.iter().map(absolute).collect()
}

fn nothing_runs(run: &Path) -> Error {
    let quoted = shell::quoted(&run.display().to_string());
    let (what, next_step) = if run.join("run.json").is_file() {
        (
            "no job is running there, the run in it has ended",
            format!("continue it first: host train ... --out {quoted} --resume"),
        )
    } else {
        (
            "no job is running there",
            "name the --out directory of a running `host train`".to_owned(),
        )
    };
    Error::Usage(UsageError {
        message: format!("{}: {what}", run.display()),
        next_step,
    })
}

/// A spinner on a terminal.
fn bar(text: &str) -> ProgressBar {
    let bar = if display::draws() {
        display::add(ProgressBar::new_spinner())
    } else {
        ProgressBar::hidden()
    };
    bar.set_message(text.to_owned());
    bar
}

fn shown(stage: &Stage) -> String {
    match stage {
        Stage::Planning => "planning".to_owned(),
        Stage::Loading { done, total } => format!("loading {done}/{total} weights"),
        Stage::Trying => "trying it on the next rows".to_owned(),
        Stage::TakingOver => "taking over".to_owned(),
    }
}

/// The lines of a swap's answer.
fn lines(answer: &SwapAnswer) -> String {
    let record = &answer.record;
    let beside = match (record.bytes_beside, &record.staged_in) {
        (0, _) | (_, None) => "nothing beside the old weights".to_owned(),
        (bytes, Some(place)) => format!("{} beside the old weights in {place}", Bytes(bytes)),
    };
    let mut lines = format!(
        "swapped {} in {:.1} s: {} weights encoded, {beside}\n",
        record.shown(),
        record.secs,
        record.encoded
    );
    if let (Some(before), Some(after)) = (record.loss_before, record.loss_after) {
        lines += &format!("loss on the next rows {before:.4} -> {after:.4}\n");
    }
    lines
}

fn refused(asked: &str, answer: SwapAnswer) -> Error {
    let reason = answer.record.reason.unwrap_or_default();
    Error::SwapRefused(SwapRefused {
        asked: asked.to_owned(),
        reason,
        exit_code: answer.exit_code,
        next_step: answer.next_step,
    })
}
