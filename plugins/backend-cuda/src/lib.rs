//! The backend `cuda`: every op on NVIDIA's cards, from compute capability 8.0 on, by kernels of
//! its own; products of bf16 by cuBLASLt where it is there.
//!
//! The libraries of CUDA are opened when a device is asked for, and not linked: a host without them
//! reads this plugin, lists it, and says which library is missing. Kernels are CUDA C++ in
//! `kernels/cuda`. NVRTC compiles them for the card, once: the results are kept on disk.
//!
//! The component `nccl` of the same library joins ranks with a card each.
//!
//! docs/gpu has what it did on a card. `tests/gpu` runs it over a driver and a compiler without
//! one.

mod arguments;
mod backend;
mod card;
mod compiler;
mod current;
mod decoder;
mod direction;
mod driver;
mod fault;
mod functions;
mod host_decode;
mod kernel_files;
mod kernels;
mod kit;
mod libraries;
mod loader;
mod lost_groups;
mod modules;
mod nccl;
mod op;
mod plugin;
mod product_library;
mod record;
mod registered;
mod settings;
mod sources;
mod staging;
mod streams;
mod tables;

pub use backend::CudaBackend;
pub use nccl::Nccl;
pub use op::variants::{Variant, code_variants, variants};
pub use record::{KernelRecord, Recorder};
