//! Results that cross the boundary, and the guard that catches panics on the plugin's side.

use std::panic::{AssertUnwindSafe, catch_unwind};

use abi_stable::StableAbi;
use abi_stable::std_types::{RResult, RString, RVec};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{ErrorCode, PluginError, Result};

/// Most bytes shown of an error message that is not valid text.
const SHOWN: usize = 160;

/// A [`PluginError`] in the form that crosses the boundary.
#[repr(C)]
#[derive(StableAbi, Clone, Debug)]
pub struct AbiError {
    /// [`ErrorCode`].
    pub code: u32,
    /// The message.
    pub message: RString,
}

/// A result in the form that crosses the boundary.
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
        // The other side may have written any bytes into it.
        let message = error.message.into_bytes();
        match text(message.as_slice()) {
            Some(text) => PluginError::new(ErrorCode(error.code), text),
            None => damaged(message.as_slice()),
        }
    }
}

/// The bytes as text, if they are UTF-8 without control characters except line breaks, tabs and the
/// escape character of colours.
fn text(bytes: &[u8]) -> Option<&str> {
    let is_text = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t' | '\u{1b}');
    let text = std::str::from_utf8(bytes).ok()?;
    text.chars().all(is_text).then_some(text)
}

/// The error that replaces one with an invalid message. Its code is not trusted either.
fn damaged(bytes: &[u8]) -> PluginError {
    let shown = bytes[..bytes.len().min(SHOWN)].escape_ascii();
    let rest = match bytes.len().saturating_sub(SHOWN) {
        0 => String::new(),
        rest => format!(" and {rest} bytes more"),
    };
    PluginError::new(
        ErrorCode::PROTOCOL,
        format!(
            "it answers with an error that is no text, `{shown}`{rest}: the library is damaged or was built wrongly"
        ),
    )
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
    // A payload's destructor may panic, so it is leaked.
    std::mem::forget(payload);
    PluginError::new(ErrorCode::PANIC, format!("panicked: {text}"))
}

/// A reply as the plain result.
pub(super) fn plain<T>(reply: Reply<T>) -> Result<T> {
    reply.into_result().map_err(PluginError::from)
}

/// Serializes a value to the JSON that crosses the boundary.
pub(super) fn to_bytes(value: &impl Serialize) -> Result<RVec<u8>> {
    match serde_json::to_vec(value) {
        Ok(bytes) => Ok(bytes.into()),
        Err(error) => Err(protocol("cannot be written", &error)),
    }
}

/// Parses JSON that crossed the boundary.
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

    fn read(code: u32, bytes: &[u8]) -> PluginError {
        // SAFETY: nothing reads it as text before it is turned into bytes.
        let message = unsafe { RString::from_utf8_unchecked(bytes.to_vec().into()) };
        PluginError::from(AbiError { code, message })
    }

    #[test]
    fn a_message_of_any_bytes_is_read() {
        let text = "one\n\ttwo \u{1b}[1mé";
        let error = read(7, text.as_bytes());
        assert_eq!(error.code, ErrorCode::DEVICE);
        assert_eq!(error.message, text);
        for (bytes, shown) in [(&b"a\xffb"[..], "`a\\xffb`"), (b"\x02\0", "`\\x02\\x00`")] {
            // With this code the error would count as the user's mistake.
            let error = read(ErrorCode::INVALID.0, bytes);
            assert_eq!(error.code, ErrorCode::PROTOCOL);
            let words = format!("{shown}: the library is damaged or was built wrongly");
            assert!(error.message.ends_with(&words), "{error}");
        }
        let long = read(1, &[0; 1000]).message;
        assert!(
            long.contains(" and 840 bytes more") && long.len() < 1000,
            "{long}"
        );
    }
}
