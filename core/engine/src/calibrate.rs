//! Calibration rows and a dense base -> its packed weights, encoded layer by layer with statistics
//! of their inputs.
//!
//! A layer runs twice where a quantizer wants inputs that went through packed layers: dense, for
//! the statistics, and packed, for the inputs of the next layer. Each row runs by itself, and rows
//! are added up in their order, so that no bit depends on threads or ranks. At most one layer's
//! weights and statistics are in memory.
//!
//! Legend: `T` tokens of a row, `M` channels of an input.

mod activations;
mod encode_site;
mod gathered;
mod statistics_graph;

use std::path::Path;

use espalier_compile::params::Dtypes;
use espalier_interface::calibration::{Calibration, InputsFrom};
use espalier_interface::format::{Decoding, Format};
use espalier_interface::graph::Graph;
use espalier_interface::model::{Model, Unit};
use espalier_interface::{DType, Quantizer, WeightLayout};
use espalier_registry::Chosen;
use espalier_system::files::TensorStore;
use espalier_system::stop::StopFlag;

use self::activations::Activations;
use self::encode_site::SiteEncoder;
use self::gathered::Gathered;
use self::statistics_graph::StatisticsGraph;
use crate::Error;
use crate::decoder::Callback;
use crate::device_graph::{DeviceGraph, DeviceParam, GraphKernels, GraphLimits};
use crate::error::BackendCall;
use crate::load::{CalibratedWeights, read_weight, stored_name};
use crate::observer::{Event, Observer};

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
    /// Told of the layers that are done.
    pub observer: &'a dyn Observer,
    /// Ends the calibration.
    pub stop: &'a StopFlag,
}

impl Calibrator<'_> {
    /// Encodes all weights up to the last one with statistics into an unnamed file in `directory`.
    ///
    /// # Errors
    /// `Error::Weights` for a weight that cannot be read and for inputs that are not finite;
    /// `Error::Plugin` for a failed call of the quantizer or the backend; `Error::File` for a full
    /// disk; `Error::Interrupted` after a signal.
    pub fn run(&self, directory: &Path) -> Result<CalibratedWeights, Error> {
        let bytes = self.sites.iter().map(|one| one.format.bytes()).sum();
        let packed = CalibratedWeights::new(directory, bytes);
        let calibrated = |unit: &Unit| self.sites_of(unit).any(|one| one.calibration.is_some());
        let last = self.model.units.iter().rposition(calibrated);
        let Some(last) = last else {
            return Ok(packed);
        };
        let mut activations = Activations::of_rows(self.rows);
        let mut encoder = SiteEncoder::new(self.store, &packed);
        let total = last as u64 + 1;
        for (index, unit) in self.model.units[..=last].iter().enumerate() {
            self.stop.check()?;
            let is_last = index == last;
            self.unit(unit, is_last, &mut activations, &mut encoder)?;
            self.observer.observe(&Event::CalibrationProgress {
                unit: &unit.name,
                done: index as u64 + 1,
                total,
            });
        }
        Ok(packed)
    }

    /// Encodes the weights of a unit, and takes the activations through it.
    fn unit(
        &self,
        unit: &Unit,
        is_last: bool,
        activations: &mut Activations,
        encoder: &mut SiteEncoder<'_>,
    ) -> Result<(), Error> {
        let sites: Vec<&SiteToPack<'_>> = self.sites_of(unit).collect();
        let graph = &self.model.graphs[unit.graph];
        let statistics = StatisticsGraph::of(graph, unit, &sites, is_last);
        let runs_packed = !is_last && !sites.is_empty() && self.wants_packed_layers();
        let mut gathered = Gathered::new(&statistics, unit);
        if !statistics.inputs.is_empty() || !runs_packed {
            let dense = self.dense_params(unit)?;
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
        let mut segments = Vec::with_capacity(sites.len());
        for site in &sites {
            self.stop.check()?;
            let spec = &self.model.params[site.param];
            segments.push(encoder.encode(site, spec, &gathered)?);
        }
        drop(gathered);
        if runs_packed {
            let plain = StatisticsGraph::of(graph, unit, &[], false);
            let params = self.packed_params(unit, &sites, segments)?;
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
    fn dense_params(&self, unit: &Unit) -> Result<Vec<DeviceParam>, Error> {
        let params = unit.params.iter();
        params.map(|&param| self.dense_param(param)).collect()
    }

    fn dense_param(&self, param: usize) -> Result<DeviceParam, Error> {
        let spec = &self.model.params[param];
        let name = stored_name(self.store, &spec.name, &spec.aliases, &spec.shape)?;
        let mut values = vec![0.0f32; spec.elements() as usize];
        read_weight(self.store, &name, &mut values)?;
        Ok(DeviceParam {
            layout: WeightLayout::Dense(DType::F32),
            bytes: vec![values.iter().flat_map(|x| x.to_le_bytes()).collect()],
            decoder: None,
        })
    }

    /// The params of a unit, `sites` packed with these segments.
    fn packed_params(
        &self,
        unit: &Unit,
        sites: &[&SiteToPack<'_>],
        segments: Vec<Vec<Vec<u8>>>,
    ) -> Result<Vec<DeviceParam>, Error> {
        let mut packed: Vec<_> = segments.into_iter().map(Some).collect();
        let params = unit.params.iter().map(|&param| {
            let Some(at) = sites.iter().position(|site| site.param == param) else {
                return self.dense_param(param);
            };
            let site = sites[at];
            Ok(DeviceParam {
                layout: WeightLayout::Packed(Box::new(site.format.clone())),
                bytes: packed[at].take().unwrap_or_default(),
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
