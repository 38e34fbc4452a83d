//! A config and machines -> the fastest plan that fits them: strategy, offload, recompute and
//! micro-batch are searched.
//!
//! Settings of the user are kept. All plans have the same batch size and settings that affect
//! numbers, so each is the same training.

mod candidate;
mod choice;
mod guide_stage;
mod ladder;
mod passes;
mod text;
mod tried;

use espalier_compile::params::Training;
use espalier_config::ResolvedConfig;
use espalier_engine::measure;
use espalier_engine::observer::Observer;
use espalier_interface::Role;
use espalier_plan::plan::{Speeds, Work};
use espalier_registry::{PluginFailure, Registry, SearchPath};
use espalier_system::memory;
use espalier_system::stop::StopFlag;
use serde::Serialize;
use serde_json::{Map, Value as Json};

use super::asked::Asked;
use super::speeds::measured;
use crate::Error;
use crate::session::{ProcessContext, Session};

use candidate::Candidate;
use guide_stage::GuideStage;
use passes::Passes;

pub use choice::Choice;
pub use ladder::Ladder;
pub use tried::Tried;

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Auto {
    /// Number of plans.
    pub tried: usize,
    /// Number of plans that fit.
    pub fitting: usize,
    /// The fastest that fits; if none does, the one with the smallest excess.
    pub chosen: Tried,
    /// The best plan of each step of the guide.
    pub ladder: Ladder,
    /// Strategies that refused, with their reasons.
    pub refused: Vec<String>,
    /// The choice as lines of a config file.
    pub config: String,
    /// Advice where no plan fits.
    pub advice: Option<String>,
}

/// The inputs of a search.
pub struct Search<'a> {
    /// The user's config.
    pub resolved: &'a ResolvedConfig,
    /// A well-known model in place of a directory.
    pub preset: Option<&'a str>,
    /// The machines and their speeds.
    pub asked: &'a Asked,
}

impl Search<'_> {
    /// Whether there are several ranks and no strategy is set.
    ///
    /// # Errors
    /// An unknown plugin, more ranks than a world can have.
    pub fn is_left_open(&self) -> Result<bool, Error> {
        let world = Session::world_to_plan(self.resolved, &self.asked.assumed)?;
        let registry = Registry::discover(&SearchPath::of(self.resolved));
        let roles = registry.roles_of(&self.resolved.config().plugins)?;
        Ok(world.ranks > 1 && !roles.contains_key(&Role::SHARDING))
    }

    /// Makes every plan, and the config of the chosen one.
    ///
    /// # Errors
    /// As [`Session::open_to_plan`]; where every strategy refuses, the first refusal.
    pub fn run(&self, observer: &dyn Observer) -> Result<(Auto, ResolvedConfig), Error> {
        let mut process_context = ProcessContext::start(self.resolved.config(), &StopFlag::new())?;
        let world = Session::world_to_plan(self.resolved, &self.asked.assumed)?;
        let registry = Registry::discover(&SearchPath::of(self.resolved));
        let candidates = candidate::all(self.resolved, &registry, world, process_context.services)?;
        if self.preset.is_none() {
            process_context.rows =
                Session::rows_to_plan(self.resolved, &process_context, observer)?;
        }
        let (mut tried, mut refined) = (Vec::new(), Vec::new());
        let mut refusals: Vec<Option<Error>> = candidates.iter().map(|_| None).collect();
        let mut speeds = None;
        for passes in passes::all(self.resolved, world) {
            let mut session = self.open(&candidates, passes, &process_context, observer)?;
            let speeds = match speeds {
                Some(known) => known,
                None => *speeds.insert(self.speeds(&session)?),
            };
            let work = self.work(&session, passes)?;
            let mut make = |candidate: &Candidate| -> Result<Tried, Error> {
                let plan = &mut session.run.plan;
                plan.shard_by(&candidate.sharding)?;
                let machines = (&self.asked.assumed, memory::available_bytes());
                let choice = candidate.choice(passes);
                Ok(Tried::new(choice, plan, machines, work, speeds))
            };
            let mut made = Vec::new();
            for (candidate, refusal) in candidates.iter().zip(&mut refusals) {
                match make(candidate) {
                    Ok(one) => made.push((candidate, one)),
                    Err(error) => *refusal = Some(error),
                }
            }
            for candidate in best_of_steps(&made) {
                let further = candidate.refined(&registry, process_context.services);
                refined.extend(further.filter_map(|candidate| make(&candidate).ok()));
            }
            tried.extend(made.into_iter().map(|(_, one)| one));
        }
        // Of equal plans the first is taken: options that gain nothing keep their defaults.
        tried.extend(refined);
        let Some(chosen) = tried::best(&tried).cloned() else {
            return Err(refusals.into_iter().flatten().next().expect("one refused"));
        };
        let overlay = self.overlay(&chosen.choice);
        let lines = toml::to_string(&overlay).expect("names, numbers and texts are TOML");
        let mut refused: Vec<String> = refusals.iter().flatten().map(words).collect();
        refused.dedup();
        let fitting = tried.iter().filter(|one| one.fits()).count();
        let config = self.resolved.config();
        let roles = registry.roles_of(&config.plugins)?;
        let has_adapter = roles.contains_key(&Role::ADAPTER) || config.model.adapter.is_some();
        let training = if has_adapter {
            Training::Adapter
        } else if config.model.train_only.is_empty() {
            Training::Full
        } else {
            Training::Part
        };
        let found = Auto {
            tried: tried.len(),
            fitting,
            ladder: Ladder::of(&tried),
            refused,
            config: lines,
            advice: (fitting == 0).then(|| tried::advice(&chosen, training)),
            chosen,
        };
        Ok((found, self.resolved.overlaid("--auto", overlay, &[])?))
    }

    /// A session of these passes under the first strategy that supports them.
    fn open(
        &self,
        candidates: &[Candidate],
        passes: Passes,
        process_context: &ProcessContext,
        observer: &dyn Observer,
    ) -> Result<Session, Error> {
        let mut refusal = None;
        for candidate in candidates {
            let overlay = self.overlay(&candidate.choice(passes));
            let resolved = self.resolved.overlaid("--auto", overlay, &[])?;
            let assumed = self.asked.assumed;
            match Session::open_to_plan(&resolved, self.preset, assumed, process_context, observer)
            {
                Ok(session) => return Ok(session),
                // A strategy that does not support this world returns a plugin error.
                Err(error @ Error::Plugin(_)) => refusal = refusal.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        Err(refusal.expect("there is a strategy"))
    }

    /// The config keys of a choice.
    fn overlay(&self, choice: &Choice) -> Map<String, Json> {
        let mut plugins = self.resolved.config().plugins.clone();
        if !plugins.contains(&choice.strategy) {
            plugins.push(choice.strategy.clone());
        }
        let table =
            |key: &str, value: Json| Json::Object(Map::from_iter([(key.to_owned(), value)]));
        let recompute = serde_json::to_value(choice.recompute).expect("a name");
        let mut overlay = Map::from_iter([
            ("plugins".to_owned(), Json::from(plugins)),
            ("model".to_owned(), table("recompute", recompute)),
        ]);
        if let Some(micro_batch) = choice.micro_batch {
            let data = table("micro_batch", micro_batch.into());
            overlay.insert("data".to_owned(), data);
        }
        if !choice.options.is_empty() {
            let options = Json::Object(choice.options.clone());
            overlay.insert("sharding".to_owned(), table(&choice.strategy, options));
        }
        overlay
    }

    fn speeds(&self, session: &Session) -> Result<Speeds, Error> {
        let run = &session.run;
        if self.asked.assumed.devices.is_some() {
            return Ok(Speeds::assumed(self.asked.speeds));
        }
        let rate = measure::gemm_rate(run.device.as_ref(), run.plan.dtypes.compute)?;
        measured(run, self.asked.speeds, rate)
    }

    fn work(&self, session: &Session, passes: Passes) -> Result<Work, Error> {
        let plan = &session.run.plan;
        let ranks = u64::from(plan.demand.world.ranks);
        match &session.data {
            Some(data) => Ok(Work::of_rows(&data.train, &plan.program, ranks)?),
            None => {
                let mut data = self.resolved.config().data.clone();
                data.micro_batch = passes.micro_batch.unwrap_or(data.micro_batch as u64) as usize;
                Ok(Work::of_config(&data, ranks))
            }
        }
    }
}

/// The candidates of the best plans that nearly fit, one for each step of the guide.
fn best_of_steps<'c>(made: &[(&'c Candidate, Tried)]) -> Vec<&'c Candidate> {
    let of_step = |step| {
        let plans = made.iter().map(|(_, one)| one);
        let best = tried::best(plans.filter(|one| one.step == step))?;
        let mut plans = made.iter().filter(|(_, one)| one.nearly_fits());
        let (candidate, _) = plans.find(|(_, one)| std::ptr::eq(one, best))?;
        Some(*candidate)
    };
    GuideStage::ALL.into_iter().filter_map(of_step).collect()
}

/// The message of a strategy's refusal.
fn words(refusal: &Error) -> String {
    match refusal {
        Error::Plugin(PluginFailure { plugin, source, .. }) => {
            format!("{plugin}: {}", source.message)
        }
        other => other.to_string(),
    }
}
