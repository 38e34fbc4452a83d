//! A model, an adapter and a recompute policy -> each unit's kernels in order, with a place for every value.

mod cached;
mod draft;
mod layout;
mod memory;
mod place;

use std::collections::HashMap;

use espalier_interface::adaptation::{Adaptation, Join, Site};
use espalier_interface::model::{Model, UnitKind};
use espalier_interface::{KernelRequest, Result};

use self::draft::Draft;
use self::layout::Layout;
use crate::grad::{self, InputGradient};
use crate::params::{Dtypes, Param};
use crate::recompute::{self, Recompute, Retention};
use crate::splice;

pub use cached::CacheShape;
pub use memory::{ArenaLayout, SavedBlock};
pub use place::{BATCH, Extent, Place, Region};

/// Sizes and policies that a program is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most tokens of a micro-batch.
    pub max_tokens: u64,
    /// Most sequences of a micro-batch.
    pub max_sequences: u64,
    /// What layers save.
    pub recompute: Recompute,
    /// The cache that attention reads, where the program generates: it then has no backward pass and no loss.
    pub cache: Option<CacheShape>,
}

/// Numbers that a launch takes beside its buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalars {
    /// None.
    None,
    /// Seed, step and the dropout's number.
    Dropout(u64),
    /// One over the step's trained tokens.
    LossFactor,
}

/// An operand of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperandPlace {
    /// A value.
    Value(Place),
    /// A param of the run.
    Param(usize),
    /// The gradient of a param of the run.
    Gradient(usize),
}

/// A kernel to launch.
#[derive(Clone, Debug)]
pub struct Step {
    /// What the backend prepares.
    pub request: KernelRequest,
    /// Inputs, params, outputs.
    pub operands: Vec<OperandPlace>,
    /// Numbers at launch.
    pub scalars: Scalars,
    /// The site, for messages.
    pub site: Option<String>,
}

/// The kernels of a unit.
#[derive(Clone, Debug)]
pub struct UnitProgram {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: UnitKind,
    /// Forward pass.
    pub forward: Vec<Step>,
    /// Backward pass, what is computed again first.
    pub backward: Vec<Step>,
    /// Steps at the start of the backward pass that compute again what was not saved.
    pub recomputed: usize,
    /// Most tokens of a launch: a head works in chunks.
    pub max_tokens: u64,
    /// Where the head leaves its logits.
    pub logits: Option<Place>,
    /// Where the unit leaves its output `hidden`.
    pub hidden: Option<Place>,
}

/// A run's kernels and the arena they work in.
#[derive(Clone, Debug)]
pub struct Program {
    /// Units in order.
    pub units: Vec<UnitProgram>,
    /// The arena.
    pub arena: ArenaLayout,
    /// For each unit, what it alone saves for its backward pass.
    pub blocks: Vec<SavedBlock>,
}

/// Makes the program. `params` gives every adapter param its unit.
///
/// # Errors
/// What a fragment or an op without a backward rule gives.
pub fn compile(
    model: &Model,
    sites: &[Site],
    adaptation: &Adaptation,
    params: &mut [Param],
    dtypes: Dtypes,
    limits: Limits,
) -> Result<Program> {
    let joins: HashMap<&str, &Join> = adaptation
        .joins
        .iter()
        .map(|join| (sites[join.site].name.as_str(), join))
        .collect();
    let mut dropouts = 0;
    let mut drafts: Vec<Draft> = Vec::with_capacity(model.units.len());
    let mut upstream = InputGradient::NotNeeded;
    for (index, unit) in model.units.iter().enumerate() {
        let mut graph = splice::splice(model, unit, &joins, &mut dropouts)?;
        for &param in &graph.params {
            params[param].unit = params[param].unit.min(index);
        }
        let caches = match limits.cache {
            Some(shape) => cached::cache(&mut graph, shape, &["hidden", "logits"])?,
            None => Vec::new(),
        };
        let trained = |&param: &usize| limits.cache.is_none() && params[param].trainable;
        let trainable: Vec<bool> = graph.params.iter().map(trained).collect();
        let backward = grad::differentiate(&mut graph, &trainable, upstream)?;
        if trainable.contains(&true) {
            upstream = InputGradient::Wanted;
        }
        let policy = if unit.kind == UnitKind::Layer {
            limits.recompute
        } else {
            Recompute::None
        };
        let retention = match unit.kind {
            // A head runs both passes at once: nothing is saved in between.
            UnitKind::Head => Retention::default(),
            _ => recompute::retain(&graph, &backward, policy),
        };
        let name = unit.name.clone();
        drafts.push(Draft {
            unit: graph,
            backward,
            retention,
            caches,
            kind: unit.kind,
            name,
        });
    }
    Layout::new(&drafts, params, dtypes, limits).program()
}
