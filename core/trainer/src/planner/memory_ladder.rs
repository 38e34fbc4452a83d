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
    /// All parameters of the first rung that is planned.
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

/// A ladder that is being planned.
struct LadderPlanner<'a> {
    request: &'a LadderRequest<'a>,
    observer: &'a dyn Observer,
    process_context: ProcessContext,
    registry: Registry,
    /// The user's config with the publication's rows.
    user: ResolvedConfig,
    /// Whether published peaks are of this model and these rows.
    is_published: bool,
    /// The config of each rung, or of one below where it is refused.
    configs: Vec<ResolvedConfig>,
    /// The first refusal.
    refusal: Option<Error>,
    made: MemoryLadder,
}

impl LadderRequest<'_> {
    /// Makes every plan. A rung that is refused keeps the reason.
    ///
    /// # Errors
    /// As [`Session::open_to_plan`] where every rung is refused; an unknown plugin.
    pub fn run(&self, observer: &dyn Observer) -> Result<MemoryLadder, Error> {
        let ladder = self.name.ladder();
        let is_model = self.preset == Some(ladder.preset);
        let rows = if is_model {
            self.rows(ladder)
        } else {
            Vec::new()
        };
        let user = self
            .resolved
            .overlaid("--ladder", Default::default(), &rows)?;
        let mut process_context = ProcessContext::start(user.config(), &StopFlag::new())?;
        if self.preset.is_none() {
            process_context.rows = Session::rows_to_plan(&user, &process_context, observer)?;
        }
        let mut planner = LadderPlanner {
            request: self,
            observer,
            process_context,
            registry: Registry::discover(&SearchPath::of(&user)),
            is_published: is_model && rows_are_published(&user, ladder),
            configs: Vec::new(),
            refusal: None,
            made: MemoryLadder {
                ladder: ladder.name,
                about: ladder.about,
                source: ladder.source,
                model: String::new(),
                num_params: 0,
                ranks: Session::world_to_plan(&user, &self.asked.assumed)?.ranks,
                rows,
                rungs: Vec::new(),
            },
            user,
        };
        for (index, rung) in ladder.rungs.iter().enumerate() {
            planner.add(index, rung)?;
        }
        match planner.refusal {
            Some(error) if planner.made.rungs.iter().all(|one| one.plan.is_none()) => Err(error),
            _ => Ok(planner.made),
        }
    }

    /// The publication's rows, as far as the user sets no others.
    fn rows(&self, ladder: &PublishedLadder) -> Vec<String> {
        let unset = |key: &str| self.resolved.origin(key) == Origin::Default;
        let rows = ladder.rows.iter().filter(|(key, _)| unset(key));
        rows.map(|(key, value)| format!("{key}={value}")).collect()
    }
}

impl LadderPlanner<'_> {
    /// Plans the next rung.
    ///
    /// # Errors
    /// An unknown plugin of the user.
    fn add(&mut self, index: usize, rung: &PublishedRung) -> Result<(), Error> {
        let (step, options) = self.options(rung)?;
        let opened = options.over(self.request.resolved).and_then(|config| {
            let session = self.open(&config, rung)?;
            Ok((config, session))
        });
        let (config, plan, refused) = match opened {
            Ok((config, session)) => (config, Some(self.plan(&session)), None),
            Err(error) => {
                let words = error.to_string();
                self.refusal.get_or_insert(error);
                let below = self.configs.get(rung.from).unwrap_or(&self.user);
                (below.clone(), None, Some(words))
            }
        };
        self.configs.push(config);
        let (unit, unit_bytes) = self.request.name.ladder().unit;
        self.made.rungs.push(LadderRung {
            name: rung.name,
            from: (index > 0).then_some(rung.from),
            step,
            options,
            all_logits: rung.logits == LogitsKept::All,
            plan,
            refused,
            published: self.is_published.then_some(PublishedPeak {
                peak: rung.published,
                unit,
                unit_bytes,
            }),
        });
        Ok(())
    }

    /// The options that change the rung below, and all options.
    fn options(&self, rung: &PublishedRung) -> Result<(RungOptions, RungOptions), Error> {
        let from = self.made.rungs.get(rung.from);
        let user = self.user.config();
        let below = Below {
            user,
            config: self.configs.get(rung.from).unwrap_or(&self.user).config(),
            plugins: from.map_or(&user.plugins, |from| &from.options.plugins),
            registry: &self.registry,
            has_rows: self.process_context.rows.is_some(),
            ranks: self.made.ranks,
        };
        let step = below.options(rung.settings)?;
        let options = match from {
            Some(from) => from.options.changed_by(&step),
            None => RungOptions {
                plugins: step.plugins.clone(),
                set: self.made.rows.clone(),
            }
            .changed_by(&step),
        };
        Ok((step, options))
    }

    fn open(&self, config: &ResolvedConfig, rung: &PublishedRung) -> Result<Session, Error> {
        let assumed = Assumed {
            head_rows: match rung.logits {
                LogitsKept::All => HeadRows::All,
                LogitsKept::Chunk => HeadRows::Chunk,
            },
            ..self.request.asked.assumed
        };
        let (preset, context) = (self.request.preset, &self.process_context);
        Session::open_to_plan(config, preset, assumed, context, self.observer)
    }

    /// The plan of a session. Its program is that of the first plan: what this process holds grows
    /// from plan to plan, and not with the rungs.
    fn plan(&mut self, session: &Session) -> LadderPlan {
        let plan = &session.run.plan;
        let host_bytes = memory::available_bytes();
        let assumed = &self.request.asked.assumed;
        let (mut memory, _) = assumed.divide(plan, host_bytes);
        let mut plans = self.made.rungs.iter().filter_map(|rung| rung.plan.as_ref());
        match plans.next() {
            Some(first) => memory.program = first.memory.program,
            None => {
                let summary = session.summary();
                (self.made.model, self.made.num_params) = (summary.model, summary.num_params);
            }
        }
        LadderPlan {
            max_tokens: plan.demand.limits.max_tokens,
            num_trained_params: plan.num_params().1,
            memory,
            step_peak_bytes: memory.step_peak(),
            peak_bytes: memory.peak(),
            fits: assumed.fits(plan, host_bytes),
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
