//! Arms with known differences, the files of their comparison, and its report.

mod report;
mod scene;

pub use report::{edit_base, edit_comparison, folder, pair, report, text};
pub use scene::{SAMPLES, STEPS, Sample, Scene, save};
