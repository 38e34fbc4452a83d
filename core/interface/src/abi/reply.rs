//! Results across the boundary, and the guard that keeps panics on the plugin's side.

use std::panic::{AssertUnwindSafe, catch_unwind};

use abi_stable::StableAbi;
use abi_stable::std_types::{RResult, RString, RVec};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{ErrorCode, PluginError, Result};

/// A [`PluginError`] as it crosses.
#[repr(C)]
#[derive(StableAbi, Clone, Debug)]
pub struct AbiError {
    /// [`ErrorCode`].
    pub code: u32,
    /// The message.
    pub message: RString,
}

/// A result as it crosses.
pub type Reply<T> = RResult<T, AbiError>;

impl From<PluginError> for AbiError {
    fn from(error: PluginError) -> Self {
        AbiError {
            code: error.code.0,
            message: error.message.into(),
        }
    }
}

impl From<AbiError> for PluginError {
    fn from(error: AbiError) -> Self {
        // The other side may have made it of any bytes.
        let message = error.message.into_bytes();
        let message = String::from_utf8_lossy(message.as_slice());
        PluginError::new(ErrorCode(error.code), message)
    }
}

/// Runs a plugin's code and turns a panic into an error.
pub(super) fn guard<T>(body: impl FnOnce() -> Result<T>) -> Reply<T> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => RResult::ROk(value),
        Ok(Err(error)) => RResult::RErr(error.into()),
        Err(payload) => RResult::RErr(panicked(payload).into()),
    }
}

/// The error that a caught panic becomes.
pub(super) fn panicked(payload: Box<dyn std::any::Any + Send>) -> PluginError {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned());
    // A payload's own drop may panic; it is not worth the risk.
    std::mem::forget(payload);
    PluginError::new(ErrorCode::PANIC, format!("panicked: {text}"))
}

/// A reply as the plain result.
pub(super) fn plain<T>(reply: Reply<T>) -> Result<T> {
    reply.into_result().map_err(PluginError::from)
}

/// A value as the bytes that cross.
pub(super) fn to_bytes(value: &impl Serialize) -> Result<RVec<u8>> {
    match serde_json::to_vec(value) {
        Ok(bytes) => Ok(bytes.into()),
        Err(error) => Err(protocol("cannot be written", &error)),
    }
}

/// Bytes that crossed as a value.
pub(super) fn from_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|error| protocol("cannot be read", &error))
}

fn protocol(what: &str, error: &serde_json::Error) -> PluginError {
    let message = format!("data at the plugin boundary {what}: {error}");
    PluginError::new(ErrorCode::PROTOCOL, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_any_bytes_is_read() {
        // SAFETY: nothing reads it as text before it is turned into bytes.
        let message = unsafe { RString::from_utf8_unchecked(vec![b'a', 0xff, b'b'].into()) };
        let error = PluginError::from(AbiError { code: 7, message });
        assert_eq!(error.code, ErrorCode::DEVICE);
        assert_eq!(error.message, "a\u{fffd}b");
    }
}
