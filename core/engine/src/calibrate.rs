//! Calibration rows and a dense base -> its packed weights, encoded layer by layer with statistics
//! of their inputs.
//!
//! A layer runs twice where a quantizer wants inputs that went through packed layers: dense, for
//! the statistics, and packed, for the inputs of the next layer. Each row runs by itself, and rows
//! are added up in their order, so that no bit depends on threads or ranks. At most one layer's
//! weights and statistics are in memory. Weights in the user's cache are taken from there; rows run
//! only as far as one is missing.
//!
//! Legend: `T` tokens of a row, `M` channels of an input.

mod activations;
mod encode_site;
mod gathered;
mod statistics_graph;
mod unit_keys;

use std::path::Path;

use espalier_compile::params::Dtypes;
use espalier_interface::calibration::{Calibration, InputsFrom};
use espalier_interface::format::{Decoding, Format};
use espalier_interface::graph::Graph;
use espalier_interface::model::{Model, Unit};
use espalier_interface::{DType, Quantizer, Services, WeightLayout};
use espalier_registry::Chosen;
use espalier_system::files::TensorStore;
use espalier_system::stop::StopFlag;

use self::activations::Activations;
use self::encode_site::{SiteEncoder, read_known};
use self::gathered::Gathered;
use self::statistics_graph::StatisticsGraph;
use self::unit_keys::{UnitKey, UnitKeys};
use crate::Error;
use crate::decoder::Callback;
use crate::device_graph::{DeviceGraph, DeviceParam, GraphKernels, GraphLimits};
use crate::error::BackendCall;
use crate::load::CalibratedWeights;
use crate::observer::{Event, Observer};

pub use self::unit_keys::CalibrationCache;

/// The dtypes in which rows run: statistics are of the model, not of a run's rounding.
const DTYPES: Dtypes = Dtypes::all(DType::F32);

/// A packed weight of the base.
pub struct SiteToPack<'a> {
    /// The site's name.
    pub site: &'a str,
    /// Index of its weight among the model's params.
    pub param: usize,
    /// How it is packed.
    pub format: &'a Format,
    /// What packs it.
    pub quantizer: &'a Chosen<dyn Quantizer>,
    /// What the quantizer wants to know of its inputs.
    pub calibration: Option<Calibration>,
}

/// Everything that calibration needs.
pub struct Calibrator<'a> {
    /// The model.
    pub model: &'a Model,
    /// The weights that are packed.
    pub sites: &'a [SiteToPack<'a>],
    /// The rows: tokens of one sequence each, one token at least.
    pub rows: &'a [Vec<i32>],
    /// The device.
    pub kernels: &'a GraphKernels,
    /// The model's dense weights.
    pub store: &'a TensorStore,
    /// The threads that hash dense weights, and decode packed ones.
    pub services: &'a dyn Services,
    /// The user's cache of packed weights.
    pub cache: Option<&'a CalibrationCache<'a>>,
    /// Told of the layers that are done.
    pub observer: &'a dyn Observer,
    /// Ends the calibration.
    pub stop: &'a StopFlag,
}

/// What is known of the units so far.
struct Progress<'a> {
    /// The keys of the units in the cache; none without one.
    keys: Vec<Option<UnitKey>>,
    activations: Activations<'a>,
    encoder: SiteEncoder<'a>,
    /// The units that the activations went through.
    passed: usize,
}

impl Calibrator<'_> {
    /// Takes all weights with statistics from the cache, or encodes them, into an unnamed file in
    /// `directory`, and with them those that packed layers run with. No row runs through the units
    /// after the last one with a weight to encode.
    ///
    /// # Errors
    /// `Error::Weights` for a weight that cannot be read and for inputs that are not finite;
    /// `Error::Plugin` for a failed call of the quantizer or the backend; `Error::File` for a full
    /// disk; `Error::Interrupted` after a signal.
    pub fn run(&self, directory: &Path) -> Result<CalibratedWeights, Error> {
        let bytes = self.sites.iter().map(|one| one.format.bytes()).sum();
        let packed = CalibratedWeights::new(directory, bytes);
        let calibrated = |unit: &Unit| self.sites_of(unit).any(|one| one.calibration.is_some());
        let Some(last) = self.model.units.iter().rposition(calibrated) else {
            return Ok(packed);
        };
        let of = (self.model, self.store);
        let keys = |cache| UnitKeys::new((cache, self.services), of, self.rows, DTYPES.compute);
        let mut keys = self.cache.and_then(keys);
        let mut progress = Progress {
            keys: Vec::with_capacity(last + 1),
            activations: Activations::of_rows(self.rows),
            encoder: SiteEncoder::new(self.store, self.services, self.cache, &packed),
            passed: 0,
        };
        let mut first = None;
        for (index, unit) in self.model.units[..=last].iter().enumerate() {
            self.stop.check()?;
            let sites: Vec<&SiteToPack<'_>> = self.sites_of(unit).collect();
            let runs_packed = self.runs_packed(&sites);
            let key = keys
                .as_mut()
                .map(|keys| keys.next(unit, &sites, runs_packed));
            progress.keys.push(key.transpose()?);
            if !self.take(index, &sites, &mut progress, &packed)? {
                let first = *first.get_or_insert_with(|| {
                    self.tell_begin(unit, &packed);
                    self.tell(index, [index, index, last]);
                    index
                });
                for earlier in progress.passed..=index {
                    self.unit(earlier, earlier == last, &mut progress, &packed)?;
                    self.tell(earlier, [first, first.max(earlier + 1), last]);
                }
                progress.passed = index + 1;
            }
        }
        // The cache has the units after that.
        if let Some(first) = first.filter(|_| progress.passed <= last) {
            self.tell(last, [first, last + 1, last]);
        }
        Ok(packed)
    }

    /// Takes the weights with statistics of unit number `index` from the cache; whether all are
    /// there.
    fn take(
        &self,
        index: usize,
        sites: &[&SiteToPack<'_>],
        progress: &mut Progress<'_>,
        packed: &CalibratedWeights,
    ) -> Result<bool, Error> {
        let key = progress.keys[index].as_ref();
        for site in sites.iter().filter(|site| site.calibration.is_some()) {
            let spec = &self.model.params[site.param];
            progress.encoder.take(site, spec, key)?;
        }
        Ok(!self.misses(sites, packed))
    }

    /// Whether a weight with statistics of a unit is neither taken nor encoded.
    fn misses(&self, sites: &[&SiteToPack<'_>], packed: &CalibratedWeights) -> bool {
        let mut calibrated = sites.iter().filter(|site| site.calibration.is_some());
        calibrated.any(|site| !packed.holds(&self.model.params[site.param].name))
    }

    /// Tells from which unit on the base is calibrated.
    fn tell_begin(&self, unit: &Unit, packed: &CalibratedWeights) {
        let calibrated = |one: &&SiteToPack<'_>| one.calibration.is_some();
        let Some(site) = self.sites.iter().find(calibrated) else {
            return;
        };
        let tokens: usize = self.rows.iter().map(Vec::len).sum();
        let [before, _] = packed.counts();
        let from = match before {
            0 => String::new(),
            before => format!(
                ", from `{}` on: the cache has the {before} weights before it",
                unit.name
            ),
        };
        self.observer.observe(&Event::Note(&format!(
            "calibrating `{}` on {} rows of {tokens} tokens{from}",
            site.quantizer.identity.component,
            self.rows.len()
        )));
    }

    /// Tells that the units from `first` up to `end` are calibrated, of those up to `last`.
    fn tell(&self, unit: usize, [first, end, last]: [usize; 3]) {
        self.observer.observe(&Event::CalibrationProgress {
            unit: &self.model.units[unit].name,
            done: (end - first) as u64,
            total: (last + 1 - first) as u64,
        });
    }

    /// Encodes the weights of unit number `index` that are missing, and takes the activations
    /// through it.
    fn unit(
        &self,
        index: usize,
        is_last: bool,
        progress: &mut Progress<'_>,
        packed: &CalibratedWeights,
    ) -> Result<(), Error> {
        let Progress {
            keys,
            activations,
            encoder,
            ..
        } = progress;
        let (unit, key) = (&self.model.units[index], keys[index].as_ref());
        let sites: Vec<&SiteToPack<'_>> = self.sites_of(unit).collect();
        let graph = &self.model.graphs[unit.graph];
        // Sites share their sums: those of a missing weight are made with all others.
        let of = if self.misses(&sites, packed) {
            &sites[..]
        } else {
            &[]
        };
        let statistics = StatisticsGraph::of(graph, unit, of, is_last);
        let runs_packed = !is_last && self.runs_packed(&sites);
        let mut gathered = Gathered::new(&statistics, unit);
        if !statistics.inputs.is_empty() || !runs_packed {
            let dense = self.dense_params(unit, key)?;
            let device = self.device_graph(&statistics.graph, dense)?;
            gathered.begin(&device)?;
            for row in 0..self.rows.len() {
                self.stop.check()?;
                let tokens = activations.feed(&statistics.graph, &device, row)?;
                launch_all(&device, tokens)?;
                gathered.add(&device, tokens)?;
                if !is_last && !runs_packed {
                    activations.take(&device, row)?;
                }
            }
            gathered.finish(&device)?;
        }
        for site in &sites {
            self.stop.check()?;
            let spec = &self.model.params[site.param];
            let is_needed = site.calibration.is_some() || runs_packed;
            if !is_needed || packed.holds(&spec.name) {
                continue;
            }
            // One with statistics was looked for before.
            if site.calibration.is_some() || !encoder.take(site, spec, key)? {
                encoder.encode(site, spec, key, &gathered)?;
            }
        }
        drop(gathered);
        if runs_packed {
            let plain = StatisticsGraph::of(graph, unit, &[], false);
            let params = self.packed_params(unit, key, &sites, encoder)?;
            let device = self.device_graph(&plain.graph, params)?;
            for row in 0..self.rows.len() {
                self.stop.check()?;
                let tokens = activations.feed(&plain.graph, &device, row)?;
                launch_all(&device, tokens)?;
                activations.take(&device, row)?;
            }
        }
        Ok(())
    }

    /// Whether the units after one with these sites get what its packed weights make of its inputs.
    fn runs_packed(&self, sites: &[&SiteToPack<'_>]) -> bool {
        !sites.is_empty() && self.wants_packed_layers()
    }

    /// Whether any quantizer wants the inputs that packed layers give.
    fn wants_packed_layers(&self) -> bool {
        let calibrations = self.sites.iter().filter_map(|one| one.calibration.as_ref());
        let mut inputs = calibrations.map(|one| one.inputs);
        inputs.any(|inputs| inputs == InputsFrom::PackedLayers)
    }

    fn sites_of<'s>(&'s self, unit: &'s Unit) -> impl Iterator<Item = &'s SiteToPack<'s>> {
        let sites = self.sites.iter();
        sites.filter(|one| unit.params.contains(&one.param))
    }

    fn device_graph(
        &self,
        graph: &Graph,
        params: Vec<DeviceParam>,
    ) -> Result<DeviceGraph<'_>, Error> {
        let limits = GraphLimits {
            max_tokens: self.rows.iter().map(Vec::len).max().unwrap_or(1) as u64,
            dtypes: DTYPES,
        };
        DeviceGraph::new(self.kernels, graph, params, limits).during("prepare")
    }

    /// The params of a unit in f32.
    fn dense_params(&self, unit: &Unit, key: Option<&UnitKey>) -> Result<Vec<DeviceParam>, Error> {
        let params = unit.params.iter();
        params.map(|&param| self.dense_param(param, key)).collect()
    }

    fn dense_param(&self, param: usize, key: Option<&UnitKey>) -> Result<DeviceParam, Error> {
        let spec = &self.model.params[param];
        let mut values = vec![0.0f32; spec.elements() as usize];
        read_known((self.store, self.services), spec, (param, key), &mut values)?;
        Ok(DeviceParam {
            layout: WeightLayout::Dense(DType::F32),
            bytes: vec![values.iter().flat_map(|x| x.to_le_bytes()).collect()],
            decoder: None,
        })
    }

    /// The params of a unit, those of `sites` packed.
    fn packed_params(
        &self,
        unit: &Unit,
        key: Option<&UnitKey>,
        sites: &[&SiteToPack<'_>],
        encoder: &SiteEncoder<'_>,
    ) -> Result<Vec<DeviceParam>, Error> {
        let params = unit.params.iter().map(|&param| {
            let Some(site) = sites.iter().find(|site| site.param == param) else {
                return self.dense_param(param, key);
            };
            Ok(DeviceParam {
                layout: WeightLayout::Packed(Box::new(site.format.clone())),
                bytes: encoder.segments(site, &self.model.params[param])?,
                decoder: (site.format.decoding == Decoding::Callback).then(|| {
                    let shape = site.format.shape;
                    Callback::new(site.quantizer, site.site, shape).decoder()
                }),
            })
        });
        params.collect()
    }
}

/// Computes every node of a graph, one after the other.
fn launch_all(graph: &DeviceGraph<'_>, tokens: u64) -> Result<(), Error> {
    for node in 0..graph.graph().nodes.len() {
        graph.launch(node, tokens).during("launch")?;
    }
    Ok(())
}
