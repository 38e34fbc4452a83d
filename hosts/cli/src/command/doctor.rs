//! `host doctor`: this machine and where plugins are looked for.

use std::io::Write;

use anyhow::Result;
use espalier_trainer::config::resolve;
use espalier_trainer::error::Error;
use espalier_trainer::machine::Machine;
use espalier_trainer::search::search_order;

use crate::arguments::DoctorArguments;

/// Prints the machine, versions and the plugin search order.
pub fn run(arguments: &DoctorArguments, out: &mut dyn Write) -> Result<()> {
    let resolved = resolve(&arguments.config.sources()).map_err(Error::from)?;
    let machine = Machine::detect();
    let processor = machine.processor.as_deref().unwrap_or("unknown");
    let found = match machine.instruction_set.is_empty() {
        true => "baseline".to_owned(),
        false => machine.instruction_set.join(" "),
    };
    writeln!(out, "host          {}", env!("CARGO_PKG_VERSION"))?;
    writeln!(out, "system        {} {}", machine.os, machine.arch)?;
    writeln!(out, "processor     {processor}")?;
    writeln!(out, "instructions  {found}")?;
    writeln!(out, "threads       {}", machine.cores)?;
    let (memory, available) = (machine.memory, machine.available);
    writeln!(out, "memory        {memory}, {available} available")?;
    writeln!(out, "\nplugin libraries are looked for in")?;
    for place in search_order(&resolved) {
        let missing = match place.path.is_dir() {
            true => "",
            false => ", not there",
        };
        writeln!(
            out,
            "  {} ({}{missing})",
            place.path.display(),
            place.reason
        )?;
    }
    Ok(())
}
