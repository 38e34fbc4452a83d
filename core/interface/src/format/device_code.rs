//! A quantizer's own code that decodes its weights on a device.

use serde::{Deserialize, Serialize};

use crate::{PluginError, Result};

/// Code that decodes a weight where it is, for a format that no description covers
/// ([`Decoding::Callback`](super::Decoding::Callback)). It depends on the quantizer's options
/// alone, so that all its weights share what is compiled from it.
///
/// `cuda` is CUDA C++ that defines this function:
///
/// ```text
/// DEVICE void decode_elements(const Segments& segments, const Shape& shape,
///                             uint64_t first, int count, float* values)
/// ```
///
/// - It writes the values of the elements `first` to `first + count - 1` into `values[0]` to
///   `values[count - 1]`. Element `i` is at row `i / shape.columns`, column `i % shape.columns`.
/// - `first` is a multiple of `RUN`, which is 16. `count` is `RUN`, and less only where the weight
///   ends. A thread calls it for each run that it needs, any number of times and in any order.
/// - `segments.start[k]` points to segment `k` of the format, as `const uint8_t*`. It is a multiple
///   of 64, and 64 bytes behind the segment's end may be read.
/// - Values are those of [`Quantizer::decode`](crate::Quantizer::decode), bit for bit. The compiler
///   contracts no product and sum (`--fmad=false`); `+ - * /`, `fmaf` and `sqrtf` round as on the
///   processor. Other functions of CUDA may not.
/// - It may use the integers `uint8_t` to `int64_t`; `bf16` and `f16`, numbers as stored;
///   `number<T>(segment, at)`, the number at `at` of a segment of `f32`, `bf16` or `f16`, in f32;
///   `float_bits` and `bits_float`. It may define functions with `DEVICE`, and tables with
///   `__constant__`.
/// - It includes nothing, writes nothing else, and has no shared memory, barriers, or calls in
///   which threads meet.
///
/// The code is in a namespace of its own. The compiler's messages have its own line numbers. A
/// backend that compiles CUDA C++ says so by its capability `device_code`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DeviceCode {
    /// CUDA C++ from compute capability 8.0 on.
    pub cuda: String,
}

impl DeviceCode {
    /// The function that the code defines.
    pub const FUNCTION: &str = "decode_elements";

    /// The capability of a backend that compiles such code; its value is the field's name, `cuda`.
    pub const CAPABILITY: &str = "device_code";

    /// Most bytes of a code.
    pub const MOST_BYTES: usize = 1 << 16;

    /// Code in CUDA C++.
    pub fn cuda(text: &str) -> Self {
        DeviceCode {
            cuda: text.to_owned(),
        }
    }

    /// Checks what can be seen without a compiler.
    ///
    /// # Errors
    /// `INVALID` for a text that is too long, holds a zero byte, or does not have the function's
    /// name.
    pub fn validate(&self) -> Result<()> {
        let (bytes, most) = (self.cuda.len(), Self::MOST_BYTES);
        if bytes > most {
            return Err(PluginError::invalid(format!(
                "device code of {bytes} bytes, expected at most {most}"
            )));
        }
        if self.cuda.contains('\0') {
            return Err(PluginError::invalid(
                "device code with a zero byte, expected a text",
            ));
        }
        if !self.cuda.contains(Self::FUNCTION) {
            return Err(PluginError::invalid(format!(
                "device code that does not define the function `{}`",
                Self::FUNCTION
            )));
        }
        Ok(())
    }
}
