//! Arms with known differences, the files that a comparison of them leaves, and the report of it.

mod report;
mod scene;

pub use report::{edit_base, edit_comparison, folder, pair, report, text};
pub use scene::{SAMPLES, STEPS, Sample, Scene, save};
