//! The request of `host plan` -> a session opened for it, and its plan in numbers and as text.

mod asked;
mod auto;
mod memory_ladder;
mod misfit;
mod plan_report;
mod seconds;
mod speeds;
mod text;

pub use asked::Asked;
pub use auto::{Auto, Search};
pub use memory_ladder::{
    LadderName, LadderPlan, LadderRequest, LadderRung, MemoryLadder, MemoryPart, Product,
    PublishedPeak, RungOptions,
};
pub use misfit::Misfit;
pub use plan_report::PlanReport;
