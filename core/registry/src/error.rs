//! The errors before a run is planned.

use espalier_config::ConfigError;
use espalier_system::failure::UsageError;
use espalier_system::failures;
use espalier_system::files::{FileError, WeightsError};

use crate::registry::{PluginFailure, RegistryError};

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

failures! {
    /// A config or a component that cannot be used.
    pub enum Error {
        /// The config is wrong.
        Config(ConfigError),
        /// A model's or an adapter's directory cannot be read.
        File(FileError),
        /// The arguments contradict each other, or name something missing.
        Usage(UsageError),
        /// A plugin cannot be found, opened or made.
        Registry(RegistryError),
        /// A plugin failed.
        Plugin(PluginFailure),
        /// The weights do not fit the model, the adapter or the config.
        Weights(WeightsError),
    }
}
