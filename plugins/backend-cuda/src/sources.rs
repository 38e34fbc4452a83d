//! The kernels' sources, which the library holds.

/// A file.
#[derive(Clone, Copy)]
pub struct Source {
    /// Its name, as errors and `#include` have it.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

macro_rules! source {
    ($folder:literal, $name:literal) => {
        Source {
            name: $name,
            text: include_str!(concat!("../../../kernels/cuda/", $folder, $name)),
        }
    };
}

/// Files that others include.
pub const HEADERS: &[Source] = &[
    source!("", "device.cuh"),
    source!("", "element.cuh"),
    source!("", "packs.cuh"),
    source!("norm/", "row.cuh"),
    source!("linear/", "segments.cuh"),
    source!("linear/", "codes.cuh"),
    source!("linear/", "tables.cuh"),
    source!("linear/", "steps.cuh"),
    source!("linear/", "decode.cuh"),
    source!("linear/", "product.cuh"),
    source!("attention/", "shape.cuh"),
    source!("attention/", "flash.cuh"),
];

/// Sums, products, functions, channels, gates, dropout.
pub const ARITHMETIC: Source = source!("arithmetic/", "arithmetic.cu");
/// Attention's gradients by keys and values on tensor cores.
pub const FLASH_DKV: Source = source!("attention/", "flash_dkv.cu");
/// Attention's gradient by queries on tensor cores.
pub const FLASH_DQ: Source = source!("attention/", "flash_dq.cu");
/// Attention on tensor cores.
pub const FLASH_FORWARD: Source = source!("attention/", "flash_forward.cu");
/// Attention for any head size.
pub const ATTENTION: Source = source!("attention/", "plain.cu");
/// Sums of columns.
pub const COLUMN_SUMS: Source = source!("norm/", "column_sums.cu");
/// The values of a packed weight.
pub const DECODE: Source = source!("linear/", "decode.cu");
/// Tables by token.
pub const EMBEDDING: Source = source!("embedding/", "embedding.cu");
/// A few rows times a weight.
pub const FEW_ROWS: Source = source!("linear/", "few_rows.cu");
/// What a library's product is still without.
pub const FINISH: Source = source!("linear/", "finish.cu");
/// Casts, initial values, sums of squares.
pub const FLAT: Source = source!("flat/", "flat.cu");
/// Layer norms.
pub const LAYER_NORM: Source = source!("norm/", "layer_norm.cu");
/// Optimizers.
pub const OPTIMIZER: Source = source!("optimizer/", "optimizer.cu");
/// Sums of several ranks' numbers.
pub const ORDERED_SUM: Source = source!("collective/", "ordered_sum.cu");
/// Products with sums in f32 on plain cores.
pub const PRODUCT_F32: Source = source!("linear/", "product_f32.cu");
/// Products of bf16 on tensor cores.
pub const PRODUCT_BF16: Source = source!("linear/", "product_bf16.cu");
/// Root mean square norms.
pub const RMS_NORM: Source = source!("norm/", "rms_norm.cu");
/// Rotations by positions.
pub const ROPE: Source = source!("rope/", "rope.cu");
/// Norms of a weight's rows with its low-rank update.
pub const ROW_NORMS: Source = source!("linear/", "row_norms.cu");
/// A number of each row, and losses.
pub const ROWS: Source = source!("rows/", "rows.cu");
