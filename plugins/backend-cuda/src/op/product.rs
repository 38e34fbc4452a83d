//! The product of two matrices: what computes it, and its launch.
//!
//! Products of bf16 are cuBLASLt's where there is a library, all rows begin at multiples of 16
//! bytes, and it has an algorithm; the rest are by kernels of this backend. Products of f32 always
//! are: they are what other backends and cards are compared with, and their bits do not depend on
//! which libraries a machine has.

mod by_library;
mod own;

use espalier_interface::{DType, Result};

use crate::arguments::Argument;
use crate::direction::Direction;
use crate::kit::Kit;
use by_library::ByLibrary;
use own::OwnProduct;

pub use own::definitions;

/// The products of a request, `[rows, columns]` of sums of `depth` elements.
#[derive(Clone, Copy)]
pub struct ProductRequest {
    /// Dtypes of the first matrix and of the second.
    pub dtypes: [DType; 2],
    /// Where their elements lie.
    pub directions: [Direction; 2],
    /// Elements from one row of memory to the next in each, of the largest launch.
    pub strides: [usize; 2],
    /// Whether the strides are those of every launch.
    pub has_fixed_strides: bool,
    /// Rows, columns, depth of the largest launch.
    pub extents: [usize; 3],
    /// Dtype of the result.
    pub result: DType,
    /// Dtype of the bias, if there is one.
    pub bias: Option<DType>,
    /// Factor of the sums.
    pub alpha: f32,
    /// Whether something is added to the product.
    pub is_added_to: bool,
    /// Whether a residual is added, too.
    pub has_residual: bool,
}

/// What computes the products of a request.
pub struct Product {
    own: OwnProduct,
    library: Option<ByLibrary>,
}

/// A launch of a product.
pub struct ProductLaunch {
    /// Addresses of the matrices.
    pub matrices: [u64; 2],
    /// Elements from one row of memory to the next in each.
    pub strides: [usize; 2],
    /// Address of the result.
    pub result: u64,
    /// Rows, columns, depth.
    pub extents: [usize; 3],
    /// What is done with sums.
    pub finish: Finish,
    /// Address of [`Product::workspace_bytes`] bytes, a multiple of 64.
    pub workspace: u64,
}

/// What is done with sums.
#[derive(Clone, Copy)]
pub enum Finish {
    /// They are added to a gradient in f32 or bf16, times a factor.
    Accumulate(f32, DType),
    /// They are rounded and written.
    Write(Epilogue),
}

/// What is done with a sum that is written, as the kernels take it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Epilogue {
    /// Addresses of the bias in f32, bf16 and f16, of which at most one is there.
    pub bias: [u64; 3],
    /// Address of what is added, or 0.
    pub added: u64,
    /// Address of the residual, or 0.
    pub residual: u64,
    /// Factor of the rounded sum.
    pub alpha: f32,
    /// Whole words.
    pub unused: u32,
}

impl Epilogue {
    /// The sum alone.
    pub const SUM: Epilogue = Epilogue {
        bias: [0; 3],
        added: 0,
        residual: 0,
        alpha: 1.0,
        unused: 0,
    };

    /// The place of a bias in bf16.
    pub const BF16: usize = 1;
}

/// Rows, columns and depth, as the kernels take them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Extents(pub [i64; 3]);

#[allow(unsafe_code)] // Structs of numbers.
// SAFETY: addresses and numbers without padding.
unsafe impl Argument for Epilogue {}
#[allow(unsafe_code)]
// SAFETY: as above.
unsafe impl Argument for Extents {}

impl Product {
    /// What computes the products of a request.
    ///
    /// # Errors
    /// `DEVICE` where a kernel cannot be compiled, or cuBLASLt fails to choose an algorithm for the
    /// largest launch.
    pub fn new(kit: &Kit, of: &ProductRequest) -> Result<Self> {
        let library = ByLibrary::new(kit, of)?;
        let own = match &library {
            // For launches that the library refuses.
            Some(_) => OwnProduct::spare(kit, of)?,
            None => OwnProduct::new(kit, of)?,
        };
        Ok(Product { own, library })
    }

    /// Bytes of workspace that a launch has.
    pub fn workspace_bytes(&self) -> usize {
        self.library.as_ref().map_or(0, ByLibrary::workspace_bytes)
    }

    /// Puts a product on this thread's stream.
    ///
    /// # Errors
    /// `DEVICE`, `OUT_OF_MEMORY`.
    pub fn launch(&self, launch: &ProductLaunch) -> Result<()> {
        if let Some(library) = &self.library
            && library.launch(launch)?
        {
            return Ok(());
        }
        self.own.launch(launch)
    }
}
