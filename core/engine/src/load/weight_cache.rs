//! Weights that were packed before, by any process of the user -> their segments.
//!
//! A weight is found by all that its packed bytes follow from: the dense bytes, the quantizer with
//! its options and format, the code that encodes, and the instructions that code may choose. So a
//! changed weight or plugin is another entry, and an old one is never looked at again. A calibrated
//! weight also follows from the rows and from the weights before it (`calibrate/unit_keys.rs`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use espalier_config::Section;
use espalier_interface::format::Format;
use espalier_interface::{Quantizer, Services};
use espalier_registry::{Chosen, PluginIdentity};
use espalier_system::files::{BoundedCache, FileError, StoredDtype, free_bytes};
use espalier_system::files::{cache_entries, hash_file, hash_json};
use espalier_system::machine::Machine;
use espalier_system::notice;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{DecodeCheck, PackingError};

/// The version of the entries' content; another one has other keys.
const VERSION: u32 = 1;
/// Most bytes of a cache whose size nobody set.
const DEFAULT_BYTES: u64 = 100_000_000_000;
/// The part of a disk that such a cache may take: of what is free, and what it has.
const DEFAULT_SHARE: u64 = 4;
/// Where nobody set a size, how many times longer than reading and hashing a weight its packing
/// must take. A cached weight is read, hashed and compared in about 1.5 times that time.
const WORTH_IT: u32 = 2;
/// Weights after which a quantizer that packs as fast as that counts as fast.
const TRIED: u32 = 4;

/// Where this process finds the cache, and the program whose linked plugins encode.
static PLACE: OnceLock<Place> = OnceLock::new();

struct Place {
    directory: PathBuf,
    program: PathBuf,
    program_sha256: OnceLock<Option<String>>,
}

/// Lets runs of this process keep packed weights in `directory`. `program` is the process's own
/// file. Without this call nothing is cached; only the first call has an effect.
pub fn cache_weights_in(directory: PathBuf, program: PathBuf) {
    let _ = PLACE.set(Place {
        directory,
        program,
        program_sha256: OnceLock::new(),
    });
}

/// The user's cache of packed weights, for one loading.
pub struct WeightCache {
    files: BoundedCache,
    place: &'static Place,
    machine: Machine,
    model: String,
    /// Whether all weights are kept, also those that are packed as fast as they are read.
    keeps_all: bool,
    /// How long the weights of each quantizer took so far, by its name and options.
    took: Mutex<BTreeMap<String, (u32, Took)>>,
    /// Weights put into it.
    put: AtomicU64,
    /// Weights that it had no room for.
    refused: AtomicU64,
}

/// What an entry says of its weight.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AboutWeight {
    /// The model that it was packed for.
    pub model: String,
    /// The weight, its quantizer and its error.
    pub error: PackingError,
    /// The quantizer's options.
    pub options: Section,
    /// The decode checks of the loader that packed it.
    pub checks: Vec<DecodeCheck>,
    /// Nanoseconds that its encoder took.
    pub encode_nanos: u64,
}

/// A weight's place in the cache.
pub(crate) struct CachedWeight<'c> {
    cache: &'c WeightCache,
    key: String,
    quantizer: Chosen<dyn Quantizer>,
    /// Whether it was packed with statistics. It is then kept, however fast its encoder is: the
    /// statistics take longer than reading it.
    is_calibrated: bool,
}

/// The stored bytes of a dense weight.
#[derive(Clone, Copy)]
pub(crate) struct DenseBytes<'a> {
    /// Their dtype.
    pub dtype: StoredDtype,
    /// Their hash.
    pub hash: &'a str,
}

/// How long a weight took.
#[derive(Clone, Copy, Default)]
pub(crate) struct Took {
    /// To be read and hashed.
    pub reading: Duration,
    /// To be packed.
    pub packing: Duration,
}

impl Took {
    fn is_worth_it(&self) -> bool {
        self.packing >= self.reading * WORTH_IT
    }
}

/// All that the bytes of a packed weight follow from.
#[derive(Serialize)]
struct Key<'a> {
    version: u32,
    dtype: String,
    dense: &'a str,
    quantizer: &'a str,
    options: &'a Section,
    format: &'a Format,
    plugin: (&'a str, &'a str, [u32; 2]),
    /// Hash of the library, or of the program that it is linked into.
    code: &'a str,
    processor: (&'a Option<String>, &'a [String]),
    /// Hash of what the statistics of its inputs follow from, if the encoder was given any.
    statistics: Option<&'a str>,
}

impl WeightCache {
    /// The cache, of at most `most_gb` GB, for weights of `model`. None where it is 0, where the
    /// process has no cache, or where its directory cannot be used, which is told.
    pub fn open(most_gb: Option<u64>, model: &Path) -> Option<Self> {
        let place = PLACE.get().filter(|_| most_gb != Some(0))?;
        let most_bytes = match most_gb {
            Some(gb) => gb.saturating_mul(1_000_000_000),
            None => default_bytes(&place.directory),
        };
        match BoundedCache::open(&place.directory, most_bytes) {
            Ok(files) => Some(WeightCache {
                files,
                place,
                machine: Machine::detect(),
                model: model.display().to_string(),
                keeps_all: most_gb.is_some(),
                took: Mutex::default(),
                put: AtomicU64::new(0),
                refused: AtomicU64::new(0),
            }),
            Err(error) => {
                tell_unusable(&error);
                None
            }
        }
    }

    /// Whether weights of this quantizer are looked for: unless it packs about as fast as they are
    /// read.
    pub(crate) fn wants(&self, quantizer: &Chosen<dyn Quantizer>) -> bool {
        let took = self.took.lock().unwrap_or_else(PoisonError::into_inner);
        let known = took.get(&described(quantizer));
        self.keeps_all || known.is_none_or(|(count, sum)| *count < TRIED || sum.is_worth_it())
    }

    /// Whether no weight of this quantizer was packed so far.
    pub(super) fn is_new(&self, quantizer: &Chosen<dyn Quantizer>) -> bool {
        let took = self.took.lock().unwrap_or_else(PoisonError::into_inner);
        !self.keeps_all && !took.contains_key(&described(quantizer))
    }

    /// Adds what a weight took; whether such weights are kept.
    fn keeps(&self, quantizer: &Chosen<dyn Quantizer>, took: Took) -> bool {
        let mut all = self.took.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, sum) = all.entry(described(quantizer)).or_default();
        *count += 1;
        sum.reading += took.reading;
        sum.packing += took.packing;
        self.keeps_all || sum.is_worth_it()
    }

    /// The place of a weight with these dense bytes. `statistics` is a hash of all that the
    /// statistics of its inputs follow from; none where it is packed without any.
    pub(crate) fn weight(
        &self,
        (quantizer, format): (&Chosen<dyn Quantizer>, &Format),
        dense: DenseBytes<'_>,
        statistics: Option<&str>,
    ) -> Option<CachedWeight<'_>> {
        let identity = &quantizer.identity;
        let key = Key {
            version: VERSION,
            dtype: format!("{:?}", dense.dtype),
            dense: dense.hash,
            quantizer: &identity.component,
            options: &quantizer.options,
            format,
            plugin: (&identity.plugin, &identity.version, identity.abi),
            code: self.code(identity)?,
            processor: (&self.machine.processor, &self.machine.instruction_set),
            statistics,
        };
        Some(CachedWeight {
            cache: self,
            key: hash_json(&key),
            quantizer: quantizer.clone(),
            is_calibrated: statistics.is_some(),
        })
    }

    /// Hash of this program, which holds all code that no library brings; none where it cannot be
    /// read.
    pub(crate) fn program(&self) -> Option<&str> {
        let program = || {
            let hashed = hash_file(&self.place.program);
            hashed.map(|found| found.sha256).inspect_err(tell_unusable)
        };
        let sha256 = &self.place.program_sha256;
        sha256.get_or_init(|| program().ok()).as_deref()
    }

    /// Hash of the code of a plugin; none where the program that it is linked into cannot be read.
    pub(crate) fn code<'i>(&'i self, identity: &'i PluginIdentity) -> Option<&'i str> {
        identity.sha256.as_deref().or_else(|| self.program())
    }

    /// What was put, in a line; none where nothing was.
    pub fn told(&self) -> Option<String> {
        let directory = self.files.directory().display();
        let (put, refused) = (
            self.put.swap(0, Ordering::Relaxed),
            self.refused.swap(0, Ordering::Relaxed),
        );
        match (put, refused) {
            (0, 0) => None,
            (put, 0) => Some(format!(
                "packed weights kept: {put}, in {directory}, from which later runs of this base \
                 take them; `host cache` lists them, run.weight_cache_gb = 0 keeps none"
            )),
            (put, refused) => Some(format!(
                "packed weights kept: {put}, in {directory}; no room for: {refused}, which later \
                 runs encode again; raise run.weight_cache_gb, or free space on the disk"
            )),
        }
    }
}

impl CachedWeight<'_> {
    /// Fills `segments`, if the weight is there, and returns what the loader that packed it says of
    /// it. A damaged entry is told of, and counts as none.
    pub(crate) fn read(
        &self,
        segments: &mut [&mut [u8]],
        services: &dyn Services,
    ) -> Option<AboutWeight> {
        match self.cache.files.read(&self.key, segments, services) {
            Ok(about) => Some(serde_json::from_value(about?).unwrap_or_default()),
            Err(problem) => {
                notice::say(&format!(
                    "a cached weight is damaged and is packed again: {problem}"
                ));
                None
            }
        }
    }

    /// Keeps the packed weight that `error` names, if that saves time. `checks` are the decode
    /// checks of its loader.
    pub(crate) fn put(
        &self,
        (error, took): (&PackingError, Took),
        segments: &[&[u8]],
        checks: &[DecodeCheck],
        services: &dyn Services,
    ) {
        let (cache, quantizer) = (self.cache, &self.quantizer);
        if !self.is_calibrated && !cache.keeps(quantizer, took) {
            return;
        }
        let about = AboutWeight {
            model: cache.model.clone(),
            error: error.clone(),
            options: quantizer.options.clone(),
            checks: checks.to_vec(),
            encode_nanos: took.packing.as_nanos() as u64,
        };
        match cache
            .files
            .put(&self.key, &json!(about), segments, services)
        {
            Ok(true) => cache.put.fetch_add(1, Ordering::Relaxed),
            Ok(false) => cache.refused.fetch_add(1, Ordering::Relaxed),
            Err(error) => {
                tell_unusable(&error);
                cache.refused.fetch_add(1, Ordering::Relaxed)
            }
        };
    }
}

/// A quantizer's name and options.
fn described(quantizer: &Chosen<dyn Quantizer>) -> String {
    json!([quantizer.identity.component, quantizer.options]).to_string()
}

/// A quarter of what is free on the disk of `directory` and what the cache has already, or less.
fn default_bytes(directory: &Path) -> u64 {
    // The directory need not exist yet.
    let existing = directory.ancestors().find(|folder| folder.is_dir());
    let free = existing.and_then(|folder| free_bytes(&folder.join("entry")));
    let entries = cache_entries(directory).unwrap_or_default();
    let own: u64 = entries.iter().map(|entry| entry.bytes).sum();
    let share = free.map_or(0, |free| free.saturating_add(own) / DEFAULT_SHARE);
    share.min(DEFAULT_BYTES)
}

fn tell_unusable(error: &FileError) {
    notice::once(&format!("packed weights are not cached: {error}"));
}
