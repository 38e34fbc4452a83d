//! The product of two matrices: which kernel computes it, and its launch.

use espalier_interface::{DType, Result};

use crate::arguments::{Argument, Arguments};
use crate::kit::Kit;
use crate::modules::Function;
use crate::sources::{PRODUCT_BF16, PRODUCT_F32};

/// Where element `(i, k)` of a matrix lies, k in the direction of the sum.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// At `i stride + k`.
    Deep,
    /// At `i + k stride`.
    Wide,
}

/// A kernel of products in one dtype.
pub struct Product {
    kernel: Function,
    dtype: DType,
    directions: [Direction; 2],
}

/// A launch of a product `[rows, columns]` of sums of `depth` elements.
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
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Matrix([i64; 2]);

/// Rows, columns and depth, as the kernels take them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Extents(pub [i64; 3]);

#[allow(unsafe_code)] // Structs of numbers.
// SAFETY: addresses and numbers without padding.
unsafe impl Argument for Epilogue {}
#[allow(unsafe_code)]
// SAFETY: as above.
unsafe impl Argument for Matrix {}
#[allow(unsafe_code)]
// SAFETY: as above.
unsafe impl Argument for Extents {}

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

impl Product {
    /// The kernel of products in `dtype` whose second matrix is of `second`. `strides` are those of
    /// every launch, or none where they differ.
    ///
    /// # Errors
    /// `DEVICE` where it cannot be compiled.
    pub fn new(
        kit: &Kit,
        [dtype, second]: [DType; 2],
        directions: [Direction; 2],
        strides: Option<[usize; 2]>,
    ) -> Result<Self> {
        let kernel = if dtype == DType::F32 {
            let name = format!("product_f32_{}", second.name());
            kit.function(PRODUCT_F32, &name)?
        } else {
            let is_aligned = strides
                .is_some_and(|strides| strides.iter().all(|stride| stride.is_multiple_of(ALIGNED)));
            let definitions = definitions(directions, is_aligned);
            kit.modules
                .function(PRODUCT_BF16, &definitions, "product_bf16")?
                .with_shared(TILE_BF16.1)?
        };
        Ok(Product {
            kernel,
            dtype,
            directions,
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
