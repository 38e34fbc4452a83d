//! A session that fits -> whether its run can start, before any write and before any weight is
//! read.

use espalier_compile::params::Param;
use espalier_config::ResolvedConfig;
use espalier_engine::observer::Observer;
use espalier_registry::answer;
use espalier_system::failure::UsageError;
use espalier_system::stop::StopFlag;
use serde_json::Value as Json;

use crate::Error;
use crate::checkpoint::Checkpoint;
use crate::session::Session;
use crate::weights::Loading;

/// A session that fits, before any write and before any weight is read.
pub(super) struct Ready {
    pub session: Session,
    /// The known part of `run.json`.
    pub outline: Json,
    /// The params to read from the model's and the adapter's files.
    pub wanted: Wanted,
    /// The text of the chat template, where it is not the tokenizer's own.
    pub chat_template: Option<String>,
}

/// The params that a run loads from a model's and an adapter's files.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// All params.
    All,
    /// The params that a checkpoint does not hold.
    Frozen,
}

impl Wanted {
    /// The params that a run resumed from `checkpoint` reads.
    pub fn after(checkpoint: Option<&Checkpoint>) -> Self {
        match checkpoint {
            None => Wanted::All,
            Some(_) => Wanted::Frozen,
        }
    }

    /// Whether `param` is included.
    pub fn holds(self, param: &Param) -> bool {
        self == Wanted::All || !param.trainable
    }
}

impl Ready {
    /// Refuses a run that would fail after its weights are loaded.
    ///
    /// # Errors
    /// No rows; files without the params to read; an adapter without a saved form.
    pub fn check(
        &self,
        config: &ResolvedConfig,
        observer: &dyn Observer,
        stop: &StopFlag,
    ) -> Result<(), Error> {
        let Session {
            directory,
            components,
            data,
            run,
            ..
        } = &self.session;
        if data.is_none() {
            return Err(Error::Usage(UsageError {
                message: "no rows were given".to_owned(),
                next_step: "name their files with --data FILE".to_owned(),
            }));
        }
        let loading = Loading::of(config.config(), directory, components, observer, stop);
        loading.check(&run.plan, &|param| self.wanted.holds(param))?;
        if let Some(adapter) = &components.adapter {
            let base = directory.path().display().to_string();
            answer::saved_config(adapter, &run.plan.sites, &base)?;
        }
        Ok(())
    }
}
