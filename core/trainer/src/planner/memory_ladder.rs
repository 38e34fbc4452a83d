//! A config -> the plans of a published ladder: each rung is that config with a few options over
//! it, and each step says which part of the memory falls by how much.

mod name;
mod options;
mod part;
mod published;
mod text;

use espalier_config::{Origin, ResolvedConfig};
use espalier_engine::observer::Observer;
use espalier_plan::plan::{Assumed, HeadRows, MemoryPlan};
use espalier_registry::{Registry, SearchPath};
use espalier_system::memory;
use espalier_system::stop::StopFlag;
use serde::Serialize;

use super::asked::Asked;
use crate::Error;
use crate::session::{ProcessContext, Session};

use options::Below;
use published::{LogitsKept, PublishedLadder, PublishedRung};

pub use name::LadderName;
pub use options::RungOptions;
pub use part::{MemoryPart, Product};

/// The plans of a ladder; as JSON the output of `host plan --ladder --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryLadder {
    /// Its name.
    pub ladder: &'static str,
    /// Its subject.
    pub about: &'static str,
    /// The publication, with the model that was measured there.
    pub source: &'static str,
    /// The model's directory or preset.
    pub model: String,
    /// All parameters, without an adapter's.
    pub num_params: u64,
    /// The ranks, each with the memory of a rung.
    pub ranks: u32,
    /// Options of all rungs, of the publication's rows; empty for another model.
    pub rows: Vec<String>,
    /// The rungs.
    pub rungs: Vec<LadderRung>,
}

/// A rung.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LadderRung {
    /// Its name.
    pub name: &'static str,
    /// Index of the rung that it changes; `None` for the first.
    pub from: Option<usize>,
    /// The options that change that rung.
    pub step: RungOptions,
    /// All options beside the user's own: `host plan` with them gives this plan.
    pub options: RungOptions,
    /// True where the logits of all tokens exist at once, which no run does: then `host plan` gives
    /// the plan of a later rung.
    pub all_logits: bool,
    /// Its plan; `None` where it is refused.
    pub plan: Option<LadderPlan>,
    /// The reason of a refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The publication's peak, where the plan is of its model and rows.
    pub published: Option<PublishedPeak>,
}

/// The plan of a rung.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LadderPlan {
    /// Packed tokens of the largest micro-batch.
    pub max_tokens: u64,
    /// Trained parameters.
    pub num_trained_params: u64,
    /// Bytes of each rank by category.
    pub memory: MemoryPlan,
    /// Peak of a step.
    pub step_peak_bytes: u64,
    /// Peak of the run.
    pub peak_bytes: u64,
    /// Whether the run fits.
    pub fits: bool,
    /// The parts of a step's peak.
    pub parts: Vec<MemoryPart>,
}

/// A peak as it was published.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PublishedPeak {
    /// Its number.
    pub peak: f64,
    /// Its unit: `GB` or `GiB`.
    pub unit: &'static str,
    /// Bytes of the unit.
    pub unit_bytes: f64,
}

/// The inputs of a ladder.
pub struct LadderRequest<'a> {
    /// The user's config.
    pub resolved: &'a ResolvedConfig,
    /// A well-known model in place of a directory.
    pub preset: Option<&'a str>,
    /// The machines.
    pub asked: &'a Asked,
    /// The ladder.
    pub name: LadderName,
}

impl LadderRequest<'_> {
    /// Makes every plan. A rung that is refused keeps the reason.
    ///
    /// # Errors
    /// As [`Session::open_to_plan`] where the first rung is refused; an unknown plugin.
    pub fn run(&self, observer: &dyn Observer) -> Result<MemoryLadder, Error> {
        let ladder = self.name.ladder();
        let is_published = self.preset == Some(ladder.preset);
        let rows = if is_published {
            self.rows(ladder)
        } else {
            Vec::new()
        };
        let user = self
            .resolved
            .overlaid("--ladder", Default::default(), &rows)?;
        let has_published_rows = is_published && rows_are_published(&user, ladder);
        let mut process_context = ProcessContext::start(user.config(), &StopFlag::new())?;
        if self.preset.is_none() {
            process_context.rows = Session::rows_to_plan(&user, &process_context, observer)?;
        }
        let registry = Registry::discover(&SearchPath::of(&user));
        let ranks = Session::world_to_plan(&user, &self.asked.assumed)?.ranks;
        let mut made = MemoryLadder {
            ladder: ladder.name,
            about: ladder.about,
            source: ladder.source,
            model: String::new(),
            num_params: 0,
            ranks,
            rows: rows.clone(),
            rungs: Vec::new(),
        };
        let mut configs: Vec<ResolvedConfig> = Vec::new();
        for (index, rung) in ladder.rungs.iter().enumerate() {
            let from = made.rungs.get(rung.from);
            let below = Below {
                user: user.config(),
                config: configs.get(rung.from).unwrap_or(&user).config(),
                registry: &registry,
                has_rows: process_context.rows.is_some(),
                ranks,
            };
            let step = below.options(rung.settings)?;
            let options = match from {
                Some(from) => from.options.changed_by(&step),
                None => RungOptions {
                    plugins: step.plugins.clone(),
                    set: [&rows[..], &step.set].concat(),
                },
            };
            let planned = options.over(self.resolved).and_then(|config| {
                let session = self.open(&config, rung, &process_context, observer)?;
                if index == 0 {
                    let summary = session.summary();
                    (made.model, made.num_params) = (summary.model, summary.num_params);
                }
                let first = made.rungs.first().and_then(|rung| rung.plan.as_ref());
                let plan = self.plan(&session, first.map(|plan| plan.memory.program));
                Ok((config, plan))
            });
            let (config, plan, refused) = match planned {
                Ok((config, plan)) => (config, Some(plan), None),
                Err(error) if index == 0 => return Err(error),
                // Rungs above go on from the config that was refused, as far as it is one.
                Err(error) => (configs[rung.from].clone(), None, Some(error.to_string())),
            };
            configs.push(config);
            let (unit, unit_bytes) = ladder.unit;
            made.rungs.push(LadderRung {
                name: rung.name,
                from: (index > 0).then_some(rung.from),
                step,
                options,
                all_logits: rung.logits == LogitsKept::All,
                plan,
                refused,
                published: has_published_rows.then_some(PublishedPeak {
                    peak: rung.published,
                    unit,
                    unit_bytes,
                }),
            });
        }
        Ok(made)
    }

    /// The publication's rows, as far as the user sets no others.
    fn rows(&self, ladder: &PublishedLadder) -> Vec<String> {
        let unset = |key: &str| self.resolved.origin(key) == Origin::Default;
        let rows = ladder.rows.iter().filter(|(key, _)| unset(key));
        rows.map(|(key, value)| format!("{key}={value}")).collect()
    }

    fn open(
        &self,
        config: &ResolvedConfig,
        rung: &PublishedRung,
        process_context: &ProcessContext,
        observer: &dyn Observer,
    ) -> Result<Session, Error> {
        let assumed = Assumed {
            head_rows: match rung.logits {
                LogitsKept::All => HeadRows::All,
                LogitsKept::Chunk => HeadRows::Chunk,
            },
            ..self.asked.assumed
        };
        Session::open_to_plan(config, self.preset, assumed, process_context, observer)
    }

    /// The plan of a session. `program_bytes` are those of the first rung's program.
    fn plan(&self, session: &Session, program_bytes: Option<u64>) -> LadderPlan {
        let plan = &session.run.plan;
        let host_bytes = memory::available_bytes();
        let (mut memory, _) = self.asked.assumed.divide(plan, host_bytes);
        // What this process holds grows from plan to plan, and not with the rungs.
        memory.program = program_bytes.unwrap_or(memory.program);
        LadderPlan {
            max_tokens: plan.demand.limits.max_tokens,
            num_trained_params: plan.num_params().1,
            memory,
            step_peak_bytes: memory.step_peak(),
            peak_bytes: memory.peak(),
            fits: self.asked.assumed.fits(plan, host_bytes),
            parts: part::parts(plan, &memory),
        }
    }
}

/// Whether the rows of a config are those of the publication.
fn rows_are_published(config: &ResolvedConfig, ladder: &PublishedLadder) -> bool {
    let mut rows = ladder.rows.iter();
    rows.all(|(key, value)| config.value(key).as_u64() == Some(*value))
        && config.value("data.pack_tokens").is_null()
}
