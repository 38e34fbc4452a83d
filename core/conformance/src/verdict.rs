//! What one check says: nothing where all is well, else what is wrong or why it did not apply.

use std::panic::{AssertUnwindSafe, catch_unwind};

use espalier_interface::{ErrorCode, PluginError};

/// Why a check did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The component broke a rule: what was expected and what was found.
    Failed(String),
    /// The check does not apply, and why.
    Skipped(String),
}

/// The end of a check.
pub type Verdict<T = ()> = Result<T, Fault>;

impl Fault {
    /// The same fault, saying where it was met.
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

/// A failed check unless `holds`.
pub fn ensure(holds: bool, reason: impl FnOnce() -> String) -> Verdict {
    if holds {
        Ok(())
    } else {
        Err(Fault::Failed(reason()))
    }
}

/// True where `error` is at most `bound`: a NaN is not.
pub fn within(error: f64, bound: f64) -> bool {
    error <= bound
}

/// Runs `body`; a panic in it is a failed check.
pub fn calm<T>(body: impl FnOnce() -> Verdict<T>) -> Verdict<T> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        let text = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned());
        let text = text.unwrap_or_else(|| "no message".to_owned());
        Err(Fault::Failed(format!("panicked: {text}")))
    })
}

/// Checks that `error` is a proper refusal: words, and no panic that was turned into an error.
pub fn refusal(error: &PluginError) -> Verdict {
    let improper = [ErrorCode::PANIC, ErrorCode::PROTOCOL].contains(&error.code);
    ensure(!improper && !error.message.trim().is_empty(), || {
        format!("expected an error in words, found {}", described(error))
    })
}

/// The error's message, with a code that says more than the words.
pub fn described(error: &PluginError) -> String {
    match error.message.trim() {
        "" => format!("error {} without a message", error.code.0),
        message => format!("error: {message}"),
    }
}
