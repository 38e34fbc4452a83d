//! What ops are made of: compiled kernels, and where they write what they find wrong.

use std::sync::Arc;

use espalier_interface::Result;

use crate::fault::FaultPlace;
use crate::modules::{Function, Modules};
use crate::sources::Source;

/// What ops are made of.
#[derive(Clone)]
pub struct Kit {
    /// Compiled kernels.
    pub modules: Arc<Modules>,
    /// Where kernels write what they find wrong.
    pub faults: Arc<FaultPlace>,
}

impl Kit {
    /// The kernel `name` of `source`.
    ///
    /// # Errors
    /// `DEVICE` where it cannot be compiled or loaded.
    pub fn function(&self, source: Source, name: &str) -> Result<Function> {
        self.modules.function(source, "", name)
    }
}
