//! A dtype known when a kernel is prepared -> the element type that its code is generic over.

/// Runs the body with `$E` as the element type of compute dtype `$dtype`, or refuses the dtype for
/// `$asked`.
macro_rules! compute {
    ($asked:expr, $dtype:expr, $E:ident => $body:expr) => {
        match $dtype {
            espalier_interface::DType::F32 => {
                type $E = f32;
                $body
            }
            espalier_interface::DType::BF16 => {
                type $E = half::bf16;
                $body
            }
            espalier_interface::DType::F64 => {
                type $E = f64;
                $body
            }
            other => Err($asked.bad_dtype(other, "f32, bf16 or f64")),
        }
    };
}

/// As `compute`, for dtypes that params and files are stored in: f16 too.
macro_rules! stored {
    ($asked:expr, $dtype:expr, $E:ident => $body:expr) => {
        match $dtype {
            espalier_interface::DType::F16 => {
                type $E = half::f16;
                $body
            }
            other => $crate::dispatch::compute!($asked, other, $E => $body),
        }
    };
}

/// Runs the body with `$G` as the element type of a param's gradient, bf16 or the dtype of sums of
/// `$E`, in which all others are refused by the op's definition.
macro_rules! gradient {
    ($dtype:expr, $E:ident, $G:ident => $body:expr) => {
        match $dtype {
            espalier_interface::DType::BF16 => {
                type $G = half::bf16;
                $body
            }
            _ => {
                type $G = <$E as espalier_kernels::element::Element>::Acc;
                $body
            }
        }
    };
}

/// As `compute`, for dtypes that are accumulated in.
macro_rules! reduce {
    ($asked:expr, $dtype:expr, $E:ident => $body:expr) => {
        match $dtype {
            espalier_interface::DType::F32 => {
                type $E = f32;
                $body
            }
            espalier_interface::DType::F64 => {
                type $E = f64;
                $body
            }
            other => Err($asked.bad_dtype(other, "f32 or f64")),
        }
    };
}

pub(crate) use {compute, gradient, reduce, stored};
