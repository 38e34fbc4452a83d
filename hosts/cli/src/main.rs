//! The program `host`: turns a command line into one call of the trainer.

mod arguments;
mod command;
mod crash;
mod display;
mod events;
mod exits;
mod failure;
mod hub;
mod log;
mod output;
mod progress;
mod sdk;
mod signals;
mod visible;
mod watch;

use std::process::ExitCode;

use clap::Parser;
use espalier_data::render_templates_with;
use espalier_engine::call_watch;
use espalier_engine::last_word::on_last_word;
use espalier_engine::load::cache_weights_in;
use espalier_system::notice::on_notice;

use arguments::{Arguments, Command, THIS_PROGRAM};
use command::cache::weight_cache;
use output::Output;

// Linked in, so that its plugins and defaults register themselves.
use espalier_shipped as _;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return failure::usage(&error),
    };
    let mut _at_work = None;
    if !arguments.command.is_for_another() {
        crash::watch();
        _at_work = Some(exits::watch());
        display::keep_panics();
        render_templates_with(THIS_PROGRAM);
        if let Some(directory) = weight_cache() {
            cache_weights_in(directory, THIS_PROGRAM.into());
        }
        on_last_word(failure::last_word);
        if let Err(error) = call_watch::start() {
            display::say(&format!("note: plugins' calls are not watched: {error}"));
        }
    }
    if let Err(error) = signals::let_large_writes_fail() {
        display::say(&format!(
            "note: a limit on the size of files ends the program: {error}"
        ));
    }
    log::start();
    on_notice(|line| display::say(&format!("note: {line}")));
    if !arguments.command.is_for_another() {
        hub::start();
    }
    let mut out = Output::new();
    if let Some(number) = arguments.events
        && let Err(error) = events::start(number)
    {
        return failure::concluded(Err(error.into()), &mut out);
    }
    let done = match arguments.command {
        Command::Train(arguments) => command::train::run(&arguments, &mut out),
        Command::Plan(arguments) => command::plan::run(&arguments, &mut out),
        Command::Compare(arguments) => command::compare::run(&arguments, &mut out),
        Command::Eval(arguments) => command::eval::run(&arguments, &mut out),
        Command::Data(arguments) => command::data::run(&arguments.command, &mut out),
        Command::Report(arguments) => command::report::run(&arguments, &mut out),
        Command::Merge(arguments) => command::merge::run(&arguments, &mut out),
        Command::Quantize(arguments) => command::quantize::run(&arguments, &mut out),
        Command::Expand(arguments) => command::expand::run(&arguments, &mut out),
        Command::Split(arguments) => command::split::run(&arguments, &mut out),
        Command::Generate(arguments) => command::generate::run(&arguments, &mut out),
        Command::Swap(arguments) => command::swap::run(&arguments, &mut out),
        Command::Plugins(arguments) => command::plugins::run(&arguments.command, &mut out),
        Command::Config(arguments) => command::config::run(&arguments, &mut out),
        Command::Import(arguments) => command::import::run(&arguments, &mut out),
        Command::Cache(arguments) => command::cache::run(&arguments, &mut out),
        Command::Doctor(arguments) => command::doctor::run(&arguments, &mut out),
        Command::Completions(arguments) => command::shell::completions(&arguments, &mut out),
        Command::Manual(arguments) => command::shell::manual(&arguments, &mut out),
    };
    failure::concluded(done, &mut out)
}
