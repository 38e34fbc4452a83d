//! Everything that can end a run on its devices.

use espalier_config::ConfigError;
use espalier_data::DataError;
use espalier_interface::{PluginError, Role};
use espalier_registry::{PluginFailure, RegistryError};
use espalier_system::failure::UsageError;
use espalier_system::failures;
use espalier_system::files::{FileError, WeightsError};
use espalier_system::memory::OutOfMemory;
use espalier_system::stop::Interrupted;

use crate::call_watch::Hung;
use crate::not_finite::NotFinite;
use crate::ranks::{Lost, NotMet};

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

failures! {
    /// A run that cannot be loaded, or whose step failed.
    pub enum Error {
        /// The config is wrong.
        Config(ConfigError),
        /// The rows cannot be read.
        Data(DataError),
        /// A model, adapter or output directory cannot be read or written.
        File(FileError),
        /// The arguments contradict each other, or name something missing.
        Usage(UsageError),
        /// A plugin cannot be found, opened or made.
        Registry(RegistryError),
        /// A plugin failed.
        Plugin(PluginFailure),
        /// A plugin's call does not return.
        Hung(Hung),
        /// The weights do not fit the model, the adapter or the config.
        Weights(WeightsError),
        /// A rank is lost, and the others cannot continue without it.
        Peer(Lost),
        /// The processes of a run did not all join in time.
        NotMet(NotMet),
        /// A number that is not finite.
        NotFinite(NotFinite),
        /// The plan, or an allocation, exceeds the memory there is.
        OutOfMemory(OutOfMemory),
        /// A signal ended a command that writes nothing.
        Interrupted(Interrupted),
    }
    from espalier_registry::Error { Config, File, Usage, Registry, Plugin, Weights }
    from espalier_plan::Error { Config, Data, File, Usage, Registry, Plugin, Weights, OutOfMemory }
}

/// The result of a call to the backend -> an error that names the call.
pub trait BackendCall<T> {
    /// The result; an error names `callback` as the call that failed.
    fn during(self, callback: &str) -> Result<T>;
}

impl<T> BackendCall<T> for std::result::Result<T, PluginError> {
    fn during(self, callback: &str) -> Result<T> {
        self.map_err(|error| Error::from(PluginFailure::new("backend", callback, error)))
    }
}

/// The failure of a sharding strategy whose schedule asks for what this crate does not do.
pub(crate) fn schedule_failure(error: PluginError) -> Error {
    PluginFailure::new(Role::SHARDING.0, "schedule", error).into()
}

/// The failure of a family whose model lacks what a run needs.
pub(crate) fn model_failure(error: PluginError) -> Error {
    PluginFailure::new(Role::FAMILY.0, "describe", error).into()
}

/// The same failure, naming the param that it met.
pub fn of_param(param: &str, error: PluginError) -> PluginError {
    PluginError::new(error.code, format!("param `{param}`: {}", error.message))
}
