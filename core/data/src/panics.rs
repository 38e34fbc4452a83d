//! A foreign library's panic -> an error, without a panic message on standard error.
//!
//! The tokenizers crate panics on some damaged files (its issues 2094 and 2151). Such a panic comes
//! from bad input, so it becomes an error. Panics of this program are still printed.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `call`; a panic inside it is returned as its message.
pub(super) fn contain<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !CONTAINED.get() {
                previous(info);
            }
        }));
    });
    let outer = CONTAINED.replace(true);
    // The caller drops or never uses again what `call` leaves incomplete.
    let result = panic::catch_unwind(AssertUnwindSafe(call));
    CONTAINED.set(outer);
    result.map_err(message)
}

fn message(payload: Box<dyn Any + Send>) -> String {
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => match payload.downcast::<&'static str>() {
            Ok(text) => (*text).into(),
            Err(_) => "it stopped without a reason".into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_its_message() {
        assert_eq!(contain(|| 3), Ok(3));
        assert_eq!(
            contain(|| -> () { panic!("row {}", 4) }),
            Err("row 4".into())
        );
        assert_eq!(contain(|| -> () { panic!("plain") }), Err("plain".into()));
        assert!(!CONTAINED.get());
    }
}
