//! Checkpoints, adapters and random numbers -> params in device memory.

mod calibrated_weights;
mod decode_check;
mod drawn_by;
mod frozen_param;
mod host_region;
mod in_place;
mod initial_values;
mod inventory;
mod kept_weights;
mod loader;
mod member;
mod packing_error;
mod rank_loader;
mod saved_weight;
mod scratch;
mod shared_file;
mod staging;
mod weight_cache;

use std::collections::HashMap;
use std::path::PathBuf;

use espalier_compile::params::Param;
use espalier_interface::Quantizer;
use espalier_interface::format::Format;
use espalier_numeric::first_not_finite;
use espalier_plan::packing::SavedParam;
use espalier_registry::Chosen;
use espalier_system::files::{TensorStore, WeightsError};
use serde::{Deserialize, Serialize};

use crate::Error;

pub use calibrated_weights::{CalibratedWeight, CalibratedWeights};
pub use decode_check::DecodeCheck;
pub(crate) use decode_check::DecodeChecks;
pub use drawn_by::DrawnBy;
pub use frozen_param::{FrozenTensor, frozen_values};
pub use host_region::HostRegion;
pub use initial_values::{Initialise, initial_values};
pub use inventory::check_origin;
pub use kept_weights::KeptWeights;
pub use loader::Loader;
pub use member::Member;
pub use member::{agree, together};
pub use packing_error::{PackingError, told_errors};
pub use rank_loader::{LoadedRun, RankLoader};
pub use saved_weight::SavedWeight;
pub use saved_weight::stored_float;
pub use scratch::Scratch;

pub use staging::{Stage, Staging};
pub use weight_cache::{AboutWeight, WeightCache, cache_weights_in};
pub(crate) use weight_cache::{CachedWeight, DenseBytes, Took};

/// Where a param's values come from.
#[derive(Clone, Copy)]
pub enum Origin<'a> {
    /// The tensor of the param's name, or of one of its aliases, in these files.
    Files(&'a TensorStore),
    /// Random numbers, as the param's `init` says.
    Random,
}

/// Where the segments of a packed param come from.
#[derive(Clone, Copy)]
pub enum SegmentSource<'a> {
    /// The dense weight is read and encoded.
    Encode(&'a Chosen<dyn Quantizer>),
    /// The files hold it packed.
    Saved(&'a SavedParam),
}

/// Where the segments of param number `index` come from, if it is packed.
pub fn packing<'a>(
    quantizers: &'a HashMap<usize, Chosen<dyn Quantizer>>,
    saved: &'a HashMap<usize, SavedParam>,
    index: usize,
) -> Option<SegmentSource<'a>> {
    match saved.get(&index) {
        Some(saved) => Some(SegmentSource::Saved(saved)),
        None => quantizers.get(&index).map(SegmentSource::Encode),
    }
}

/// A weight that was just encoded, both dense and packed.
pub struct EncodedWeight<'a> {
    /// The name of its param.
    pub name: &'a str,
    /// The quantizer that packed it.
    pub quantizer: &'a Chosen<dyn Quantizer>,
    /// Its format.
    pub format: &'a Format,
    /// The numbers that were encoded, `[N, M]` row major.
    pub dense: &'a [f32],
    /// The packed weight, in the order of the format.
    pub segments: &'a [&'a [u8]],
}

/// Inspects weights while they are loaded.
pub trait Inspector: Sync {
    /// Inspects the weight of `param`, which was encoded just now or by calibration.
    ///
    /// # Errors
    /// Any error ends loading.
    fn inspect(&self, param: &Param, weight: &EncodedWeight<'_>) -> Result<(), Error>;
}

/// What loading did. A weight is encoded once, and not at all where the files hold it packed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    /// Weights packed.
    pub encoded: u64,
    /// Packed weights that were taken from the cache.
    pub cached: u64,
    /// Params placed, packed ones included.
    pub placed: u64,
    /// Nanoseconds spent in encoders and in checking their scales; of calibrated weights from the
    /// cache those of the run that packed them.
    pub encode_nanos: u64,
    /// The error of each weight that was packed, now or when it was cached.
    pub errors: Vec<PackingError>,
    /// The decode checks, one per format.
    pub decode_checks: Vec<DecodeCheck>,
}

impl std::ops::Add for LoadReport {
    type Output = LoadReport;

    fn add(self, other: LoadReport) -> LoadReport {
        LoadReport {
            encoded: self.encoded + other.encoded,
            cached: self.cached + other.cached,
            placed: self.placed + other.placed,
            encode_nanos: self.encode_nanos + other.encode_nanos,
            errors: [self.errors, other.errors].concat(),
            decode_checks: decode_check::merged(self.decode_checks, other.decode_checks),
        }
    }
}

/// The name under which the files hold a param of these names, its shape checked.
pub fn stored_name(
    store: &TensorStore,
    name: &str,
    aliases: &[String],
    shape: &[u64],
) -> Result<String, Error> {
    let mut names = std::iter::once(name).chain(aliases.iter().map(String::as_str));
    let found = names.find(|name| store.contains(name)).unwrap_or(name);
    store.entry_of_shape(found, shape)?;
    Ok(found.to_owned())
}

/// Reads all of tensor `name`, which must be finite.
pub fn read_weight(store: &TensorStore, name: &str, out: &mut [f32]) -> Result<(), Error> {
    store.read_tensor_f32(name, out)?;
    match first_not_finite(out) {
        Some(at) => Err(not_finite(name, store, at as u64)),
        None => Ok(()),
    }
}

pub fn not_finite(name: &str, store: &TensorStore, index: u64) -> Error {
    let path = store
        .entry(name)
        .map(|entry| store.file_of(entry).to_owned());
    Error::Weights(WeightsError {
        path: path.unwrap_or_else(|_| PathBuf::new()),
        message: format!("tensor `{name}`: element {index} is not a finite number"),
    })
}
