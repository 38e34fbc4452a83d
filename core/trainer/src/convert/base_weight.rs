//! A site and the requested base -> its weight in f32: as stored, or as decoded by its quantizer.

use std::collections::{HashMap, HashSet};

use espalier_engine::encoded::{decode_all, encode};
use espalier_engine::load::{CalibratedWeights, SavedWeight, read_weight, stored_float};
use espalier_engine::observer::Observer;
use espalier_interface::adaptation::Site;
use espalier_interface::format::Format;
use espalier_interface::{DType, Services};
use espalier_plan::packing::{PackedWeight, SavedParam, packed_weights};
use espalier_registry::answer;
use espalier_system::failure::UsageError;
use espalier_system::stop::StopFlag;

use super::{Base, Source};
use crate::Error;
use crate::calibration::TrainingRows;
use crate::train::stored_dtype;

/// The sources of the weights of all sites.
pub struct BaseWeights<'a> {
    source: &'a Source<'a>,
    /// Packed weights by site: from the checkpoint, or to be packed and decoded again.
    packed: HashMap<usize, (PackedWeight<'a>, Option<SavedParam>)>,
    /// Those to be packed with statistics of their inputs.
    calibrated: Option<CalibratedWeights>,
    /// Names of the tensors of packed weights.
    parts: HashSet<String>,
    /// Dtype of decoded weights without a stored dtype.
    dtype: DType,
}

/// The source of the weight of one site.
pub enum BaseWeight<'a> {
    /// The tensor of this name.
    Dense { name: String, dtype: DType },
    /// The tensor of this name, encoded and decoded.
    Encoded {
        name: String,
        dtype: DType,
        weight: &'a PackedWeight<'a>,
    },
    /// A packed weight of the checkpoint.
    Saved {
        saved: &'a SavedParam,
        dtype: DType,
        weight: &'a PackedWeight<'a>,
    },
}

impl BaseWeight<'_> {
    /// True where it is an unchanged tensor.
    pub fn is_dense(&self) -> bool {
        matches!(self, BaseWeight::Dense { .. })
    }

    /// Its stored dtype, before packing where it is packed.
    pub fn dtype(&self) -> DType {
        match self {
            BaseWeight::Dense { dtype, .. }
            | BaseWeight::Encoded { dtype, .. }
            | BaseWeight::Saved { dtype, .. } => *dtype,
        }
    }
}

impl<'a> BaseWeights<'a> {
    /// The weights of `source` in the form that `base` requests. `rows` calibrate quantizers.
    ///
    /// # Errors
    /// Original weights requested of a packed checkpoint; decoded ones requested without a
    /// quantizer.
    pub fn new(
        source: &'a Source<'a>,
        base: Option<Base>,
        rows: TrainingRows<'_>,
        observer: &dyn Observer,
        stop: &StopFlag,
    ) -> Result<Self, Error> {
        let opened_model = &source.opened_model;
        let quantizers = &opened_model.components.quantizers;
        let refuse = |message: String, next_step: &str| {
            let next_step = next_step.to_owned();
            Err(Error::Usage(UsageError { message, next_step }))
        };
        match (base, quantizers.packed()) {
            (Some(Base::Original), Some(packed)) => {
                return refuse(
                    format!(
                        "--base original: the checkpoint holds no original weights, it is packed by `{}`",
                        packed.component()
                    ),
                    "name the directory of the original model, or leave --base out",
                );
            }
            (Some(Base::Decoded), None)
                if !quantizers.pack_by_default() && opened_model.config.sites.is_empty() =>
            {
                return refuse(
                    "--base decoded: no quantizer was named, and the checkpoint is not packed"
                        .to_owned(),
                    "name the one that the adapter was trained on: --plugins nf4",
                );
            }
            _ => {}
        }
        let mut made = BaseWeights {
            source,
            packed: HashMap::new(),
            calibrated: None,
            parts: HashSet::new(),
            dtype: stored_dtype(opened_model.directory.config()),
        };
        if base != Some(Base::Decoded) && quantizers.packed().is_none() {
            return Ok(made);
        }
        let of = |site: &Site| quantizers.of(opened_model.config, site);
        for weight in packed_weights(&opened_model.model, &source.sites, of)? {
            let saved = match quantizers.packed() {
                Some(_) => Some(SavedParam::new(&source.sites[weight.site], &weight)?),
                None => None,
            };
            if let Some(saved) = &saved {
                let specs = SavedWeight::new(saved, &weight.format).specs();
                made.parts.extend(specs.into_iter().map(|spec| spec.name));
            }
            made.packed.insert(weight.site, (weight, saved));
        }
        let encoded = made.packed.values().filter(|(_, saved)| saved.is_none());
        let encoded = encoded.map(|(weight, _)| weight);
        made.calibrated = source.calibrated(encoded, rows, observer, stop)?;
        Ok(made)
    }

    /// Checks the numbers of a packed weight of the checkpoint.
    ///
    /// # Errors
    /// A tensor that is missing, damaged or not finite.
    pub fn check_saved(&self, site: usize) -> Result<(), Error> {
        if let Some((weight, Some(saved))) = self.packed.get(&site) {
            let place = SavedWeight::new(saved, &weight.format);
            place.read(&self.source.store, |_, _, _| Ok(()))?;
        }
        Ok(())
    }

    /// The packed weights, each with the number of its site.
    pub fn packed(&self) -> impl Iterator<Item = (usize, &PackedWeight<'a>)> {
        self.packed
            .iter()
            .map(|(&site, (weight, _))| (site, weight))
    }

    /// True for a tensor of a packed weight, which the merged model does not contain.
    pub fn is_part(&self, name: &str) -> bool {
        self.parts.contains(name)
    }

    /// The source of the weight of site number `index`.
    ///
    /// # Errors
    /// A weight that is missing or has another shape.
    pub fn of(&'a self, index: usize) -> Result<BaseWeight<'a>, Error> {
        let packed = self.packed.get(&index);
        if let Some((weight, Some(saved))) = packed {
            let dtype = self.dtype;
            return Ok(BaseWeight::Saved {
                saved,
                dtype,
                weight,
            });
        }
        let site = &self.source.sites[index];
        let name = self.source.stored_weight(site)?;
        let dtype = stored_float(self.source.store.entry(&name)?);
        Ok(match packed {
            Some((weight, _)) => BaseWeight::Encoded {
                name,
                dtype,
                weight,
            },
            None => BaseWeight::Dense { name, dtype },
        })
    }

    /// The weight, `[N, M]`.
    ///
    /// # Errors
    /// A tensor that is missing, damaged or not finite; errors of the quantizer.
    pub fn read(&self, base: &BaseWeight<'_>, site: &Site) -> Result<Vec<f32>, Error> {
        let services = self.source.opened_model.services;
        let [rows, cols] = site.shape;
        let mut values = vec![0.0; (rows * cols) as usize];
        match base {
            BaseWeight::Dense { name, .. } => read_weight(&self.source.store, name, &mut values)?,
            BaseWeight::Encoded { name, weight, .. } => {
                read_weight(&self.source.store, name, &mut values)?;
                let mut segments = empty_segments(&weight.format);
                let mut parts: Vec<&mut [u8]> =
                    segments.iter_mut().map(Vec::as_mut_slice).collect();
                let param = &self.source.opened_model.model.params[weight.param].name;
                let fill = |one: &CalibratedWeights| one.fill((param, &weight.format), &mut parts);
                if self
                    .calibrated
                    .as_ref()
                    .map(fill)
                    .transpose()?
                    .flatten()
                    .is_some()
                {
                    decode(services, (weight, name), &segments, &mut values)?;
                    return Ok(values);
                }
                let quantizer = weight.quantizer;
                let workspace = answer::encode_workspace(quantizer, site.shape)?;
                let mut workspace = vec![0; workspace as usize];
                let of = (quantizer, name.as_str(), &weight.format);
                encode(services, of, &mut values, &mut parts, &mut workspace)?;
                decode(services, (weight, name), &segments, &mut values)?;
            }
            BaseWeight::Saved { saved, weight, .. } => {
                let mut segments = empty_segments(&weight.format);
                let place = SavedWeight::new(saved, &weight.format);
                place.read(&self.source.store, |segment, at, bytes| {
                    let at = at as usize;
                    segments[segment][at..at + bytes.len()].copy_from_slice(bytes);
                    Ok(())
                })?;
                let name = &self.source.opened_model.model.params[weight.param].name;
                decode(services, (weight, name), &segments, &mut values)?;
            }
        }
        Ok(values)
    }
}

/// Empty buffers for the segments of a packed weight.
pub fn empty_segments(format: &Format) -> Vec<Vec<u8>> {
    let segments = format.segments.iter();
    segments
        .map(|segment| vec![0; segment.bytes() as usize])
        .collect()
}

/// Decodes the segments of a packed weight, of that name, into `out`.
///
/// # Errors
/// As [`decode_all`].
pub fn decode(
    services: &dyn Services,
    (weight, name): (&PackedWeight<'_>, &str),
    segments: &[Vec<u8>],
    out: &mut [f32],
) -> Result<(), Error> {
    let segments: Vec<&[u8]> = segments.iter().map(Vec::as_slice).collect();
    let of = (weight.quantizer, name, &weight.format);
    Ok(decode_all(services, of, &segments, out)?)
}
