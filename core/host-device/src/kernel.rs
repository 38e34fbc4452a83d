//! A requested kernel -> a function of a launch, which a backend makes.

use std::sync::Arc;

use espalier_interface::{Decoder, Result, Services};

use crate::{Asked, Call, Overlap};

/// Makes the kernels of a backend.
pub trait KernelMaker: Send + Sync {
    /// The backend's name, for errors.
    fn name(&self) -> &str;

    /// Prepares a requested kernel.
    ///
    /// # Errors
    /// `UNSUPPORTED` for an op, version, dtype or layout that this backend does not have, `INVALID`
    /// for a request that contradicts its op.
    fn prepare(&self, asked: &Asked<'_>, setting: &Setting<'_>) -> Result<Made>;
}

/// Further inputs of a kernel's preparation.
pub struct Setting<'a> {
    /// Decoders of the params, where their formats are callbacks.
    pub decoders: &'a [Option<Decoder>],
    /// The host's threads.
    pub services: &'a Arc<dyn Services>,
}

/// Runs a prepared kernel.
pub type Run = Box<dyn Fn(&Call<'_>) -> Result<()> + Send + Sync>;

/// A prepared kernel.
pub struct Made {
    /// Runs it.
    pub run: Run,
    /// Bytes of workspace that each launch needs.
    pub workspace_bytes: u64,
    /// Most bytes that a library allocates by itself during a launch. Launches for which the
    /// device's memory has no room for them are refused.
    pub temporary_bytes: u64,
    /// Overlaps that its ranges may have.
    pub overlap: Overlap,
}

impl Made {
    /// A kernel without workspace.
    pub fn new(run: impl Fn(&Call<'_>) -> Result<()> + Send + Sync + 'static) -> Self {
        Made {
            run: Box::new(run),
            workspace_bytes: 0,
            temporary_bytes: 0,
            overlap: Overlap::None,
        }
    }

    /// The kernel with `bytes` of workspace.
    #[must_use]
    pub fn with_workspace(self, bytes: usize) -> Self {
        Made {
            workspace_bytes: bytes as u64,
            ..self
        }
    }

    /// The kernel, whose library allocates at most `bytes` in a launch.
    #[must_use]
    pub fn with_temporaries(self, bytes: u64) -> Self {
        Made {
            temporary_bytes: bytes,
            ..self
        }
    }

    /// The kernel, which may write its first output over input `index`.
    #[must_use]
    pub fn in_place_of(self, index: usize) -> Self {
        Made {
            overlap: Overlap::InPlaceOf(index),
            ..self
        }
    }
}
