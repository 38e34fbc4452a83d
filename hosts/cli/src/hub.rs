//! The hub that this program fetches missing models and rows from, with the download's progress.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use espalier_hub::Hub;
use espalier_system::files::fetch_with;
use espalier_system::stop::StopFlag;

use crate::progress::DownloadProgress;

static HUB: OnceLock<Arc<Hub>> = OnceLock::new();

/// From now on repositories that are not in the cache are fetched.
pub fn start() {
    let shown = Mutex::new(DownloadProgress::default());
    let hub = HUB.get_or_init(|| {
        Arc::new(Hub::from_environment(move |transfer| {
            let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
            shown.show(transfer);
        }))
    });
    fetch_with(Arc::<Hub>::clone(hub));
}

/// Lets downloads end when `stop` is requested.
pub fn heed(stop: &StopFlag) {
    if let Some(hub) = HUB.get() {
        hub.heed(stop);
    }
}
