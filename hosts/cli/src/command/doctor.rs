//! `host doctor`: this machine, its devices, the plugins and where they are looked for.

use std::io::{self, Write};

use anyhow::Result;
use espalier_compile::decompose::Lacking;
use espalier_config::resolve;
use espalier_registry::devices::sample::PRODUCT;
use espalier_registry::devices::{BackendDevices, devices};
use espalier_registry::{Registry, SearchPath};
use espalier_system::machine::Machine;
use espalier_system::threads::HostServices;
use espalier_trainer::bytes::Bytes;
use espalier_trainer::error::Error;

use crate::arguments::DoctorArguments;
use crate::failure;

/// Prints what was found and what is missing; neither is a failure of the command.
pub fn run(arguments: &DoctorArguments, out: &mut dyn Write) -> Result<()> {
    arguments.check()?;
    let resolved = resolve(&arguments.config.sources()).map_err(Error::from)?;
    let config = resolved.config();
    let services = HostServices::start(config.run.threads)?;
    let registry = Registry::discover(&SearchPath::of(&resolved));
    machine(&Machine::detect(), out)?;
    writeln!(out, "\ndevices:")?;
    let backends = devices(config, &registry, services);
    if backends.is_empty() {
        writeln!(out, "  none: no backend was found")?;
    }
    for backend in &backends {
        write_devices(backend, out)?;
    }
    writeln!(out, "\nplugin libraries that cannot be used:")?;
    let broken = registry.broken();
    if broken.is_empty() {
        writeln!(out, "  none")?;
    }
    for library in &broken {
        writeln!(out, "  {library}; next: {}", library.next_step())?;
    }
    writeln!(out, "\nplugins are looked for in this order:")?;
    for place in registry.search().shown() {
        writeln!(out, "  {place}")?;
    }
    Ok(())
}

fn machine(machine: &Machine, out: &mut dyn Write) -> io::Result<()> {
    let processor = machine.processor.as_deref().unwrap_or("unknown");
    let found = if machine.instruction_set.is_empty() {
        "baseline".to_owned()
    } else {
        machine.instruction_set.join(" ")
    };
    writeln!(out, "host          {}", env!("CARGO_PKG_VERSION"))?;
    writeln!(out, "system        {} {}", machine.os, machine.arch)?;
    writeln!(out, "processor     {processor}")?;
    writeln!(out, "instructions  {found}")?;
    writeln!(out, "threads       {}", machine.cores)?;
    let (memory, available) = (machine.memory, machine.available);
    writeln!(out, "memory        {memory}, {available} available")
}

fn write_devices(found: &BackendDevices, out: &mut dyn Write) -> io::Result<()> {
    let backend = &found.backend;
    write_found(found, out)?;
    match &found.logged {
        Ok(lines) => lines
            .iter()
            .try_for_each(|line| writeln!(out, "    with a product of {PRODUCT}: {line}"))?,
        Err(error) => writeln!(
            out,
            "    {backend} cannot compute a product of {PRODUCT}: {}",
            failure::chain(error)
        )?,
    }
    let Lacking {
        decomposed,
        unmade,
        missing,
    } = &found.lacking;
    let unmade = unmade.iter().map(|[op, part]| format!("{op} (of {part})"));
    let of_names = |names: &[&str]| names.iter().copied().map(str::to_owned).collect();
    for (what, ops) in [
        ("runs by decomposition", of_names(decomposed)),
        (
            "lacks, with a part of its decomposition",
            unmade.collect::<Vec<_>>(),
        ),
        ("lacks, without a decomposition", of_names(missing)),
    ] {
        if !ops.is_empty() {
            writeln!(out, "    {backend} {what}: {}", ops.join(", "))?;
        }
    }
    Ok(())
}

fn write_found(found: &BackendDevices, out: &mut dyn Write) -> io::Result<()> {
    let backend = &found.backend;
    match &found.devices {
        Ok(devices) if devices.is_empty() => writeln!(out, "  {backend}: none found"),
        Ok(devices) => devices.iter().try_for_each(|device| {
            let (memory, free) = (Bytes(device.memory_bytes), Bytes(device.free_bytes));
            writeln!(
                out,
                "  {} (backend {backend}): {}, {}, {memory}, {free} free",
                device.name, device.description, device.instruction_set
            )
        }),
        Err(error) => writeln!(out, "  {backend}: {}", failure::chain(error)),
    }
}
