//! A dense weight and its quantizer -> packed segments in device memory: kept, calibrated or cached
//! ones, or encoded now.

use std::time::{Duration, Instant};

use espalier_compile::params::Param;
use espalier_interface::format::Format;
use espalier_interface::{BufferRange, Quantizer, Services};
use espalier_numeric::{Drawn, first_not_finite};
use espalier_registry::{Chosen, answer};
use espalier_system::files::TensorStore;

use super::super::in_place::in_place;
use super::super::weight_cache::{CachedWeight, DenseBytes, Took};
use super::super::{
    CalibratedWeights, EncodedWeight, Origin, PackingError, WeightCache, not_finite, read_weight,
    stored_name,
};
use super::Loader;
use crate::Error;
use crate::encoded::{check_decoded, pack, refuse_uncalibrated};

impl Loader<'_> {
    /// Reads or draws a whole weight and encodes it into its ranges, unless it is kept or cached.
    pub(super) fn packed(
        &mut self,
        ranges: &[BufferRange],
        (index, param): (usize, &Param),
        format: &Format,
        (origin, quantizer): (Origin<'_>, &Chosen<dyn Quantizer>),
    ) -> Result<(), Error> {
        let weight_of = (param.name.as_str(), format);
        if let Some(kept) = self.kept.filter(|_| self.inspector.is_none()) {
            let put = |segment, at, part: &[u8]| self.put(ranges, segment, (at, part));
            if let Some(checks) = kept.read(weight_of, put)? {
                self.decode_checks.join(checks);
                return Ok(());
            }
        }
        if let Some(calibrated) = self.calibrated.filter(|one| one.holds(&param.name)) {
            return self.calibrated(ranges, param, format, (origin, quantizer, calibrated));
        }
        let weight = self.scratch.floats(param.elements() as usize)?;
        let of = (quantizer, format);
        let (cached, reading) = match origin {
            Origin::Files(store) => {
                read_timed(store, param, self.cache, of, weight, self.services)?
            }
            Origin::Random => {
                let drawn = Drawn::new(param.init, self.seed, index as u32);
                drawn.fill(weight, self.services);
                (None, Duration::ZERO)
            }
        };
        let workspace = answer::encode_workspace(quantizer, format.shape)?;
        let workspace = self.workspace.bytes(workspace as usize)?;
        in_place(self.device, ranges, |segments| {
            let entry = cached.as_ref().filter(|_| self.inspector.is_none());
            if let Some(about) = entry.and_then(|entry| entry.read(segments, self.services)) {
                if let Some(kept) = self.kept {
                    kept.put(weight_of, &shared(segments), &about.checks);
                }
                self.decode_checks.join(about.checks);
                self.report.errors.push(PackingError {
                    weight: param.name.clone(),
                    ..about.error
                });
                self.report.cached += 1;
                return Ok(());
            }
            if let Origin::Files(store) = origin {
                check_finite(store, param, weight)?;
                refuse_uncalibrated(quantizer, &param.name, format.shape)?;
            }
            let begin = Instant::now();
            pack(quantizer, &param.name, format, weight, segments, workspace)?;
            let packing = begin.elapsed();
            self.report.encode_nanos += packing.as_nanos() as u64;
            let segments = shared(segments);
            let encoded = EncodedWeight {
                name: &param.name,
                quantizer,
                format,
                dense: weight,
                segments: &segments,
            };
            self.decode_checks.look(&encoded)?;
            let error = PackingError::sampled(&encoded)?;
            if let Some(inspector) = self.inspector {
                inspector.inspect(param, &encoded)?;
            }
            let packed = (quantizer, param.name.as_str(), format);
            check_decoded(self.services, packed, &segments, weight)?;
            let checks = self.decode_checks.made();
            if let Some(kept) = self.kept {
                kept.put(weight_of, &segments, checks);
            }
            if let Some(entry) = &cached {
                let took = Took { reading, packing };
                entry.put((&error, took), &segments, checks, self.services);
            }
            self.report.errors.push(error);
            self.report.encoded += 1;
            Ok(())
        })
    }

    /// Fills in a weight that calibration packed. Its dense numbers are read for an inspector only.
    fn calibrated(
        &mut self,
        ranges: &[BufferRange],
        param: &Param,
        format: &Format,
        (origin, quantizer, calibrated): (Origin<'_>, &Chosen<dyn Quantizer>, &CalibratedWeights),
    ) -> Result<(), Error> {
        let weight_of = (param.name.as_str(), format);
        let inspector = self.inspector;
        let dense = match (inspector, origin) {
            (Some(_), Origin::Files(store)) => {
                let weight = self.scratch.floats(param.elements() as usize)?;
                let name = stored_name(store, &param.name, &param.aliases, &param.shape)?;
                read_weight(store, &name, weight)?;
                weight
            }
            _ => self.scratch.floats(0)?,
        };
        in_place(self.device, ranges, |segments| {
            let found = calibrated.fill(weight_of, segments)?;
            let found = found.expect("a weight that is held is known");
            let segments = shared(segments);
            if let Some(inspector) = inspector {
                let weight = EncodedWeight {
                    name: &param.name,
                    quantizer,
                    format,
                    dense,
                    segments: &segments,
                };
                inspector.inspect(param, &weight)?;
            }
            if let Some(kept) = self.kept {
                kept.put(weight_of, &segments, &found.checks);
            }
            self.decode_checks.join(found.checks);
            self.report.errors.push(found.error);
            self.report.encode_nanos += found.encode_nanos;
            if found.is_cached {
                self.report.cached += 1;
            } else {
                self.report.encoded += 1;
            }
            Ok(())
        })
    }
}

/// Reads a whole weight; returns its place in the cache, where it is looked for, and the time that
/// reading takes.
fn read_timed<'c>(
    store: &TensorStore,
    param: &Param,
    cache: Option<&'c WeightCache>,
    (quantizer, format): (&Chosen<dyn Quantizer>, &Format),
    weight: &mut [f32],
    services: &dyn Services,
) -> Result<(Option<CachedWeight<'c>>, Duration), Error> {
    let name = stored_name(store, &param.name, &param.aliases, &param.shape)?;
    let Some(cache) = cache.filter(|cache| cache.wants(quantizer)) else {
        store.read_tensor_f32(&name, weight)?;
        return Ok((None, Duration::ZERO));
    };
    if cache.is_new(quantizer) {
        // The first read pays for new memory and a cold disk, and is not timed.
        store.read_hashed_f32(&name, weight, services)?;
    }
    let begin = Instant::now();
    let hash = store.read_hashed_f32(&name, weight, services)?;
    let reading = begin.elapsed();
    let dense = DenseBytes {
        dtype: store.entry(&name)?.dtype,
        hash: &hash,
    };
    Ok((cache.weight((quantizer, format), dense, None), reading))
}

/// Refuses a weight with a number that is not finite.
fn check_finite(store: &TensorStore, param: &Param, weight: &[f32]) -> Result<(), Error> {
    let Some(at) = first_not_finite(weight) else {
        return Ok(());
    };
    let name = stored_name(store, &param.name, &param.aliases, &param.shape)?;
    Err(not_finite(&name, store, at as u64))
}

fn shared<'s>(segments: &'s [&mut [u8]]) -> Vec<&'s [u8]> {
    segments.iter().map(|segment| &**segment).collect()
}
