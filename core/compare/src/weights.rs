//! Weights in dense and packed form during loading -> the encoding error of each.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use espalier_compile::params::Param;
use espalier_engine::Error;
use espalier_engine::decoder::{WeightWindow, decode};
use espalier_engine::error::of_param;
use espalier_engine::load::{EncodedWeight, Inspector, Scratch};
use espalier_interface::WeightLayout;
use espalier_numeric::ErrorSums;
use espalier_plan::plan::RunPlan;
use espalier_system::threads::HostServices;
use rayon::prelude::*;

use super::record::WeightError;

/// Most elements decoded at once by a thread.
const PART: u64 = 1 << 18;

/// Decodes each encoded weight in parts, and sums its error.
pub struct WeightErrors {
    services: &'static HostServices,
    /// The units that are layers.
    layers: Range<usize>,
    /// The number of each param by its name.
    order: HashMap<String, usize>,
    found: Mutex<Vec<WeightError>>,
    /// Unused memory for parts.
    spare: Mutex<Vec<Scratch>>,
}

impl WeightErrors {
    /// For the weights of `plan`, on the threads of `services`.
    pub fn new(plan: &RunPlan, services: &'static HostServices) -> Self {
        // A model is one embedding, layers, one head.
        let layers = 1..plan.model.units.len() - 1;
        let names = plan.params.iter().map(|param| param.name.clone());
        WeightErrors {
            services,
            layers,
            order: names.zip(0..).collect(),
            found: Mutex::default(),
            spare: Mutex::default(),
        }
    }

    /// Takes the errors measured so far, in the order of the params: ranks load them at once.
    /// Weights that the files hold packed have none.
    pub fn take_found(&self) -> Vec<WeightError> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.sort_by_key(|error| self.order.get(&error.name).copied());
        std::mem::take(&mut *found)
    }

    /// Most bytes of the measurement, without the weight.
    pub fn bytes(plan: &RunPlan, threads: usize) -> u64 {
        let packed = |param: &&Param| matches!(param.layout, WeightLayout::Packed(_));
        let elements = plan.params.iter().filter(packed).map(Param::elements);
        let largest = elements.max().unwrap_or(0);
        4 * PART.min(largest) * threads as u64
    }

    fn sums(&self, weight: &EncodedWeight<'_>) -> Result<ErrorSums, Error> {
        let windows = Windows::of(weight.format.shape);
        let part = |index: u64| self.part(weight, windows.at(index));
        let work = || (0..windows.count()).into_par_iter().map(part);
        let parts: Vec<Result<ErrorSums, Error>> = self.services.install(|| work().collect());
        // Summed in the order of the parts, not of completion; the first error is chosen in the
        // same order.
        let add = |sums: ErrorSums, part: Result<ErrorSums, Error>| part.map(|part| sums.and(part));
        parts.into_iter().try_fold(ErrorSums::default(), add)
    }

    fn part(&self, weight: &EncodedWeight<'_>, window: WeightWindow) -> Result<ErrorSums, Error> {
        let shape = weight.format.shape;
        let WeightWindow { rows, cols } = &window;
        let first = (rows.start * shape[1] + cols.start) as usize;
        let count = ((rows.end - rows.start) * (cols.end - cols.start)) as usize;
        let spare = || self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let mut scratch = spare().pop().unwrap_or_default();
        let decoded = scratch.floats(count)?;
        let quantizer = weight.quantizer.plugin.as_ref();
        decode(quantizer, weight.segments, shape, window, decoded).map_err(|error| {
            let error = of_param(weight.name, error);
            weight.quantizer.failed("decode", error)
        })?;
        let sums = ErrorSums::of(&weight.dense[first..first + count], decoded);
        spare().push(scratch);
        Ok(sums)
    }
}

impl Inspector for WeightErrors {
    fn inspect(&self, param: &Param, weight: &EncodedWeight<'_>) -> Result<(), Error> {
        let sums = self.sums(weight)?;
        let layer = self.layers.contains(&param.unit);
        let found = WeightError {
            name: param.name.clone(),
            layer: layer.then(|| (param.unit - self.layers.start) as u64),
            kind: projection(&param.name).to_owned(),
            quantizer: weight.quantizer.identity.component.clone(),
            elements: param.elements(),
            bytes: weight.format.bytes(),
            squared_error: sums.squared_error,
            squared_norm: sums.squared_norm,
            largest_error: sums.largest_error,
        };
        let mut all = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(found);
        Ok(())
    }
}

/// A weight `[N, M]` cut into whole rows, or into pieces of rows where a row is too long.
struct Windows {
    shape: [u64; 2],
    rows: u64,
    cols: u64,
}

impl Windows {
    fn of([rows, cols]: [u64; 2]) -> Self {
        Windows {
            shape: [rows, cols],
            rows: (PART / cols).clamp(1, rows),
            cols: cols.min(PART),
        }
    }

    fn across(&self) -> u64 {
        self.shape[1].div_ceil(self.cols)
    }

    fn count(&self) -> u64 {
        self.shape[0].div_ceil(self.rows) * self.across()
    }

    fn at(&self, index: u64) -> WeightWindow {
        let row = index / self.across() * self.rows;
        let col = index % self.across() * self.cols;
        let end = |first: u64, step: u64, end: u64| (first + step).min(end);
        WeightWindow {
            rows: row..end(row, self.rows, self.shape[0]),
            cols: col..end(col, self.cols, self.shape[1]),
        }
    }
}

/// The module's own name in the name of its weight: `q_proj` of
/// `model.layers.0.self_attn.q_proj.weight`.
fn projection(param: &str) -> &str {
    let module = param.strip_suffix(".weight").unwrap_or(param);
    module.rsplit('.').next().unwrap_or(module)
}

#[cfg(test)]
mod tests;
