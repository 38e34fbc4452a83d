//! Packed weights whose quantizers want statistics of their inputs -> the memory and the work of
//! calibration, before any row is read.
//!
//! Legend: `T` tokens of the longest row, `M` channels of an input.

use std::collections::{BTreeMap, BTreeSet};

use espalier_compile::splice::site_of;
use espalier_config::{Config, Init};
use espalier_interface::DeviceInfo;
use espalier_interface::calibration::{Calibration, InputsFrom, Statistic};
use espalier_interface::graph::{Dim, Graph};
use espalier_interface::model::{Model, Unit};
use espalier_registry::answer;
use serde::{Deserialize, Serialize};

use super::packed_params::PackedParams;
use crate::Error;

/// Bytes of a number: calibration runs in f32.
const F32: u64 = 4;

/// What calibration takes, at most.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CalibrationPlan {
    /// The first quantizer that wants statistics.
    pub quantizer: String,
    /// Rows, `data.calibration_rows`.
    pub rows: u64,
    /// Their tokens, each row of `data.max_seq_len`.
    pub tokens: u64,
    /// Bytes of host memory beside the program, before any weight is in its place.
    pub bytes: u64,
    /// Bytes on a device with memory of its own, but for the workspace of kernels; 0 where the
    /// device is the host.
    #[serde(default)]
    pub device_bytes: u64,
    /// Floating-point operations of the rows' passes and of the statistics, without encoders.
    pub flops: u64,
}

impl CalibrationPlan {
    /// The plan for the packed params of a run; none where no quantizer wants statistics.
    ///
    /// # Errors
    /// Errors of a quantizer.
    pub(super) fn of(
        config: &Config,
        model: &Model,
        packed: &PackedParams,
        device: &DeviceInfo,
    ) -> Result<Option<Self>, Error> {
        if config.model.init == Init::Random {
            return Ok(None);
        }
        let mut wanted = BTreeMap::new();
        for (unit, name, param) in sites(model) {
            let encodes = !packed.saved.contains_key(&param);
            let quantizer = packed.quantizers.get(&param).filter(|_| encodes);
            let Some(quantizer) = quantizer else { continue };
            let shape = packed.formats[&param].shape;
            if let Some(calibration) = answer::calibration(quantizer, &name, shape)? {
                wanted.insert(param, (unit, calibration));
            }
        }
        let Some((first, _)) = wanted.first_key_value() else {
            return Ok(None);
        };
        let quantizer = packed.quantizers[first].identity.component.clone();
        let longest = config.data.max_seq_len as u64;
        let rows = config.data.calibration_rows as u64;
        let sizes = Sizes {
            shares_host_memory: device.shares_host_memory,
            model,
            packed,
            wanted: &wanted,
            longest,
            tokens: rows.saturating_mul(longest),
        };
        let last = wanted.values().map(|(unit, _)| *unit).max().unwrap_or(0);
        let units = || model.units[..=last].iter();
        let mut most = 0;
        for unit in units() {
            most = most.max(sizes.unit_bytes(unit)?);
        }
        let on_device = units().map(|unit| sizes.unit_device_bytes(unit)).max();
        let hidden = sizes.tokens.saturating_mul(model.hidden_size * F32);
        let flops = units().map(|unit| sizes.unit_flops(unit));
        Ok(Some(CalibrationPlan {
            quantizer,
            rows,
            tokens: sizes.tokens,
            bytes: hidden.saturating_add(most),
            device_bytes: on_device
                .filter(|_| !device.shares_host_memory)
                .unwrap_or(0),
            flops: flops.fold(0, u64::saturating_add),
        }))
    }
}

/// The linears of a model: the index of the unit, the site's name, the param of its weight.
fn sites(model: &Model) -> impl Iterator<Item = (usize, String, usize)> + '_ {
    model.units.iter().enumerate().flat_map(|(index, unit)| {
        let graph = &model.graphs[unit.graph];
        graph.nodes.iter().filter_map(move |node| {
            let name = site_of(graph, unit, node).filter(|_| node.op == "linear")?;
            Some((index, name, unit.params[node.params[0]]))
        })
    })
}

/// The sizes of the parts of a calibration.
struct Sizes<'a> {
    shares_host_memory: bool,
    model: &'a Model,
    packed: &'a PackedParams,
    /// What is wanted, by the param, with the unit.
    wanted: &'a BTreeMap<usize, (usize, Calibration)>,
    /// `T`.
    longest: u64,
    tokens: u64,
}

impl Sizes<'_> {
    /// Bytes while a unit is calibrated, beside the activations between units: the larger of a pass
    /// over the rows and of encoding.
    fn unit_bytes(&self, unit: &Unit) -> Result<u64, Error> {
        let elements = |param: &usize| self.model.params[*param].elements();
        let params: u64 = unit.params.iter().map(elements).sum();
        let largest = unit.params.iter().map(elements).max().unwrap_or(0);
        let statistics = self.statistics(unit);
        let numbers: u64 = statistics.values().sum();
        let most = statistics.values().max().copied().unwrap_or(0);
        // Sums are on the device and, when they are read, in f64 and as what is passed on.
        let reading = numbers * 2 * F32 + most * 2 * F32;
        let on_device = if self.shares_host_memory {
            self.value_bytes(unit)
        } else {
            0
        };
        let pass = (params + 2 * largest) * F32 + on_device + reading;
        let mut encoding = 0;
        let mut segments = 0;
        for param in &unit.params {
            let Some(quantizer) = self.packed.quantizers.get(param) else {
                continue;
            };
            let format = &self.packed.formats[param];
            segments += format.bytes();
            let workspace = if self.wanted.contains_key(param) {
                answer::calibrated_workspace(quantizer, format.shape)?
            } else {
                answer::encode_workspace(quantizer, format.shape)?
            };
            encoding = encoding.max(elements(param) * F32 + workspace);
        }
        Ok(pass.max(segments + encoding + numbers * 2 * F32))
    }

    /// Bytes of a unit on the device: its weights in f32, a pass over a row, and the Gram matrices.
    fn unit_device_bytes(&self, unit: &Unit) -> u64 {
        let elements = |param: &usize| self.model.params[*param].elements();
        let params: u64 = unit.params.iter().map(elements).sum();
        let graph = &self.model.graphs[unit.graph];
        let wanted = self.wanted_of(graph, unit);
        let grams = wanted.filter(|(_, _, one)| matches!(one, Statistic::Gram { .. }));
        let grams: BTreeMap<usize, u64> = grams
            .map(|(value, channels, _)| (value, channels * channels))
            .collect();
        (params + grams.values().sum::<u64>()) * F32 + self.value_bytes(unit)
    }

    /// Bytes of all values of a pass over the longest row.
    fn value_bytes(&self, unit: &Unit) -> u64 {
        let graph = &self.model.graphs[unit.graph];
        let elements = graph.values.iter().map(|value| {
            let extents = value.shape.iter().map(|dim| match dim {
                Dim::Fixed(extent) => *extent,
                Dim::Tokens => self.longest,
                Dim::Boundaries => 2,
            });
            extents.product::<u64>()
        });
        elements.sum::<u64>() * F32
    }

    /// Numbers of the statistics of each input of a unit, by the input's value.
    fn statistics(&self, unit: &Unit) -> BTreeMap<usize, u64> {
        let graph = &self.model.graphs[unit.graph];
        let mut inputs: BTreeMap<usize, (u64, BTreeSet<String>)> = BTreeMap::new();
        for (value, channels, statistic) in self.wanted_of(graph, unit) {
            let (numbers, seen) = inputs.entry(value).or_default();
            if seen.insert(format!("{statistic:?}")) {
                *numbers += statistic.elements(channels) * statistic.dtype().bytes() / F32;
            }
        }
        let numbers = inputs
            .into_iter()
            .map(|(value, (numbers, _))| (value, numbers));
        numbers.collect()
    }

    fn wanted_of<'s>(
        &'s self,
        graph: &'s Graph,
        unit: &'s Unit,
    ) -> impl Iterator<Item = (usize, u64, Statistic)> + 's {
        let linears = graph.nodes.iter().filter(|node| node.op == "linear");
        linears.flat_map(move |node| {
            let param = unit.params[node.params[0]];
            let channels = graph.params[node.params[0]].shape[1];
            let wanted = self.wanted.get(&param).into_iter();
            wanted.flat_map(move |(_, calibration)| {
                let statistics = calibration.statistics.iter();
                statistics.map(move |&statistic| (node.inputs[0], channels, statistic))
            })
        })
    }

    /// Operations of the passes and the Gram matrices of a unit.
    fn unit_flops(&self, unit: &Unit) -> u64 {
        let graph = &self.model.graphs[unit.graph];
        let linears = graph.nodes.iter().filter(|node| node.op == "linear");
        let weights =
            linears.map(|node| graph.params[node.params[0]].shape.iter().product::<u64>());
        let weights: u64 = weights.sum();
        let packed = |(_, one): &(usize, Calibration)| one.inputs == InputsFrom::PackedLayers;
        let passes = 1 + u64::from(self.wanted.values().any(packed));
        let mut seen = BTreeSet::new();
        let grams = self.wanted_of(graph, unit).filter(|(value, _, statistic)| {
            matches!(statistic, Statistic::Gram { .. }) && seen.insert(*value)
        });
        let grams: u64 = grams.map(|(_, channels, _)| channels * channels).sum();
        (2 * self.tokens).saturating_mul(passes * weights + grams)
    }
}
