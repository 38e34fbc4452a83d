//! Shared data of the sessions of one process: its threads, and rows that are read once.

use espalier_config::Config;
use espalier_system::stop::StopFlag;
use espalier_system::threads::HostServices;

use super::rows::Rows;
use crate::Error;

/// Shared data of the sessions of one process.
#[derive(Clone)]
pub struct ProcessContext {
    /// The threads of all sessions.
    pub services: &'static HostServices,
    /// The rows, if they are read already.
    pub rows: Option<Rows>,
}

impl ProcessContext {
    /// Starts threads that forward a stop request of `stop` to plugins; without rows.
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
