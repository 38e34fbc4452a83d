//! A config and machines -> the fastest plan that fits them: strategy, offload, recompute and
//! micro-batch are searched.
//!
//! What the user set stays as it is. Everything else of a run is the same in all plans: the batch
//! size, so that each is the same training, and what the numbers depend on.

mod candidate;
mod choice;
mod ladder;
mod passes;
mod step;
mod text;
mod tried;

use espalier_config::ResolvedConfig;
use espalier_engine::measure;
use espalier_engine::observer::Observer;
use espalier_interface::Role;
use espalier_plan::plan::{Speeds, Work};
use espalier_registry::{PluginFailure, Registry, SearchPath};
use espalier_system::stop::StopFlag;
use serde::Serialize;
use serde_json::{Map, Value as Json};

use super::asked::Asked;
use super::speeds::measured;
use crate::Error;
use crate::session::{ProcessContext, Session};

use candidate::Candidate;
use passes::Passes;

pub use choice::Choice;
pub use ladder::Ladder;
pub use tried::Tried;

/// What a search came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Auto {
    /// Plans that were made.
    pub tried: usize,
    /// Those that fit.
    pub fitting: usize,
    /// The fastest that fits; where none does, the one that lacks least.
    pub chosen: Tried,
    /// The best plan of each step of the guide.
    pub ladder: Ladder,
    /// Strategies that refused, and why.
    pub refused: Vec<String>,
    /// The lines of the choice as a config file has them.
    pub config: String,
    /// What would help where nothing fits.
    pub advice: Option<String>,
}

/// What is searched for.
pub struct Search<'a> {
    /// The config as the user gave it.
    pub resolved: &'a ResolvedConfig,
    /// A well-known model in place of a directory.
    pub preset: Option<&'a str>,
    /// The machines, and how fast they are.
    pub asked: &'a Asked,
}

impl Search<'_> {
    /// Whether there are several ranks and no word on how they share the work.
    ///
    /// # Errors
    /// A plugin that is unknown, more ranks than any world has.
    pub fn is_left_open(&self) -> Result<bool, Error> {
        let world = Session::world_to_plan(self.resolved, &self.asked.assumed)?;
        let registry = Registry::discover(&SearchPath::of(self.resolved));
        let roles = registry.roles_of(&self.resolved.config().plugins)?;
        Ok(world.ranks > 1 && !roles.contains_key(&Role::SHARDING))
    }

    /// Makes every plan, and the config of the one that is chosen.
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
        let mut tried = Vec::new();
        let mut refusals: Vec<Option<Error>> = candidates.iter().map(|_| None).collect();
        let mut speeds = None;
        for passes in passes::all(self.resolved, world) {
            let mut session = self.open(&candidates, passes, &process_context, observer)?;
            let speeds = match speeds {
                Some(known) => known,
                None => *speeds.insert(self.speeds(&session)?),
            };
            let work = self.work(&session, passes)?;
            for (candidate, refusal) in candidates.iter().zip(&mut refusals) {
                match session.run.plan.shard_by(&candidate.sharding) {
                    Ok(()) => {
                        let choice = candidate.choice(passes);
                        let plan = &session.run.plan;
                        tried.push(Tried::new(choice, plan, &self.asked.assumed, work, speeds));
                    }
                    Err(error) => *refusal = Some(error.into()),
                }
            }
        }
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
        let trains_all = !roles.contains_key(&Role::ADAPTER) && config.model.adapter.is_none();
        let found = Auto {
            tried: tried.len(),
            fitting,
            ladder: Ladder::of(&tried),
            refused,
            config: lines,
            advice: (fitting == 0).then(|| tried::advice(&chosen, trains_all)),
            chosen,
        };
        Ok((found, self.resolved.overlaid("--auto", overlay, &[])?))
    }

    /// A session of these passes under the first strategy that serves them.
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
                // A strategy that cannot serve this world says so as a plugin.
                Err(error @ Error::Plugin(_)) => refusal = refusal.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        Err(refusal.expect("there is a strategy"))
    }

    /// The keys of a choice as a config has them.
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
        let ranks = u64::from(session.run.plan.demand.world.ranks);
        match &session.data {
            Some(data) => Ok(Work::of_rows(&data.train, ranks)?),
            None => {
                let mut data = self.resolved.config().data.clone();
                data.micro_batch = passes.micro_batch.unwrap_or(data.micro_batch as u64) as usize;
                Ok(Work::of_config(&data, ranks))
            }
        }
    }
}

/// What a strategy said when it refused.
fn words(refusal: &Error) -> String {
    match refusal {
        Error::Plugin(PluginFailure { plugin, source, .. }) => {
            format!("{plugin}: {}", source.message)
        }
        other => other.to_string(),
    }
}
