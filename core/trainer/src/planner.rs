//! What is asked of `host plan` -> a session that is opened for it, and its plan in numbers and as text.

mod auto;
mod report;
mod speeds;
mod text;

pub use auto::{Auto, Search};
pub use report::{Asked, PlanReport};
