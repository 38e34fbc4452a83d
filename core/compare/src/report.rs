//! A comparison's output directory -> `report.html` and `report.json`: the best arm and the
//! significant differences.
//!
//! Like the report of a run, it depends on the directory's path and content alone.

mod contest;
mod curves;
mod enumeration;
mod errors;
mod facts;
mod findings;
mod measures;
mod page;
mod pair;
mod quality;
mod reading;
mod row;
mod same_memory;
mod scatter;
mod strips;
mod table;
mod trouble;

use std::path::{Path, PathBuf};

use espalier_engine::observer::Observer;
use espalier_report::Error;
use espalier_report::chart::Chart;
use espalier_system::files::COMPARISON;
use serde::Serialize;

use super::statistics::{DRAWS, Noise};

pub use facts::{ComparisonVerdict, Facts, Measure, Obstacle, Standing};
pub use findings::{ArmFindings, Findings, RunFindings};
pub use pair::Pair;
pub use quality::Quality;
pub use reading::Reading;
pub use row::ArmRow;
pub use table::Table;

/// The report of a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Model and arms.
    pub title: String,
    /// The program's version that made the comparison.
    pub version: String,
    /// The comparison in words.
    pub reading: Reading,
    /// The arm with a dense base, where there is one.
    #[serde(rename = "yardstick")]
    pub dense_baseline: Option<String>,
    /// The seeds of each arm's runs.
    pub seeds: Vec<u64>,
    /// `interleaved` or `sequential`.
    pub schedule: String,
    /// Whether nothing was trained.
    pub eval_only: bool,
    /// The step after which arms are compared.
    pub step: Option<u64>,
    /// Steps of a whole run.
    pub planned_steps: Option<u64>,
    /// The arms' numbers.
    pub arms: Vec<ArmRow>,
    /// Each two arms.
    pub pairs: Vec<Pair>,
    /// The variation between seeds, pooled over all arms.
    pub noise: Option<Noise>,
    /// The measure by which arms are ranked.
    pub measure: Measure,
    /// Why there is no verdict, where something forbids one.
    pub obstacle: Option<Obstacle>,
    /// Curves by step, thinned to screen resolution.
    charts: Vec<Chart>,
    /// The first and the last step of the curves.
    #[serde(skip)]
    span: [u64; 2],
    #[serde(skip)]
    findings: Findings,
}

/// The result of a comparison, without its curves.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The conclusions.
    pub facts: Facts,
    /// The arms' numbers.
    pub arms: Vec<ArmRow>,
    /// Each two arms.
    pub pairs: Vec<Pair>,
    /// The variation between seeds, pooled over all arms.
    pub noise: Option<Noise>,
    /// The comparison in words.
    pub reading: Reading,
}

impl Summary {
    /// Computes the result, with `draws` draws per interval.
    pub fn of(findings: &Findings, draws: u32) -> Self {
        let facts = Facts::of(findings, draws);
        let places = 0..findings.arms.len();
        let arms: Vec<ArmRow> = places
            .map(|place| ArmRow::new(findings, &facts, place))
            .collect();
        let noise = noise(findings);
        let pairs = pair::pairs(findings, &facts, noise.as_ref(), draws);
        let reading = reading::read(reading::Numbers {
            findings,
            facts: &facts,
            rows: &arms,
            pairs: &pairs,
            noise: noise.as_ref(),
        });
        Summary {
            facts,
            arms,
            pairs,
            noise,
            reading,
        }
    }
}

impl Report {
    /// Reads the output directory of a finished or active comparison.
    ///
    /// # Errors
    /// [`Error::Usage`] where `out` holds no comparison; a file error where a file cannot be read.
    pub fn of(out: &Path) -> Result<Self, Error> {
        let findings = Findings::read(out)?;
        let comparison = &findings.comparison;
        let Summary {
            facts,
            arms,
            pairs,
            noise,
            reading,
        } = Summary::of(&findings, DRAWS);
        Ok(Report {
            title: title(&findings),
            version: comparison.espalier.clone(),
            reading,
            dense_baseline: comparison.dense_baseline.clone(),
            seeds: comparison.seeds.clone(),
            schedule: comparison.schedule.clone(),
            eval_only: comparison.eval_only,
            step: findings.step,
            planned_steps: findings.planned,
            charts: curves::charts(&findings, page::colours(&findings)),
            span: span(&findings),
            arms,
            pairs,
            noise,
            measure: facts.measure,
            obstacle: facts.obstacle,
            findings,
        })
    }

    /// The arms' numbers as lines of text.
    pub fn table(&self) -> String {
        Table::new(&self.arms).to_text()
    }

    /// The report as a self-contained HTML page.
    pub fn to_html(&self) -> String {
        page::render(self, &self.findings)
    }

    /// Writes `report.html` and `report.json` into `out` and returns the page's path.
    ///
    /// # Errors
    /// A file error where a file cannot be written; older reports are then unchanged.
    pub fn write(&self, out: &Path) -> Result<PathBuf, Error> {
        espalier_report::write(self, &self.to_html(), out)
    }
}

/// Whether `out` holds a comparison.
pub fn is_comparison(out: &Path) -> bool {
    out.join(COMPARISON).is_file()
}

/// Writes the report of a comparison at its end, also after a failure. A report that cannot be
/// written is printed as a note; the result is unchanged.
pub fn conclude(out: &Path, observer: &dyn Observer) {
    if is_comparison(out) {
        let written = Report::of(out).and_then(|report| report.write(out));
        espalier_report::announce(written, observer);
    }
}

/// The first and the last step that any run has recorded.
fn span(findings: &Findings) -> [u64; 2] {
    let runs = || findings.arms.iter().flat_map(|arm| &arm.runs);
    let steps = || {
        let held_out = runs().flat_map(|run| run.held_out.keys().copied());
        held_out.chain(runs().flat_map(|run| run.metrics.steps.iter().map(|step| step.step)))
    };
    [steps().min(), steps().max()].map(Option::unwrap_or_default)
}

/// The noise of all arms that were trained under several seeds.
fn noise(findings: &Findings) -> Option<Noise> {
    let step = findings.step?;
    let losses = |arm: &findings::ArmFindings| -> Vec<f64> {
        let runs = arm.held_out(step);
        let quality = runs.iter().filter_map(|(_, run)| Quality::of(run.total()));
        quality.map(|quality| quality.loss).collect()
    };
    let arms: Vec<Vec<f64>> = findings.arms.iter().map(losses).collect();
    let seeds = arms.iter().map(Vec::len).max()?;
    Noise::of(&arms, seeds)
}

/// `quickstart/model: nf4 and hqq beside dense`.
fn title(findings: &Findings) -> String {
    let dense_baseline = findings.comparison.dense_baseline.as_deref();
    let names = findings.arms.iter().map(|arm| arm.arm.name.clone());
    let others: Vec<String> = names
        .filter(|name| Some(name.as_str()) != dense_baseline)
        .collect();
    let others = enumeration::listed(&others);
    let arms = match dense_baseline {
        Some(dense_baseline) => format!("{others} beside {dense_baseline}"),
        None => others,
    };
    let mut runs = findings.arms.iter().flat_map(|arm| &arm.runs);
    match runs.next() {
        Some(run) => format!(
            "{}: {arms}",
            espalier_report::model_name(&run.record.model.path)
        ),
        None => arms,
    }
}
