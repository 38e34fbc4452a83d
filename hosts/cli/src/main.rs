//! The program `host`: turns a command line into one call of the trainer.

mod arguments;
mod command;
mod crash;
mod failure;
mod log;
mod progress;
mod sdk;
mod signals;
mod watch;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use espalier_trainer::call_watch;
use espalier_trainer::data::render_templates_with;
use espalier_trainer::notice::on_notice;
use espalier_trainer::ranks::on_last_word;
use indicatif::MultiProgress;

use arguments::{Arguments, Command, THIS_PROGRAM};

// Linked in, so that their declarations register themselves.
#[cfg(feature = "embedded")]
use {
    espalier_backend_cpu as _, espalier_collective_threads as _, espalier_ddp as _,
    espalier_fsdp as _, espalier_hqq as _, espalier_llama as _, espalier_lora as _,
    espalier_mistral as _, espalier_nf4 as _, espalier_qwen2 as _, espalier_qwen3 as _,
    espalier_single as _,
};

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return failure::usage(&error),
    };
    if !arguments.command.is_for_another() {
        crash::watch();
        render_templates_with(THIS_PROGRAM);
        on_last_word(failure::last_word);
        if let Err(error) = call_watch::start() {
            eprintln!("note: plugins' calls are not watched: {error}");
        }
    }
    let bars = MultiProgress::new();
    log::start(&bars);
    let above = bars.clone();
    on_notice(move |line| above.suspend(|| eprintln!("note: {line}")));
    let mut out = io::stdout().lock();
    let done = match arguments.command {
        Command::Train(arguments) => command::train::run(&arguments, &bars, &mut out),
        Command::Plan(arguments) => command::plan::run(&arguments, &mut out),
        Command::Compare(arguments) => command::compare::run(&arguments, &bars, &mut out),
        Command::Eval(arguments) => command::eval::run(&arguments, &bars, &mut out),
        Command::Data(arguments) => command::data::run(&arguments.command, &mut out),
        Command::Report(arguments) => command::report::run(&arguments, &mut out),
        Command::Merge(arguments) => command::merge::run(&arguments, &bars, &mut out),
        Command::Quantize(arguments) => command::quantize::run(&arguments, &bars, &mut out),
        Command::Generate(arguments) => command::generate::run(&arguments, &bars, &mut out),
        Command::Swap(arguments) => command::swap::run(&arguments, &bars, &mut out),
        Command::Plugins(arguments) => command::plugins::run(&arguments.command, &mut out),
        Command::Doctor(arguments) => command::doctor::run(&arguments, &mut out),
    };
    match done.and_then(|()| Ok(out.flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}
