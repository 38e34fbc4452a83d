//! A running job and a request to swap a plugin -> the job with the other plugin from its next step
//! on, or unchanged.
//!
//! The request is a file in the run's directory. Between two steps the run creates the new
//! components and plans again. It allocates the changed parts beside the old ones, and tests them
//! on the rows of the next step. Only then the new parts replace the old ones. Trained params,
//! moments, the rows' order and the random numbers are kept to the bit. On several ranks, and
//! beside weights that move, all parts are made anew, on ranks joined for them.

mod answer;
mod change;
mod live;
mod mailbox;
mod plugin_dirs;
mod record;
mod refused;
mod request;
mod room;
mod successor;
mod trial;

pub use answer::{Stage, SwapAnswer};
pub(crate) use live::Live;
pub use mailbox::Mailbox;
pub use record::{Outcome, SwapRecord};
pub(crate) use record::{Swap, Swaps};
pub use refused::SwapRefused;
pub use request::{Staging, SwapRequest};
pub(crate) use successor::{Attempt, Facts, RunContext};
