//! A dense weight and the adapter at its site -> the changed base, and the params that begin with
//! the other part.

use espalier_engine::device_graph::GraphKernels;
use espalier_engine::load::{Scratch, initial_values};
use espalier_interface::Adapter;
use espalier_interface::adaptation::Adaptation;
use espalier_numeric::{ErrorSums, difference};
use espalier_registry::Chosen;
use espalier_system::files::TensorEntry;

use super::super::Source;
use super::super::joined::Joined;
use super::super::quantize::{Packer, PlannedWeight};
use super::PackingErrors;
use crate::Error;

/// An adapter with those of its params that were made.
pub struct SiteAdapter<'a> {
    source: &'a Source<'a>,
    adapter: &'a Chosen<dyn Adapter>,
    adaptation: &'a Adaptation,
    rounds: u64,
    kernels: GraphKernels,
    workspace: Scratch,
    params: Vec<Vec<f32>>,
}

/// A site with a changed base.
pub struct BegunSite<'s, 'a> {
    /// The adapter.
    pub adapter: &'s mut SiteAdapter<'a>,
    /// The quantizers.
    pub packer: &'s mut Packer<'a>,
    /// Index of its join.
    pub join: usize,
    /// Its stored weight.
    pub entry: &'s TensorEntry,
}

impl<'a> SiteAdapter<'a> {
    /// The adapter before any site; `rounds` as in
    /// [`BaseChange`](espalier_interface::adaptation::BaseChange).
    ///
    /// # Errors
    /// A backend that does not list its ops.
    pub fn new(
        source: &'a Source<'a>,
        adapter: &'a Chosen<dyn Adapter>,
        adaptation: &'a Adaptation,
        rounds: u64,
    ) -> Result<Self, Error> {
        Ok(SiteAdapter {
            source,
            adapter,
            adaptation,
            rounds,
            kernels: source.opened_model.graph_kernels()?,
            workspace: Scratch::default(),
            params: vec![Vec::new(); adaptation.params.len()],
        })
    }

    /// The values of all params that were made, in the order of the adaptation.
    pub fn params(&self) -> &[Vec<f32>] {
        &self.params
    }

    /// Makes the params of a join from `matrix`, `[N, M]`, and returns what the adapter then adds
    /// to a weight, of the same shape.
    fn update(&mut self, join: usize, matrix: &[f32]) -> Result<Vec<f32>, Error> {
        let join = &self.adaptation.joins[join];
        let site = &self.source.sites[join.site];
        let named = join.params.iter().map(|&index| {
            let param = &self.adaptation.params[index];
            (param.name.as_str(), param.shape.iter().product())
        });
        let named: Vec<(&str, u64)> = named.collect();
        let seed = self.source.opened_model.config.run.seed;
        let workspace = &mut self.workspace;
        let made = initial_values(self.adapter, (site, matrix), &named, seed, workspace)?;
        for (&index, values) in join.params.iter().zip(made) {
            self.params[index] = values;
        }
        let nothing = vec![0.0; matrix.len()];
        let mut params = vec![Vec::new(); join.fragment.params.len()];
        if let Some(local) = join.base_weight() {
            params[local] = nothing.clone();
        }
        for (local, bound) in join.bound() {
            params[local] = self.params[bound].clone();
        }
        let joined = Joined {
            kernels: &self.kernels,
            services: self.source.opened_model.services,
            site,
            graph: &join.fragment,
            params: &params,
        };
        let mut update = vec![0.0; matrix.len()];
        let merged = joined.merge(&nothing, None, &mut update);
        merged.map_err(|error| self.adapter.failed("initialise", error))?;
        Ok(update)
    }
}

impl BegunSite<'_, '_> {
    /// The base of `weight`, which no quantizer packs.
    ///
    /// # Errors
    /// Errors of the adapter and the device.
    pub fn dense(self, weight: &[f32]) -> Result<Vec<f32>, Error> {
        let update = self.adapter.update(self.join, weight)?;
        Ok(difference(weight, &update))
    }

    /// The segments of the base of `weight`, and the errors of packing.
    ///
    /// # Errors
    /// Errors of the adapter, the device and the quantizer.
    pub fn packed(
        mut self,
        weight: &[f32],
        packed: &PlannedWeight<'_>,
    ) -> Result<(Vec<Vec<u8>>, PackingErrors), Error> {
        let (mut segments, mut lost) = self.pack(packed, weight.to_vec(), weight)?;
        let packed_alone = squares(&lost);
        let mut update;
        if self.adapter.rounds == 0 {
            update = self.adapter.update(self.join, weight)?;
            (segments, lost) = self.pack(packed, difference(weight, &update), weight)?;
        } else {
            update = self.adapter.update(self.join, &lost)?;
            for _ in 1..self.adapter.rounds {
                (segments, lost) = self.pack(packed, difference(weight, &update), weight)?;
                update = self.adapter.update(self.join, &lost)?;
            }
        }
        let errors = PackingErrors {
            weights: squares(weight),
            with_adapter: ErrorSums::of(&lost, &update).squared_error,
            packed_alone,
        };
        Ok((segments, errors))
    }

    /// The segments of `base`, and what `weight` is beyond their decoded values.
    fn pack(
        &mut self,
        packed: &PlannedWeight<'_>,
        mut base: Vec<f32>,
        weight: &[f32],
    ) -> Result<(Vec<Vec<u8>>, Vec<f32>), Error> {
        let segments = self.packer.segments(self.entry, packed, &mut base)?;
        Ok((segments, difference(weight, &base)))
    }
}

fn squares(values: &[f32]) -> f64 {
    ErrorSums::of(values, values).squared_norm
}
