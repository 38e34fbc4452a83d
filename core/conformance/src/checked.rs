//! The outcome of one check: passed, failed, or not applicable, with the reason.

use std::panic::{AssertUnwindSafe, catch_unwind};

use espalier_interface::{ErrorCode, PluginError};

/// The reason why a check did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The component broke a rule: what was expected and what was found.
    Failed(String),
    /// The check does not apply, and why.
    Skipped(String),
}

/// The outcome of a check.
pub type Checked<T = ()> = Result<T, Fault>;

impl Fault {
    /// The same outcome, with the place where it was found.
    #[must_use]
    pub fn at(self, place: &str) -> Self {
        match self {
            Fault::Failed(reason) => Fault::Failed(format!("{place}: {reason}")),
            skipped => skipped,
        }
    }
}

impl From<String> for Fault {
    fn from(reason: String) -> Self {
        Fault::Failed(reason)
    }
}

impl From<PluginError> for Fault {
    fn from(error: PluginError) -> Self {
        Fault::Failed(described(&error))
    }
}

/// Fails the check unless `holds`.
pub fn ensure(holds: bool, reason: impl FnOnce() -> String) -> Checked {
    if holds {
        Ok(())
    } else {
        Err(Fault::Failed(reason()))
    }
}

/// Whether `error` is at most `bound`; false for a NaN.
pub fn within(error: f64, bound: f64) -> bool {
    error <= bound
}

/// Runs `body`; a panic in it fails the check.
pub fn calm<T>(body: impl FnOnce() -> Checked<T>) -> Checked<T> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        let text = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned());
        let text = text.unwrap_or_else(|| "no message".to_owned());
        Err(Fault::Failed(format!("panicked: {text}")))
    })
}

/// Checks that `error` is a proper refusal: it has a message and is no caught panic.
pub fn refusal(error: &PluginError) -> Checked {
    let improper = [ErrorCode::PANIC, ErrorCode::PROTOCOL].contains(&error.code);
    ensure(!improper && !error.message.trim().is_empty(), || {
        format!(
            "expected an error with a message, found {}",
            described(error)
        )
    })
}

/// The error's message, with its code where the code adds to it.
pub fn described(error: &PluginError) -> String {
    match error.message.trim() {
        "" => format!("error {} without a message", error.code.0),
        message => format!("error: {message}"),
    }
}
