//! What a backend in the host's memory needs that is no arithmetic: buffers, streams whose work is
//! done when a call returns, prepared kernels, and launches checked and given as typed ranges.
//!
//! A backend brings a [`KernelMaker`]; [`HostDevice`] is the rest of its device.

mod call;
mod callback;
mod device;
mod epilogue;
mod init_draw;
mod kernel;
mod machine;
mod mapped_file;
mod memory;
mod options;
mod overlap;
mod request;
mod sequences;

pub use call::{Call, MOST_RANGES, Number, Place};
pub use callback::Callback;
pub use device::HostDevice;
pub use epilogue::Epilogue;
pub use init_draw::InitDraw;
pub use kernel::{KernelMaker, Made, Run, Setting};
pub use machine::{MachineMemory, processor};
pub use options::HostOptions;
pub use overlap::Overlap;
pub use request::{Asked, Expected};
pub use sequences::{CacheStart, CacheStarts, boundaries};
