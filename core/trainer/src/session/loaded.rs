//! A resolved config -> a model on its devices, ready for generation.

use espalier_config::ResolvedConfig;
use espalier_data::TextTokenizer;
use espalier_engine::observer::{Event, Observer};
use espalier_engine::team::Team;
use espalier_interface::Role;
use espalier_plan::plan::Generation;
use espalier_registry::PluginIdentity;
use espalier_system::files::ModelDirectory;
use espalier_system::memory;
use espalier_system::stop::StopFlag;

use super::Session;
use crate::generate::end_tokens;
use crate::{Error, weights};

/// A model for generation.
pub struct Loaded {
    /// The ranks, with the model, its adapter and its cache.
    pub team: Team,
    /// Its tokenizer.
    pub tokenizer: TextTokenizer,
    /// The tokens that end an answer.
    pub ends: Vec<i32>,
    components: Vec<(Role, PluginIdentity)>,
}

impl Loaded {
    /// `error` with the component's name where it has only the role.
    pub fn naming(&self, error: Error) -> Error {
        error.naming(&self.components)
    }
}

/// Loads the model and its adapter, if named, with the capacity that `demand` returns. `demand`
/// receives the directory, the tokenizer and the model's number of positions, before any
/// allocation.
///
/// # Errors
/// Errors of model, tokenizer or adapter; [`Error::OutOfMemory`] for a plan that does not fit;
/// errors of `demand`.
pub fn load(
    resolved: &ResolvedConfig,
    observer: &dyn Observer,
    stop: &StopFlag,
    demand: impl FnOnce(&ModelDirectory, &TextTokenizer, u64) -> Result<Generation, Error>,
) -> Result<Loaded, Error> {
    let mut read = None;
    let session = Session::open_to_generate(resolved, stop, |directory, model| {
        let tokenizer = TextTokenizer::load(directory.path(), model.vocab_size as usize)?;
        let ends = end_tokens(directory, Some(tokenizer.end_token()), model.vocab_size)?;
        let generation = demand(directory, &tokenizer, model.max_positions)?;
        read = Some((tokenizer, ends));
        Ok(generation)
    })?;
    session.check_patterns(resolved)?;
    session
        .run
        .plan
        .check(session.run.plan.available(memory::available_bytes()))?;
    observer.observe(&Event::RunStarted(&session.summary()));
    let (tokenizer, ends) = read.expect("a session is opened after its demand");
    let Session {
        directory,
        components,
        run,
        others,
        collectives,
        ..
    } = session;
    let by_role = components.by_role();
    let runs = std::iter::once(run).chain(others).collect();
    let config = resolved.config();
    let loaded = weights::load_team(
        config,
        &directory,
        &components,
        runs,
        &collectives,
        observer,
    );
    let (team, _) = loaded.map_err(|error| error.naming(&by_role))?;
    Ok(Loaded {
        team,
        tokenizer,
        ends,
        components: by_role,
    })
}
