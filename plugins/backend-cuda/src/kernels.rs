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

    fn prepare(&self, asked: &Asked<'_>, setting: &Setting<'_>) -> Result<Made> {
        let kit = Kit {
            decoders: setting.decoders.to_vec(),
            ..self.kit.clone()
        };
        op::prepare(asked, &kit)
    }
}
