//! Everything that can be wrong with a plan.

use espalier_config::ConfigError;
use espalier_data::DataError;
use espalier_registry::{PluginFailure, RegistryError};
use espalier_system::failure::UsageError;
use espalier_system::failures;
use espalier_system::files::{FileError, WeightsError};
use espalier_system::memory::OutOfMemory;

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

failures! {
    /// A run that cannot be planned.
    pub enum Error {
        /// The config is wrong.
        Config(ConfigError),
        /// The rows cannot be planned for.
        Data(DataError),
        /// A model's or an adapter's directory cannot be read.
        File(FileError),
        /// The arguments do not make sense together, or ask for what is not there.
        Usage(UsageError),
        /// A plugin cannot be found, opened or made.
        Registry(RegistryError),
        /// A plugin failed.
        Plugin(PluginFailure),
        /// The weights do not fit the model, the adapter or the config.
        Weights(WeightsError),
        /// The plan exceeds the memory there is.
        OutOfMemory(OutOfMemory),
    }
    from espalier_registry::Error { Config, File, Usage, Registry, Plugin, Weights }
}
