//! The machine in words, and its instruction set in a run's record.

use espalier_host_device::processor;
use espalier_kernels::matmul::Isa;

/// The processor's name, the number of threads used, and why instructions that it has are not.
pub fn description(threads: usize) -> String {
    let unused = Isa::unused().map_or(String::new(), |why| format!("; {why}"));
    format!("{}, {threads} threads{unused}", processor())
}

/// The instruction set `isa` in a run's record: without vectors, the processor's family.
pub fn instruction_set(isa: Isa) -> &'static str {
    match isa {
        Isa::Portable => std::env::consts::ARCH,
        other => other.name(),
    }
}
