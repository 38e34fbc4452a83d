//! The backend `cuda`: its kernels under NVIDIA's compiler, its runs over mocks, and the pack that
//! measures it on a card.

mod compile;
mod emulate;
mod nvrtc;
mod pack;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::workspace::Workspace;

/// Options of `cargo xtask gpu`.
#[derive(Args)]
pub struct GpuOptions {
    #[command(subcommand)]
    command: GpuCommand,
}

#[derive(Subcommand)]
enum GpuCommand {
    /// Compile every kernel of the backend `cuda` with NVIDIA's NVRTC, and record registers and
    /// spills
    Compile(compile::CompileOptions),
    /// Run the kit of ops and short trainings over a driver without a card, in all orders of
    /// threads and streams
    Emulate(emulate::EmulateOptions),
    /// Pack what a machine with a card, without Rust and network, is measured with
    Pack(pack::PackOptions),
}

/// Runs the command.
///
/// # Errors
/// Where it fails.
pub fn check(workspace: &Workspace, options: &GpuOptions) -> Result<()> {
    match &options.command {
        GpuCommand::Compile(options) => compile::check(workspace, options),
        GpuCommand::Emulate(options) => emulate::check(workspace, options),
        GpuCommand::Pack(options) => pack::pack(workspace, options),
    }
}
