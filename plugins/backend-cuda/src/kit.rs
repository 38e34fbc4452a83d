//! What ops are made of: compiled kernels, where they write what they find wrong, and the library
//! of products.

use std::sync::Arc;

use espalier_interface::{Decoder, Result};

use crate::fault::FaultPlace;
use crate::host_decode::HostDecode;
use crate::modules::{Function, Modules};
use crate::product_library::ProductLibrary;
use crate::sources::Source;

/// What ops are made of.
#[derive(Clone)]
pub struct Kit {
    /// Compiled kernels.
    pub modules: Arc<Modules>,
    /// Where kernels write what they find wrong.
    pub faults: Arc<FaultPlace>,
    /// cuBLASLt, where products of bf16 are its.
    pub products: Option<Arc<ProductLibrary>>,
    /// Where the user asks for it: what decodes weights that a card cannot decode.
    pub host_decode: Option<Arc<HostDecode>>,
    /// The decoders of the request's params.
    pub decoders: Vec<Option<Decoder>>,
}

impl Kit {
    /// The kernel `name` of `source`.
    ///
    /// # Errors
    /// `DEVICE` where it would have to be compiled and there is no compiler.
    pub fn function(&self, source: Source, name: &str) -> Result<Function> {
        self.modules.function(source, "", name)
    }
}
