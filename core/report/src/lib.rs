//! A run's output directory -> `report.html` and `report.json`: verdict, metrics and commands for
//! the result.
//!
//! A report depends on the directory's path and content alone. It can be written again at any time,
//! also during the run.

pub mod axis;
mod change;
pub mod chart;
mod charts;
pub mod error;
mod facts;
mod headline;
pub mod memory;
pub mod page;
mod peak;
mod reading;
pub mod record;
mod rows;
pub mod run_metrics;
mod samples;
pub mod series;
pub mod tensorboard;
mod usage;

use std::path::{Component, Path, PathBuf};

use espalier_engine::document_loss::DocumentLoss;
use espalier_engine::observer::{Event, Observer};
use espalier_system::files::{FileKind, read_regular, write_atomically};
use espalier_trainer::swap::SwapRecord;
use espalier_trainer::train::{HeldOut, held_out_file};
use serde::Serialize;

use chart::Chart;
use record::Record;
use run_metrics::RunMetrics;

pub use change::{Basis, Change, Direction, RowOrder};
pub use error::{Error, Result};
pub use facts::{Clipping, Ends, Facts, NotFinite, RunVerdict, Turn};
pub use headline::Headline;
pub use memory::Memory;
pub use peak::SharesOfPeak;
pub use reading::Reading;
pub use rows::{Part, Rows};
pub use run_metrics::EvalPoint;
pub use samples::{GivenAnswer, Sample};
pub use usage::Usage;

/// The page's name in an output directory.
const PAGE: &str = "report.html";
/// The same numbers for programs.
const NUMBERS: &str = "report.json";

/// The report of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Model and components.
    pub title: String,
    /// Hash of all inputs that determine the result; see `run.json`.
    pub identity: String,
    /// The run in words.
    pub reading: Reading,
    /// The conclusions of the reading.
    pub facts: Facts,
    /// Its headline numbers.
    pub headline: Headline,
    /// All evaluations.
    pub evals: Vec<EvalPoint>,
    /// Held-out questions with their answers before and after.
    pub samples: Vec<Sample>,
    /// Swaps of plugins, including refused ones.
    pub swaps: Vec<SwapRecord>,
    /// Trained and lost rows.
    pub rows: Rows,
    /// Shares of the devices' peak, and its source.
    pub peak: SharesOfPeak,
    /// Planned and measured memory.
    pub memory: Memory,
    /// Curves by step, thinned to screen resolution.
    charts: Vec<Chart>,
    /// Command lines that use the result.
    pub usages: Vec<Usage>,
    /// The first and the last step of the charts.
    #[serde(skip)]
    span: [u64; 2],
    #[serde(skip)]
    record: Record,
}

impl Report {
    /// Reads the output directory of a finished or active run.
    ///
    /// # Errors
    /// [`Error::Usage`] where `directory` holds no run; [`Error::File`] where a file cannot be
    /// read.
    pub fn of(directory: &Path) -> Result<Self> {
        let record = Record::read(directory)?;
        let metrics = RunMetrics::read(&directory.join("metrics.jsonl"))?;
        let facts = Facts::of(&metrics, &record, &|step| held_out(directory, step));
        let first = metrics.evals.first().map(|eval| eval.step);
        let first = first.or(metrics.steps.first().map(|step| step.step));
        let last = metrics.steps.last().map_or(0, |step| step.step);
        let peak = SharesOfPeak::of(&metrics, &record.machine);
        let memory = Memory::new(&record, metrics.peak_bytes());
        // The plan of one rank does not predict the memory of several.
        let planned = match memory.unplanned_ranks {
            None => Some(memory.planned_peak_bytes),
            Some(_) => None,
        };
        let headline = Headline::new(&metrics, &record, &facts, &peak);
        let judged = headline.eval_after.map(|eval| eval.step);
        Ok(Report {
            title: title(&record),
            identity: record.identity(),
            reading: reading::read(&facts),
            headline,
            samples: samples::samples(&metrics, judged),
            facts,
            charts: charts::charts(&metrics, &peak, planned),
            peak,
            memory,
            usages: usage::usages(directory, &record),
            rows: Rows::of(&record.data),
            span: [first.unwrap_or(0), last],
            evals: metrics.evals,
            swaps: metrics.swaps,
            record,
        })
    }

    /// The report as a self-contained HTML page.
    pub fn to_html(&self) -> String {
        page::render(self)
    }

    /// Writes `report.html` and `report.json` into `directory` and returns the page's path.
    ///
    /// # Errors
    /// [`Error::File`] where a file cannot be written; older reports are then unchanged.
    pub fn write(&self, directory: &Path) -> Result<PathBuf> {
        write(self, &self.to_html(), directory)
    }
}

/// Each held-out row's loss after `step` steps, where the run recorded it.
fn held_out(run: &Path, step: u64) -> Option<Vec<DocumentLoss>> {
    let bytes = read_regular(&held_out_file(run, step), FileKind::Measurements).ok()?;
    let held_out: HeldOut = serde_json::from_slice(&bytes).ok()?;
    (held_out.step == step).then_some(held_out.documents)
}

/// Writes a report's numbers and its page into `directory` and returns the page's path.
pub fn write(numbers: &impl Serialize, html: &str, directory: &Path) -> Result<PathBuf> {
    let numbers = serde_json::to_string_pretty(numbers).expect("a report is plain data");
    write_atomically(&directory.join(NUMBERS), format!("{numbers}\n").as_bytes())?;
    let page = directory.join(PAGE);
    write_atomically(&page, html.as_bytes())?;
    Ok(page)
}

/// Prints that a report was written, or why it was not.
pub fn announce(written: Result<PathBuf>, observer: &dyn Observer) {
    match written {
        Ok(page) => observer.observe(&Event::Saved(&page)),
        Err(error) => observer.observe(&Event::Note(&format!("no report was written: {error}"))),
    }
}

/// Forwards every event, and writes the report of each run at its end, also after a failure. A
/// report that cannot be written is printed as a note; the run's result is unchanged. A run without
/// records has no report.
#[derive(Clone, Copy, Debug)]
pub struct Reporting<O>(pub O);

impl<O: Observer> Observer for Reporting<O> {
    fn observe(&self, event: &Event<'_>) {
        self.0.observe(event);
        if let Event::RunEnded(directory) = event
            && directory.join("run.json").is_file()
        {
            let written = Report::of(directory).and_then(|report| report.write(directory));
            announce(written, &self.0);
        }
    }
}

/// `quickstart/model, nf4 + lora`.
fn title(record: &Record) -> String {
    let parts = ["quantizer", "adapter"].map(|role| record.plugin(role));
    let parts = parts.into_iter().flatten();
    let parts: Vec<&str> = parts.map(|plugin| plugin.component.as_str()).collect();
    let method = match parts[..] {
        [] => "all weights".to_owned(),
        _ => parts.join(" + "),
    };
    format!("{}, {method}", model_name(&record.model.path))
}

/// A model's name: the repository of a Hugging Face cache directory, else the path's last
/// component.
pub fn model_name(path: &Path) -> String {
    repository(path).unwrap_or_else(|| {
        let parts = names(path);
        parts[parts.len().saturating_sub(2)..].join("/")
    })
}

/// The repository of a Hugging Face cache directory: `org/name`.
pub fn repository(path: &Path) -> Option<String> {
    let mut parts = names(path).into_iter().rev();
    let repository = parts.find_map(|part| Some(part.strip_prefix("models--")?.to_owned()));
    Some(repository?.replace("--", "/"))
}

/// The names of the directories on the path.
fn names(path: &Path) -> Vec<String> {
    let named = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
        _ => None,
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_named_after_its_repository_or_directory() {
        let name = |path: &str| model_name(Path::new(path));
        let cached = "/home/u/hub/models--meta-llama--Llama-2-7b-hf/snapshots/0a1b";
        assert_eq!(name(cached), "meta-llama/Llama-2-7b-hf");
        assert_eq!(name("configs/quickstart/model"), "quickstart/model");
        assert_eq!(name("llama"), "llama");
        assert_eq!(repository(Path::new("llama")), None);
    }
}
