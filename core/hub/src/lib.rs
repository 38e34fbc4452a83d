//! Requests for parts of a repository -> its files in the local Hugging Face cache, from the hub.
//!
//! The crate `hf-hub` speaks the hub's protocol and writes the cache's layout. Around it: which
//! files are needed, one download at a time, attempts that go on where the last one ended, files
//! compared with their announced size and hash, and an end on request.

mod blob;
mod choice;
mod download;
mod settings;
mod transfer;

use std::fmt;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use espalier_system::files::{Fetch, FetchError, FetchRequest, FileError};
use espalier_system::stop::StopFlag;

use download::Download;
use settings::Settings;
use transfer::Meter;
pub use transfer::Transfer;

/// Time between two looks at a download.
const LOOK: Duration = Duration::from_millis(100);
/// Time without a byte after which a download is given up.
const PATIENCE: Duration = Duration::from_secs(120);

/// Shows how far a download is; none once it ended.
type Show = Box<dyn Fn(Option<&Transfer>) + Send + Sync>;

/// The hub of this user: huggingface.co, or the one that `HF_ENDPOINT` names.
pub struct Hub {
    settings: Settings,
    show: Show,
    stop: Mutex<StopFlag>,
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the token.
        write!(f, "Hub({})", self.settings.endpoint)
    }
}

impl Hub {
    /// The hub as the environment names it; `show` is called several times a second while a
    /// download runs.
    pub fn from_environment(show: impl Fn(Option<&Transfer>) + Send + Sync + 'static) -> Self {
        Hub {
            settings: Settings::from_environment(),
            show: Box::new(show),
            stop: Mutex::default(),
        }
    }

    /// From now on downloads end when `stop` is requested.
    pub fn heed(&self, stop: &StopFlag) {
        *self.locked() = stop.clone();
    }

    fn locked(&self) -> MutexGuard<'_, StopFlag> {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at a download on another thread until it ends, or until it is given up: its connection
    /// can block for as long as it likes. What is there of a file stays.
    fn watch(
        &self,
        meter: &Meter,
        ended: &mpsc::Receiver<Result<(), FileError>>,
    ) -> Result<(), FileError> {
        let stop = self.locked().clone();
        let mut last = (0, Instant::now());
        loop {
            let given_up = match ended.recv_timeout(LOOK) {
                Ok(done) => return done,
                Err(RecvTimeoutError::Disconnected) => {
                    FetchError::Answer("it gave an answer that cannot be read".to_owned())
                }
                Err(RecvTimeoutError::Timeout) => {
                    let transfer = meter.now();
                    if transfer.total_bytes > 0 {
                        (self.show)(Some(&transfer));
                    }
                    let moves = meter.moves();
                    if moves != last.0 || meter.waits() {
                        last = (moves, Instant::now());
                    }
                    match stop.requested() {
                        Some(signal) => FetchError::Stopped(signal),
                        None if last.1.elapsed() < PATIENCE => continue,
                        None => FetchError::Connection(format!(
                            "no byte came for {} seconds",
                            PATIENCE.as_secs()
                        )),
                    }
                }
            };
            return Err(self.settings.refused(&meter.now().repository, given_up));
        }
    }
}

impl Fetch for Hub {
    fn fetch(&self, request: &FetchRequest<'_>) -> Result<(), FileError> {
        let meter = Arc::new(Meter::new(request.id));
        let download = Download::new(&self.settings, request, Arc::clone(&meter))?;
        let (tell, ended) = mpsc::channel();
        let work = move || {
            // Nobody listens any more where it was given up.
            let _ = tell.send(download.run());
        };
        let started = thread::Builder::new().name("download".into()).spawn(work);
        started.map_err(|source| FileError::Read {
            path: request.root.to_owned(),
            source,
        })?;
        let done = self.watch(&meter, &ended);
        (self.show)(None);
        done
    }
}
