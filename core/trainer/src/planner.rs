//! The request of `host plan` -> a session opened for it, and its plan in numbers and as text.

mod asked;
mod auto;
mod plan_report;
mod speeds;
mod text;

pub use asked::Asked;
pub use auto::{Auto, Search};
pub use plan_report::PlanReport;
