//! Bytes as they arrive -> how far a download is.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hf_hub::api::Progress;

/// How far the download of a part of a repository is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transfer {
    /// The repository's id.
    pub repository: String,
    /// The file that arrives.
    pub file: String,
    /// Bytes that are there, of all files.
    pub bytes: u64,
    /// Bytes of all files; 0 as long as they are not known.
    pub total_bytes: u64,
}

/// Counts the bytes of a download, for the thread that watches it.
pub(crate) struct Meter {
    transfer: Mutex<Transfer>,
    moves: AtomicU64,
    waits: AtomicBool,
}

impl Meter {
    pub fn new(repository: &str) -> Self {
        let transfer = Transfer {
            repository: repository.to_owned(),
            ..Transfer::default()
        };
        Meter {
            transfer: Mutex::new(transfer),
            moves: AtomicU64::new(0),
            waits: AtomicBool::new(false),
        }
    }

    pub fn now(&self) -> Transfer {
        self.locked().clone()
    }

    /// A number that grows with every sign of life.
    pub fn moves(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }

    /// Whether another process has its turn, or a file is compared with its hash.
    pub fn waits(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }

    pub fn set_waits(&self, waits: bool) {
        self.waits.store(waits, Ordering::Relaxed);
        self.moved();
    }

    pub fn moved(&self) {
        self.moves.fetch_add(1, Ordering::Relaxed);
    }

    pub fn set_total(&self, bytes: u64) {
        self.locked().total_bytes = bytes;
    }

    /// The file `name` arrives; `before` bytes of other files are there.
    fn set_file(&self, name: &str, before: u64) {
        let mut transfer = self.locked();
        name.clone_into(&mut transfer.file);
        transfer.bytes = before;
    }

    fn add(&self, bytes: usize) {
        self.locked().bytes += bytes as u64;
        self.moved();
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Transfer> {
        self.transfer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The part of a [`Meter`] that counts one file.
pub(crate) struct FileMeter {
    pub meter: Arc<Meter>,
    /// Bytes of the files before it.
    pub before: u64,
}

impl Progress for FileMeter {
    // It is called twice: the second time what is there already follows as an update.
    fn init(&mut self, _size: usize, filename: &str) {
        self.meter.set_file(filename, self.before);
    }

    fn update(&mut self, size: usize) {
        self.meter.add(size);
    }

    fn finish(&mut self) {}
}
