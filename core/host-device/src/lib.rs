//! What a backend in the host's memory needs that is no arithmetic: buffers, streams whose work is
//! done when a call returns, prepared kernels, and launches checked and given as typed ranges.
//!
//! A backend brings a [`KernelMaker`]; [`HostDevice`] is the rest of its device. A device with
//! memory of its own takes from here what does not depend on the host's: [`PreparedKernels`] over
//! a [`LaunchMemory`], and a [`Budget`].

mod budget;
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
mod prepared;
mod request;
mod sequences;
mod span;

pub use budget::Budget;
pub use call::{Call, MOST_RANGES, Number, Place};
pub use callback::Callback;
pub use device::HostDevice;
pub use epilogue::Epilogue;
pub use init_draw::InitDraw;
pub use kernel::{KernelMaker, Made, Run, Setting};
pub use machine::{MachineMemory, processor};
pub use options::HostOptions;
pub use overlap::Overlap;
pub use prepared::{LaunchMemory, PreparedKernels};
pub use request::{Asked, Expected};
pub use sequences::{CacheStart, CacheStarts, boundaries};
pub use span::{Span, check_lengths, check_within};
