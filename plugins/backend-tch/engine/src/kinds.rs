//! The dtypes of the interface, as libtorch names them.

use espalier_interface::{DType, PluginError, Result};
use tch::Kind;

/// libtorch's name of a dtype.
///
/// # Errors
/// `UNSUPPORTED` for a dtype that it lacks.
pub fn kind_of(dtype: DType) -> Result<Kind> {
    match dtype {
        DType::F64 => Ok(Kind::Double),
        DType::F32 => Ok(Kind::Float),
        DType::BF16 => Ok(Kind::BFloat16),
        DType::F16 => Ok(Kind::Half),
        DType::I64 => Ok(Kind::Int64),
        DType::I32 => Ok(Kind::Int),
        DType::I8 => Ok(Kind::Int8),
        DType::U8 => Ok(Kind::Uint8),
        other => Err(PluginError::unsupported(format!(
            "no tensors of {}",
            other.name()
        ))),
    }
}

/// The dtype of a kind that [`kind_of`] gives.
pub fn dtype_of(kind: Kind) -> DType {
    match kind {
        Kind::Double => DType::F64,
        Kind::BFloat16 => DType::BF16,
        Kind::Half => DType::F16,
        Kind::Int64 => DType::I64,
        Kind::Int => DType::I32,
        Kind::Int8 => DType::I8,
        Kind::Uint8 | Kind::Bool => DType::U8,
        _ => DType::F32,
    }
}
