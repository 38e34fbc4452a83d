//! A model, an adapter and a recompute policy -> each unit's kernels in order, with a place for
//! every value.

mod by_length;
mod cached;
mod draft;
mod labelled_rows;
mod layout;
mod memory;
mod value_location;

use std::collections::BTreeSet;

use espalier_interface::adaptation::{Adaptation, Site};
use espalier_interface::graph::batch::LengthPositions;
use espalier_interface::model::{Model, UnitKind};
use espalier_interface::op::InEvaluation;
use espalier_interface::{KernelRequest, PluginError};

use self::draft::Draft;
use self::layout::Layout;
use crate::decompose::{self, BackendOps};
use crate::factors;
use crate::fuse;
use crate::grad::{self, InputGradient};
use crate::params::{Dtypes, Param};
use crate::recompute::{self, Recompute, Retention};
use crate::splice::{self, Replacements};

pub use cached::CacheShape;
pub use labelled_rows::LabelledRows;
pub use memory::{ArenaLayout, SavedBlock};
pub use value_location::{BATCH, Extent, ValueLocation, ValueMemory};

/// A model and what an adapter adds to it, for a backend.
#[derive(Clone, Copy, Debug)]
pub struct AdaptedModel<'a> {
    /// The model.
    pub model: &'a Model,
    /// Its sites.
    pub sites: &'a [Site],
    /// The adapter's fragments and params.
    pub adaptation: &'a Adaptation,
    /// The dtypes of the run.
    pub dtypes: Dtypes,
    /// The ops of the backend.
    pub ops: &'a BackendOps,
}

/// Sizes and policies of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most tokens of a micro-batch.
    pub max_tokens: u64,
    /// Most sequences of a micro-batch.
    pub max_sequences: u64,
    /// Which activations layers save and which they compute again.
    pub recompute: Recompute,
    /// The cache that attention reads, where the program generates text. Such a program has no
    /// backward pass and no loss.
    pub cache: Option<CacheShape>,
    /// Bytes of logits in a chunk of the head, about: [`HEAD_CHUNK_BYTES`], or what the device asks
    /// for.
    pub head_chunk_bytes: u64,
}

/// Bytes of logits in a chunk of the head where the device does not say. It is the same on every
/// machine, so that no result depends on one.
pub const HEAD_CHUNK_BYTES: u64 = 16 << 20;

/// A scalar argument of a launch, by the name that the op's definition has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// `seed_low`: the run's seed, its lower 32 bits.
    SeedLow,
    /// `seed_high`: its upper 32 bits.
    SeedHigh,
    /// `step`: the optimizer step.
    Step,
    /// `site`: the number of the dropout.
    Site(u64),
    /// `factor`: one over the step's trained tokens.
    LossFactor,
}

/// An operand of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperandPlace {
    /// A value.
    Value(ValueLocation),
    /// A param of the run.
    Param(usize),
    /// The gradient of a param of the run.
    Gradient(usize),
}

/// A kernel to launch.
#[derive(Clone, Debug)]
pub struct KernelCall {
    /// What the backend prepares.
    pub request: KernelRequest,
    /// Inputs, params, outputs.
    pub operands: Vec<OperandPlace>,
    /// Numbers at launch, in the op's order.
    pub scalars: Vec<Scalar>,
    /// What it does where nothing is trained.
    pub in_evaluation: InEvaluation,
    /// The site it belongs to, for error messages.
    pub site: Option<String>,
}

/// The kernels of a unit.
#[derive(Clone, Debug)]
pub struct UnitProgram {
    /// Name of the unit.
    pub name: String,
    /// Kind of the unit.
    pub kind: UnitKind,
    /// Forward pass.
    pub forward: Vec<KernelCall>,
    /// Backward pass; it starts with the steps that recompute unsaved values.
    pub backward: Vec<KernelCall>,
    /// Number of those steps at the start of the backward pass.
    pub recomputed: usize,
    /// Most tokens of a launch; a head processes its tokens in chunks.
    pub max_tokens: u64,
    /// Place of the head's logits.
    pub logits: Option<ValueLocation>,
    /// Place of the unit's output `hidden`.
    pub hidden: Option<ValueLocation>,
    /// Of a head that can work on tokens with a label alone, the places that their rows move
    /// between.
    pub labelled: Option<LabelledRows>,
}

/// The kernels of a run and the memory they work in.
#[derive(Clone, Debug)]
pub struct Program {
    /// Units in order.
    pub units: Vec<UnitProgram>,
    /// The arena.
    pub arena: ArenaLayout,
    /// For each unit, the values that only it saves for its backward pass.
    pub blocks: Vec<SavedBlock>,
    /// The tensors of a micro-batch that its units read behind [`BATCH`], in order.
    pub by_length: Vec<LengthPositions>,
    /// The ops that run by their decomposition.
    pub decomposed: BTreeSet<String>,
}

/// Why there is no program.
#[derive(Debug)]
pub enum NoProgram {
    /// A graph is not valid, or cannot be trained or laid out.
    Graph(PluginError),
    /// The backend lacks an op.
    Lacking(PluginError),
}

impl From<PluginError> for NoProgram {
    fn from(error: PluginError) -> Self {
        NoProgram::Graph(error)
    }
}

/// Makes the program. Sets the unit of every adapter param in `params` that is trained.
///
/// # Errors
/// As [`splice::splice`] for a fragment that does not fit its site, [`grad::differentiate`] for an
/// op without a backward rule, [`decompose::decompose`] for an op that the backend lacks, and
/// `cached::cache` and `layout` for graphs that cannot generate or
/// have no place.
pub fn compile(
    adapted: &AdaptedModel<'_>,
    params: &mut [Param],
    limits: Limits,
) -> Result<Program, NoProgram> {
    let AdaptedModel {
        model,
        sites,
        adaptation,
        dtypes,
        ops,
    } = *adapted;
    let joins = adaptation.joins.iter();
    let replaced = adaptation.norms.iter().filter_map(|norm| {
        let weight = splice::weight_of(model, &sites[norm.site])?;
        Some((weight, norm.param))
    });
    let replacements = Replacements {
        joins: joins
            .map(|join| (sites[join.site].name.as_str(), join))
            .collect(),
        params: replaced.collect(),
    };
    let mut dropouts = 0;
    let mut drafts: Vec<Draft> = Vec::with_capacity(model.units.len());
    let mut upstream = InputGradient::NotNeeded;
    let mut decomposed = BTreeSet::new();
    for (index, unit) in model.units.iter().enumerate() {
        let mut graph = splice::splice(model, unit, &replacements, &mut dropouts)?;
        for &param in &graph.params {
            let of_adapter = param.checked_sub(model.params.len());
            if of_adapter.and_then(|own| adaptation.frozen(own)).is_none() {
                params[param].unit = params[param].unit.min(index);
            }
        }
        let longest = limits
            .cache
            .map_or(limits.max_tokens, |cache| cache.capacity);
        by_length::drop_unturned(&mut graph, longest);
        let caches = match limits.cache {
            Some(shape) => cached::cache(&mut graph, shape, &["hidden", "logits"])?,
            None => Vec::new(),
        };
        let trained = |&param: &usize| limits.cache.is_none() && params[param].trainable;
        let trainable: Vec<bool> = graph.params.iter().map(trained).collect();
        let mut backward = grad::differentiate(&mut graph, &trainable, upstream)?;
        factors::round(&mut graph, &mut backward, dtypes)?;
        fuse::fuse(&mut graph, &mut backward, ops);
        decompose::decompose(&mut graph, &mut backward, ops, dtypes, &mut decomposed)
            .map_err(NoProgram::Lacking)?;
        if trainable.contains(&true) {
            upstream = InputGradient::Wanted;
        }
        let policy = if unit.kind == UnitKind::Layer {
            limits.recompute
        } else {
            Recompute::None
        };
        let retention = match unit.kind {
            // A head runs both passes on each chunk, so nothing is saved between them.
            UnitKind::Head => Retention::default(),
            _ => {
                let own = |local: usize| graph.params[local] < model.params.len();
                let trains_weights = (0..trainable.len()).any(|p| trainable[p] && own(p));
                recompute::retain(&graph, &backward, policy, trains_weights)
            }
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
    let program = Layout::new(&drafts, params, dtypes, limits).program()?;
    Ok(Program {
        decomposed,
        ..program
    })
}
