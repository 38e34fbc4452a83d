//! A product by a kernel of this backend.

use espalier_interface::{DType, Result};

use super::{Epilogue, Extents, Finish, ProductLaunch, ProductRequest};
use crate::arguments::{Argument, Arguments};
use crate::direction::Direction;
use crate::kit::Kit;
use crate::modules::Function;
use crate::sources::{PRODUCT_BF16, PRODUCT_F32, Source};

/// A kernel of products in one dtype.
pub struct OwnProduct {
    kernel: Function,
    dtype: DType,
    directions: [Direction; 2],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Matrix([i64; 2]);

#[allow(unsafe_code)] // A struct of numbers.
// SAFETY: numbers without padding.
unsafe impl Argument for Matrix {}

/// Rows and columns of a block's tile, and its shared memory.
const TILE_F32: (usize, u32) = (64, 2 * 16 * 68 * 4);
const TILE_BF16: (usize, u32) = (128, 4 * 128 * 32 * 2);

/// Elements that a copy of 16 bytes has.
const ALIGNED: usize = 8;

/// What stands before the kernel of bf16; `is_aligned` is whether rows begin at 16 bytes.
pub fn definitions(directions: [Direction; 2], is_aligned: bool) -> String {
    let [a, b] = directions.map(|direction| u8::from(direction == Direction::Deep));
    let aligned = u8::from(is_aligned);
    format!("#define A_DEEP {a}\n#define B_DEEP {b}\n#define ALIGNED {aligned}\n")
}

impl OwnProduct {
    /// The kernel of a request's products.
    ///
    /// # Errors
    /// `DEVICE` where it cannot be compiled.
    pub fn new(kit: &Kit, of: &ProductRequest) -> Result<Self> {
        Self::with(of, |source, definitions, name| {
            kit.modules.function(source, definitions, name)
        })
    }

    /// The same of a request whose products something else computes, but for launches that it
    /// refuses: the first of them compiles the kernel.
    ///
    /// # Errors
    /// `DEVICE` where the card has too little shared memory.
    pub fn spare(kit: &Kit, of: &ProductRequest) -> Result<Self> {
        Self::with(of, |source, definitions, name| {
            Ok(kit.modules.spare_function(source, definitions, name))
        })
    }

    fn with(
        of: &ProductRequest,
        function: impl FnOnce(Source, &str, &str) -> Result<Function>,
    ) -> Result<Self> {
        let [dtype, second] = of.dtypes;
        let kernel = if dtype == DType::F32 {
            let name = format!("product_f32_{}", second.name());
            function(PRODUCT_F32, "", &name)?
        } else {
            let is_aligned = |stride: &usize| stride.is_multiple_of(ALIGNED);
            let is_aligned = of.has_fixed_strides && of.strides.iter().all(is_aligned);
            let definitions = definitions(of.directions, is_aligned);
            let kernel = function(PRODUCT_BF16, &definitions, "product_bf16")?;
            kernel.with_shared(TILE_BF16.1)?
        };
        Ok(OwnProduct {
            kernel,
            dtype,
            directions: of.directions,
        })
    }

    /// Puts a product on this thread's stream.
    ///
    /// # Errors
    /// `DEVICE`.
    pub fn launch(&self, launch: &ProductLaunch) -> Result<()> {
        let matrix = |index: usize| {
            let stride = launch.strides[index] as i64;
            match self.directions[index] {
                Direction::Deep => Matrix([stride, 1]),
                Direction::Wide => Matrix([1, stride]),
            }
        };
        // As `Output` of the kernels.
        let (epilogue, output) = match launch.finish {
            Finish::Write(epilogue) => (epilogue, 0),
            Finish::Accumulate(alpha, dtype) => {
                let epilogue = Epilogue {
                    alpha,
                    ..Epilogue::SUM
                };
                (epilogue, if dtype == DType::F32 { 1 } else { 2 })
            }
        };
        let [a, b] = launch.matrices;
        let arguments = Arguments::new().with(a).with(b).with(launch.result);
        let arguments = arguments.with(matrix(0)).with(matrix(1));
        let arguments = arguments.with(Extents(launch.extents.map(|extent| extent as i64)));
        let arguments = arguments.with(epilogue).with(output);
        let (tile, shared) = if self.dtype == DType::F32 {
            TILE_F32
        } else {
            TILE_BF16
        };
        let [rows, columns, _] = launch.extents.map(|extent| extent.div_ceil(tile) as u64);
        self.kernel.launch([columns, rows, 1], shared, &arguments)
    }
}
