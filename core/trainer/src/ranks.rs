//! Ranks: each drives a device; together they train one model. World = processes x rank threads.

mod gathering;
mod launch_env;
mod lost;
mod peers;
mod watch;

pub use launch_env::{Launch, launch, launched, ranks_of_process};
pub use lost::{Cause, Lost, Place};
pub use peers::{Among, CallKind, Count, Counts, Peers, Span, join};
pub(crate) use watch::last_word;
pub use watch::{Acting, Busy, InCall, Watch, on_last_word};
