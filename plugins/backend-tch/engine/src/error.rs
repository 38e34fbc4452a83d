//! An error of libtorch -> a plugin's error.

use espalier_interface::{ErrorCode, PluginError, Result};
use tch::TchError;

/// Words by which libtorch says that it had no memory.
const NO_MEMORY: [&str; 5] = [
    "ALLOC_FAILED",
    "DefaultCPUAllocator",
    "not enough memory",
    "out of memory",
    "std::bad_alloc",
];

/// The result of a call of libtorch, with its error as a plugin's.
pub fn checked<T>(result: std::result::Result<T, TchError>) -> Result<T> {
    result.map_err(|error| failure(&error))
}

/// `OUT_OF_MEMORY` where libtorch had no memory, else `DEVICE`. The message is libtorch's first
/// line; the following ones are the stack of its C++ code.
pub fn failure(error: &TchError) -> PluginError {
    let text = match error {
        TchError::Torch(text) => text.clone(),
        other => other.to_string(),
    };
    let code = if NO_MEMORY.iter().any(|words| text.contains(words)) {
        ErrorCode::OUT_OF_MEMORY
    } else {
        ErrorCode::DEVICE
    };
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    PluginError::new(code, format!("libtorch: {}", line.unwrap_or("no message")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, Kind, Tensor};

    #[test]
    fn memory_that_libtorch_cannot_get_is_told_with_the_bytes() {
        // More than any address space has.
        let made = Tensor::f_zeros([1 << 50], (Kind::Float, Device::Cpu));
        let error = checked(made).unwrap_err();
        assert_eq!(error.code, ErrorCode::OUT_OF_MEMORY);
        assert!(error.message.contains("4503599627370496 bytes"), "{error}");
        assert_eq!(error.message.lines().count(), 1, "{error}");
    }

    #[test]
    fn another_failure_has_its_first_line_and_no_stack() {
        let options = (Kind::Float, Device::Cpu);
        let [a, b] = [[2, 3], [4, 5]].map(|shape| Tensor::f_zeros(shape, options).expect("small"));
        let error = checked(a.f_mm(&b)).unwrap_err();
        assert_eq!(error.code, ErrorCode::DEVICE);
        assert!(error.message.contains("cannot be multiplied"), "{error}");
        assert!(!error.message.contains("Exception raised from"), "{error}");
    }
}
