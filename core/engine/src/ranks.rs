//! Ranks: each drives a device, and together they train one model. World = processes x rank
//! threads.

mod gathering;
mod launch_env;
mod lost;
mod not_met;
mod peers;
mod rank_failure;
mod watch;

pub use launch_env::{Launch, launch, launched, ranks_of_process, world_of_run};
pub use lost::{CallPosition, Lost, LostBy};
pub use not_met::NotMet;
pub use peers::{
    Among, CallKind, Count, Counts, DeviceSpan, DoneCalls, OnStream, Peers, Span, join,
};
pub use rank_failure::{RankFailure, Reach};
pub use watch::{Acting, Busy, InCall, Watch};
