//! Requests of kernels -> the card's functions and their launches.

use espalier_host_device::{Asked, KernelMaker, Made, Setting};
use espalier_interface::Result;

use crate::kit::Kit;
use crate::op;

/// The kernels of a card.
pub struct CudaKernels {
    /// What ops are made of.
    pub kit: Kit,
}

impl KernelMaker for CudaKernels {
    fn name(&self) -> &str {
        "cuda"
    }

    fn prepare(&self, asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
        op::prepare(asked, &self.kit)
    }
}
