//! `run N`: what a machine with a card, without Rust and without a network, is measured with.
//!
//! `cargo xtask gpu pack` puts it beside the programs that it needs. Run 1 is versions, two
//! ceilings, the kit of ops, golden data, trainings compared, a time for each op, and NVIDIA's
//! sanitizer. Run 2 is the step of an 8B model, and that of the peers. Run 3 is a 70B model whose
//! weights stay in the host's memory, and the longest row of an 8B model, within the memory of a
//! small card. Each part is a process of its own with a limit of time; a part that fails stops no
//! other. The results are one JSON file, which is written after each part.
#![allow(clippy::print_stdout, clippy::print_stderr)] // A developer's tool prints.

mod bus;
mod ceilings;
mod golden;
mod host_training;
mod kit;
mod longest_row;
mod op_launch;
mod op_shapes;
mod op_times;
mod operand;
mod part;
mod peer;
mod process;
mod record;
mod rows;
mod sanitizer;
mod setting;
mod step;
mod streamed_model;
mod trainings;
mod versions;

use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;

use part::Part;
use record::Record;
use rows::Rows;
use setting::{Arguments, Setting};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match measure(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &Arguments) -> Result<()> {
    let setting = Setting::new(arguments)?;
    let parts = part::of_run(arguments.run);
    if let Some(name) = &arguments.part {
        let part = parts.iter().find(|part| part.name == name);
        let part = part.with_context(|| format!("run {} has no part `{name}`", arguments.run))?;
        return (part.measure)(&setting, &mut Rows);
    }
    for name in &arguments.only {
        if !parts.iter().any(|part| part.name == name) {
            let names: Vec<&str> = parts.iter().map(|part| part.name).collect();
            bail!(
                "run {} has no part `{name}`; its parts are {}",
                arguments.run,
                names.join(", ")
            );
        }
    }
    let is_asked = |part: &&Part| {
        let only = &arguments.only;
        only.is_empty() || part.is_always || only.iter().any(|name| name == part.name)
    };
    let parts: Vec<&Part> = parts.iter().filter(is_asked).collect();
    let mut record = Record::new(arguments.run, &setting)?;
    for together in parts.chunk_by(|a, b| !a.is_alone && !b.is_alone) {
        for done in process::run_all(together, arguments, &setting, record.begin) {
            record.add(done)?;
        }
    }
    println!("{}", record.table());
    println!("results: {}", record.path().display());
    let failed = record.failed();
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}
