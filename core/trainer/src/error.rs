//! Errors that end a run. Their messages and next steps are in their own modules.

use std::io;

use espalier_config::ConfigError;
use espalier_data::DataError;
use espalier_engine::call_watch::Hung;
use espalier_engine::not_finite::NotFinite;
use espalier_engine::ranks::{Lost, NotMet, RankFailure, Reach};
use espalier_interface::{ErrorCode, Role};
use espalier_registry::{PluginFailure, PluginIdentity, RegistryError};
use espalier_system::failure::UsageError;
use espalier_system::failures;
use espalier_system::files::{FileError, WeightsError};
use espalier_system::memory::OutOfMemory;
use espalier_system::stop::Interrupted;

use crate::checkpoint::CheckpointError;
use crate::generate::LogitsNotFinite;
use crate::swap::SwapRefused;
use crate::tensor_copy::Unwritable;
use crate::train::Stopped;

/// The result of the trainer's calls.
pub type Result<T> = std::result::Result<T, Error>;

failures! {
    /// A failure of the trainer.
    pub enum Error {
        /// The config is wrong.
        Config(ConfigError),
        /// The rows cannot be trained on.
        Data(DataError),
        /// A model, adapter or output directory cannot be read or written.
        File(FileError),
        /// The arguments contradict each other, or name something that does not exist.
        Usage(UsageError),
        /// A plugin cannot be found, opened or created.
        Registry(RegistryError),
        /// A plugin failed.
        Plugin(PluginFailure),
        /// A plugin's call does not return.
        Hung(Hung),
        /// The weights do not fit the model, the adapter or the config.
        Weights(WeightsError),
        /// A checkpoint cannot be used.
        Resume(CheckpointError),
        /// A rank is lost, and the others cannot continue without it.
        Peer(Lost),
        /// The processes of a run did not connect in time.
        NotMet(NotMet),
        /// A number that is not finite.
        NotFinite(NotFinite),
        /// Logits that are not finite, during text generation.
        LogitsNotFinite(LogitsNotFinite),
        /// A finite number that a narrower dtype cannot hold.
        Unwritable(Unwritable),
        /// The plan or an allocation exceeds the available memory.
        OutOfMemory(OutOfMemory),
        /// A running job refused a swap and continues unchanged.
        SwapRefused(SwapRefused),
        /// A signal ended a command that writes nothing.
        Interrupted(Interrupted),
        /// A signal ended the run.
        Stopped(Stopped),
    }
    from espalier_engine::Error {
        Config, Data, File, Usage, Registry, Plugin, Hung, Weights, Peer, NotMet, NotFinite,
        OutOfMemory, Interrupted
    }
    from espalier_registry::Error { Config, File, Usage, Registry, Plugin, Weights }
    from espalier_plan::Error { Config, Data, File, Usage, Registry, Plugin, Weights, OutOfMemory }
}

impl Error {
    /// The same error with the name of the component in `components` where it has only the role.
    pub fn naming(self, components: &[(Role, PluginIdentity)]) -> Self {
        match self {
            Error::Plugin(failure) => {
                let mut roles = components.iter();
                let named = roles.find(|(role, _)| failure.plugin == role.0);
                Error::Plugin(match named {
                    Some((role, identity)) => failure.naming(role.0, identity),
                    None => failure,
                })
            }
            other => other,
        }
    }

    /// The same error with the command, where known, that resumes the run from the older checkpoint
    /// that it names, or from the newest one.
    pub fn offering(mut self, resuming: impl FnOnce(Option<u64>) -> Option<String>) -> Self {
        match &mut self {
            Error::Resume(CheckpointError::Damaged {
                older: Some(step),
                command,
                ..
            }) => *command = resuming(Some(*step)),
            Error::Stopped(stopped) => stopped.command = resuming(None),
            _ => {}
        }
        self
    }

    /// The same error for a run in progress: a read-only file system was writable when the run
    /// claimed its output directory.
    pub(crate) fn in_progress(self) -> Self {
        match self {
            Error::File(FileError::Write { path, source })
                if source.kind() == io::ErrorKind::ReadOnlyFilesystem =>
            {
                Error::File(FileError::BecameReadOnly { path, source })
            }
            other => other,
        }
    }
}

impl RankFailure for Error {
    fn reach(&self) -> Reach {
        match self {
            Error::NotFinite(_)
            | Error::LogitsNotFinite(_)
            | Error::Stopped(_)
            | Error::Interrupted(_) => Reach::AllRanks,
            Error::Peer(_) => Reach::FromPeer,
            Error::Plugin(failure) if failure.source.code == ErrorCode::PANIC => Reach::Panic,
            Error::Plugin(failure) if failure.source.code == ErrorCode::PEER => Reach::Call,
            _ => Reach::ThisRank,
        }
    }

    fn signal(&self) -> Option<i32> {
        match self {
            Error::Interrupted(interrupted) => Some(interrupted.signal),
            _ => None,
        }
    }
}
