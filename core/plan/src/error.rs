//! The errors of planning a run.

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
        /// The training rows cannot be read or used.
        Data(DataError),
        /// A model's or an adapter's directory cannot be read.
        File(FileError),
        /// The arguments contradict each other, or name something that does not exist.
        Usage(UsageError),
        /// A plugin cannot be found, opened or instantiated.
        Registry(RegistryError),
        /// A plugin failed.
        Plugin(PluginFailure),
        /// The weights do not fit the model, the adapter or the config.
        Weights(WeightsError),
        /// The plan needs more memory than there is.
        OutOfMemory(OutOfMemory),
    }
    from espalier_registry::Error { Config, File, Usage, Registry, Plugin, Weights }
}
