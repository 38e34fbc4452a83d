//! A site's weight and the statistics of its inputs -> its segments: those of the cache, or encoded
//! now. Both are kept until the weight is loaded.

use std::time::{Duration, Instant};

use espalier_interface::Services;
use espalier_interface::format::Format;
use espalier_interface::model::ParamSpec;
use espalier_numeric::first_not_finite;
use espalier_registry::answer;
use espalier_system::files::{TensorStore, WeightsError};

use super::SiteToPack;
use super::gathered::Gathered;
use super::unit_keys::{CalibrationCache, UnitKey};
use crate::Error;
use crate::encoded::{InputStatistics, check_decoded, pack, pack_calibrated};
use crate::load::{
    CachedWeight, CalibratedWeight, CalibratedWeights, DecodeChecks, EncodedWeight, PackingError,
    Scratch, Took, not_finite, stored_name,
};

/// Memory for one weight, where weights come from, and where their segments go.
pub struct SiteEncoder<'a> {
    store: &'a TensorStore,
    services: &'a dyn Services,
    cache: Option<&'a CalibrationCache<'a>>,
    packed: &'a CalibratedWeights,
    checks: DecodeChecks,
    scratch: Scratch,
    workspace: Scratch,
}

impl<'a> SiteEncoder<'a> {
    /// Takes dense weights from `store` and packed ones from `cache`, and keeps their segments in
    /// `packed`. The threads of `services` hash and decode.
    pub fn new(
        store: &'a TensorStore,
        services: &'a dyn Services,
        cache: Option<&'a CalibrationCache<'a>>,
        packed: &'a CalibratedWeights,
    ) -> Self {
        SiteEncoder {
            store,
            services,
            cache,
            packed,
            checks: DecodeChecks::default(),
            scratch: Scratch::default(),
            workspace: Scratch::default(),
        }
    }

    /// Takes the weight `spec` of a site from the cache; false where it is not there. `key` is that
    /// of its unit.
    ///
    /// # Errors
    /// A full disk.
    pub fn take(
        &mut self,
        site: &SiteToPack<'_>,
        spec: &ParamSpec,
        key: Option<&UnitKey>,
    ) -> Result<bool, Error> {
        let Some(entry) = self.entry(site, key) else {
            return Ok(false);
        };
        let mut segments = empty_segments(site.format);
        let mut parts: Vec<&mut [u8]> = segments.iter_mut().map(Vec::as_mut_slice).collect();
        let Some(about) = entry.read(&mut parts, self.services) else {
            return Ok(false);
        };
        let parts: Vec<&[u8]> = segments.iter().map(Vec::as_slice).collect();
        let weight = CalibratedWeight {
            encode_nanos: about.encode_nanos,
            is_cached: true,
            error: PackingError {
                weight: spec.name.clone(),
                ..about.error
            },
            checks: about.checks,
        };
        self.packed.put((&spec.name, site.format), &parts, weight)?;
        Ok(true)
    }

    /// Encodes the weight `spec` of a site.
    ///
    /// # Errors
    /// A weight that cannot be read; errors of the quantizer; a full disk.
    pub fn encode(
        &mut self,
        site: &SiteToPack<'_>,
        spec: &ParamSpec,
        key: Option<&UnitKey>,
        gathered: &Gathered<'_>,
    ) -> Result<(), Error> {
        let (format, quantizer) = (site.format, site.quantizer);
        let entry = self.entry(site, key);
        let weight = self.scratch.floats(spec.elements() as usize)?;
        let begin = Instant::now();
        read_known((self.store, self.services), spec, (site.param, key), weight)?;
        let reading = begin.elapsed();
        let mut segments = empty_segments(format);
        let mut parts: Vec<&mut [u8]> = segments.iter_mut().map(Vec::as_mut_slice).collect();
        let bytes = match site.calibration {
            None => answer::encode_workspace(quantizer, format.shape)?,
            Some(_) => answer::calibrated_workspace(quantizer, format.shape)?,
        };
        let workspace = self.workspace.bytes(bytes as usize)?;
        let packing = pack_site(site, spec, (weight, workspace), gathered, &mut parts)?;
        let parts: Vec<&[u8]> = segments.iter().map(Vec::as_slice).collect();
        let encoded = EncodedWeight {
            name: &spec.name,
            quantizer,
            format,
            dense: weight,
            segments: &parts,
        };
        self.checks.look(&encoded)?;
        let error = PackingError::sampled(&encoded)?;
        let packed = (quantizer, spec.name.as_str(), format);
        check_decoded(self.services, packed, &parts, weight)?;
        let checks = self.checks.made();
        if let Some(entry) = entry {
            let took = Took { reading, packing };
            entry.put((&error, took), &parts, checks, self.services);
        }
        let weight = CalibratedWeight {
            encode_nanos: packing.as_nanos() as u64,
            is_cached: false,
            error,
            checks: checks.to_vec(),
        };
        self.packed.put((&spec.name, format), &parts, weight)
    }

    /// The segments of the weight `spec` of a site, which was taken or encoded.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn segments(&self, site: &SiteToPack<'_>, spec: &ParamSpec) -> Result<Vec<Vec<u8>>, Error> {
        let mut segments = empty_segments(site.format);
        let mut parts: Vec<&mut [u8]> = segments.iter_mut().map(Vec::as_mut_slice).collect();
        let found = self.packed.fill((&spec.name, site.format), &mut parts)?;
        found.expect("it was taken or encoded");
        Ok(segments)
    }

    /// The place of a site's weight in the cache, if it is kept there.
    fn entry(&self, site: &SiteToPack<'_>, key: Option<&UnitKey>) -> Option<CachedWeight<'a>> {
        let (cache, key) = self.cache.zip(key)?;
        let statistics = site.calibration.as_ref().map(|_| key.of_site(site.site));
        if statistics.is_none() && !cache.weights.wants(site.quantizer) {
            return None;
        }
        let (of, dense) = ((site.quantizer, site.format), key.dense(site.param)?);
        cache.weights.weight(of, dense, statistics.as_deref())
    }
}

/// Packs a weight, with statistics if its quantizer wants any; returns the time that it takes.
fn pack_site(
    site: &SiteToPack<'_>,
    spec: &ParamSpec,
    (weight, workspace): (&[f32], &mut [u8]),
    gathered: &Gathered<'_>,
    parts: &mut [&mut [u8]],
) -> Result<Duration, Error> {
    let (format, quantizer) = (site.format, site.quantizer);
    let Some(calibration) = &site.calibration else {
        let begin = Instant::now();
        pack(quantizer, &spec.name, format, weight, parts, workspace)?;
        return Ok(begin.elapsed());
    };
    let statistics = InputStatistics {
        site: site.site,
        tokens: gathered.tokens,
        values: &gathered.of(site.param, &calibration.statistics),
    };
    let packing = (quantizer, spec.name.as_str(), format);
    let begin = Instant::now();
    pack_calibrated(packing, weight, &statistics, parts, workspace)?;
    Ok(begin.elapsed())
}

/// Reads the weight `spec`, number `param`. Where its unit has a key, it must still be what was
/// hashed for it.
///
/// # Errors
/// A weight that cannot be read, is not finite, or changed in the meantime.
pub(super) fn read_known(
    (store, services): (&TensorStore, &dyn Services),
    spec: &ParamSpec,
    (param, key): (usize, Option<&UnitKey>),
    out: &mut [f32],
) -> Result<(), Error> {
    let name = stored_name(store, &spec.name, &spec.aliases, &spec.shape)?;
    match key.and_then(|key| key.dense(param)) {
        None => store.read_tensor_f32(&name, out)?,
        Some(dense) => {
            let hash = store.read_hashed_f32(&name, out, services)?;
            if hash != dense.hash {
                return Err(Error::Weights(WeightsError {
                    path: store.file_of(store.entry(&name)?).to_owned(),
                    message: format!(
                        "tensor `{name}` changed while the base was calibrated: expected the bytes \
                         that were read before, found others; let nothing write the model, and \
                         start again"
                    ),
                }));
            }
        }
    }
    match first_not_finite(out) {
        Some(at) => Err(not_finite(&name, store, at as u64)),
        None => Ok(()),
    }
}

/// Empty buffers for the segments of a weight.
fn empty_segments(format: &Format) -> Vec<Vec<u8>> {
    let segments = format.segments.iter();
    segments.map(|one| vec![0; one.bytes() as usize]).collect()
}
