//! What the sessions of one process share: its threads, and rows that are read once.

use espalier_config::Config;
use espalier_system::stop::StopFlag;
use espalier_system::threads::HostServices;

use super::rows::Rows;
use crate::Error;

/// What the sessions of one process have in common.
#[derive(Clone)]
pub struct ProcessContext {
    /// The threads that everything runs on.
    pub services: &'static HostServices,
    /// The rows, where they are read already.
    pub rows: Option<Rows>,
}

impl ProcessContext {
    /// Threads that tell plugins to stop when `stop` is set, and no rows yet.
    ///
    /// # Errors
    /// Where the operating system starts no more threads.
    pub fn start(config: &Config, stop: &StopFlag) -> Result<Self, Error> {
        let services = HostServices::start_until(config.run.threads, stop.clone())?;
        Ok(ProcessContext {
            services,
            rows: None,
        })
    }
}
