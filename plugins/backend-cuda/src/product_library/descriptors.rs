//! The descriptors that cuBLASLt is given: an operation, the layouts of matrices, what an algorithm
//! may need.
#![allow(unsafe_code)] // Calls of cuBLASLt.

use std::ffi::c_void;
use std::ptr::null_mut;

use cudarc::cublaslt::sys::{
    cublasComputeType_t, cublasLtEpilogue_t, cublasLtMatmulDescAttributes_t as OperationAttribute,
    cublasLtMatmulDescOpaque_t, cublasLtMatmulPreferenceAttributes_t as PreferenceAttribute,
    cublasLtMatmulPreferenceOpaque_t, cublasLtMatrixLayoutOpaque_t, cublasLtReductionScheme_t,
    cudaDataType,
};
use espalier_interface::{DType, Result};

use super::called;
use super::problem::{ALIGNMENT, Problem, Side};
use crate::functions::CublasLt;

/// A descriptor of cuBLASLt's.
pub struct Descriptor<T> {
    raw: *mut T,
    free: unsafe extern "C" fn(*mut T) -> u32,
}

/// What is multiplied, and what becomes of sums.
pub type Operation = Descriptor<cublasLtMatmulDescOpaque_t>;

/// Where the elements of a matrix lie.
pub type Layout = Descriptor<cublasLtMatrixLayoutOpaque_t>;

/// What an algorithm may need.
pub type Preference = Descriptor<cublasLtMatmulPreferenceOpaque_t>;

// SAFETY: descriptors are plain memory, which belongs to no thread.
unsafe impl<T> Send for Descriptor<T> {}

impl<T> Drop for Descriptor<T> {
    fn drop(&mut self) {
        // SAFETY: cuBLASLt made it, and nothing else frees it.
        unsafe { (self.free)(self.raw) };
    }
}

impl<T> Descriptor<T> {
    /// cuBLASLt's handle.
    pub fn raw(&self) -> *mut T {
        self.raw
    }
}

/// An address for the choice of an algorithm, which asks whether there is a bias and reads none.
const SOME_BIAS: u64 = 1 << 12;

/// `CUBLAS_OP_N` and `CUBLAS_OP_T` of `cublas_api.h`.
const TRANSPOSED: [i32; 2] = [0, 1];

/// cuBLASLt's name of a dtype.
fn data_type(dtype: DType) -> cudaDataType {
    match dtype {
        DType::BF16 => cudaDataType::CUDA_R_16BF,
        _ => cudaDataType::CUDA_R_32F,
    }
}

/// The operation of a problem, with sums in f32.
///
/// # Errors
/// `DEVICE`, `OUT_OF_MEMORY`.
pub fn operation(library: &'static CublasLt, problem: &Problem) -> Result<Operation> {
    let (compute, scale) = (
        cublasComputeType_t::CUBLAS_COMPUTE_32F,
        cudaDataType::CUDA_R_32F,
    );
    let mut raw = null_mut();
    // SAFETY: cuBLASLt writes a handle.
    called("operation", unsafe {
        (library.operation)(&raw mut raw, compute, scale)
    })?;
    let operation = Descriptor {
        raw,
        free: library.free_operation,
    };
    let transposes = Side::BOTH.map(|side| TRANSPOSED[usize::from(problem.is_transposed(side))]);
    use OperationAttribute as Attribute;
    set(
        library,
        &operation,
        Attribute::CUBLASLT_MATMUL_DESC_TRANSA,
        transposes[0],
    )?;
    set(
        library,
        &operation,
        Attribute::CUBLASLT_MATMUL_DESC_TRANSB,
        transposes[1],
    )?;
    if problem.has_bias {
        let epilogue = cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS as u32;
        set(
            library,
            &operation,
            Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE,
            epilogue,
        )?;
        set_bias(library, &operation, SOME_BIAS)?;
    }
    Ok(operation)
}

/// Makes the bias at `address` that of later multiplications, whose type is the result's.
///
/// # Errors
/// `DEVICE`.
pub fn set_bias(library: &CublasLt, operation: &Operation, address: u64) -> Result<()> {
    let attribute = OperationAttribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER;
    set(library, operation, attribute, address)
}

fn set<V>(
    library: &CublasLt,
    operation: &Operation,
    attribute: OperationAttribute,
    value: V,
) -> Result<()> {
    let at = (&raw const value).cast::<c_void>();
    // SAFETY: cuBLASLt copies the value, which has the attribute's size.
    called("attribute of an operation", unsafe {
        (library.set_operation)(operation.raw, attribute, at, size_of::<V>())
    })
}

/// The layout of a matrix `[rows, columns]` of columns that are `stride` elements apart.
///
/// # Errors
/// `DEVICE`, `OUT_OF_MEMORY`.
pub fn layout(
    library: &'static CublasLt,
    dtype: DType,
    [rows, columns]: [usize; 2],
    stride: usize,
) -> Result<Layout> {
    let (rows, columns, stride) = (rows as u64, columns as u64, stride as i64);
    let mut raw = null_mut();
    // SAFETY: cuBLASLt writes a handle.
    called("layout", unsafe {
        (library.layout)(&raw mut raw, data_type(dtype), rows, columns, stride)
    })?;
    Ok(Descriptor {
        raw,
        free: library.free_layout,
    })
}

/// What an algorithm may need: this much workspace, and addresses that are multiples of
/// [`ALIGNMENT`]. Parts of a sum are added in f32, in an order that the algorithm fixes.
///
/// # Errors
/// `DEVICE`, `OUT_OF_MEMORY`.
pub fn preference(library: &'static CublasLt, workspace_bytes: u64) -> Result<Preference> {
    let mut raw = null_mut();
    // SAFETY: cuBLASLt writes a handle.
    called("preference", unsafe { (library.preference)(&raw mut raw) })?;
    let preference = Descriptor {
        raw,
        free: library.free_preference,
    };
    use PreferenceAttribute as Attribute;
    let workspace = Attribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
    prefer(library, &preference, workspace, workspace_bytes)?;
    let scheme = cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;
    let schemes = Attribute::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK;
    prefer(library, &preference, schemes, scheme)?;
    for alignment in [
        Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
    ] {
        prefer(library, &preference, alignment, ALIGNMENT as u32)?;
    }
    Ok(preference)
}

fn prefer<V>(
    library: &CublasLt,
    preference: &Preference,
    attribute: PreferenceAttribute,
    value: V,
) -> Result<()> {
    let at = (&raw const value).cast::<c_void>();
    // SAFETY: as in `set`.
    called("preference of an algorithm", unsafe {
        (library.set_preference)(preference.raw, attribute, at, size_of::<V>())
    })
}
