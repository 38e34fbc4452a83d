//! Units' values -> places in one arena: what lasts from forward to backward, what passes from unit to unit, and work.

use std::collections::HashMap;

use espalier_interface::graph::{Dim, Source, ValueId, batch};
use espalier_interface::model::UnitKind;
use espalier_interface::{DType, PluginError, Result};

use super::{Call, Draft, Limits, OperandPlace, Program, Scalars, Step, UnitProgram, request};
use crate::arena::{Lifetime, aligned, pack};
use crate::grad::{self, Target};
use crate::params::{Dtypes, Param};

/// Logits of a chunk fill about this many bytes; a choice of shape alone, so that no result depends on the machine.
const CHUNK_BYTES: u64 = 16 << 20;
/// Fewest tokens of a chunk; chunks are multiples of it, which keeps every operand aligned.
const CHUNK_STEP: u64 = 64;

/// A part of a run's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    /// A tensor of the micro-batch, by its place in [`BATCH`].
    Batch(usize),
    /// The arena; the offset counts from its start.
    Arena,
    /// What a unit alone saves for its backward pass; the offset counts from the start of its block.
    Saved(usize),
}

/// The tensors of a micro-batch in the order in which they lie in their buffer.
pub const BATCH: [&str; 5] = [
    batch::TOKENS,
    batch::POSITIONS,
    batch::LABELS,
    batch::SEQUENCES,
    batch::CU_SEQLENS,
];

/// The size of a value as a function of the micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Bytes.
    Fixed(u64),
    /// Bytes a token.
    PerToken(u64),
    /// Four bytes for each boundary of a sequence.
    Boundaries,
}

impl Extent {
    /// Bytes for `tokens` tokens of `sequences` sequences.
    pub fn bytes(self, tokens: u64, sequences: u64) -> u64 {
        match self {
            Extent::Fixed(bytes) => bytes,
            Extent::PerToken(bytes) => bytes * tokens,
            Extent::Boundaries => 4 * (sequences + 1),
        }
    }
}

/// Where a value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// In which memory.
    pub region: Region,
    /// First byte.
    pub offset: u64,
    /// Size.
    pub extent: Extent,
    /// Whether a chunk of tokens takes its own rows of it: true for what a head shares with the rest of the step.
    pub by_chunk: bool,
}

/// The arena's parts in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaLayout {
    /// Keys and values of earlier tokens, which nothing else overwrites.
    pub cache: u64,
    /// What layers save for the backward pass beside their blocks: what more than one of them reads.
    pub saved: u64,
    /// Hidden states and their gradients on the way from unit to unit, and the loss of each token.
    pub passing: u64,
    /// Work of the embedding and the layers.
    pub work: u64,
    /// What the head's chunk needs beyond that.
    pub logits: u64,
    /// Loss of each token, and whether it was the likeliest.
    pub loss: Option<Place>,
    /// See `loss`.
    pub correct: Option<Place>,
}

impl ArenaLayout {
    /// Bytes of the whole arena.
    pub fn bytes(&self) -> u64 {
        self.cache + self.saved + self.passing + self.work + self.logits
    }
}

/// What a unit saves that no other unit's backward pass reads: its input, and values of its forward pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedBlock {
    /// Bytes at the largest micro-batch.
    pub bytes: u64,
    /// The values, by first byte and size.
    pub values: Vec<(u64, Extent)>,
}

impl SavedBlock {
    /// Adds a value to the block of unit number `unit`.
    fn put(&mut self, unit: usize, extent: Extent, limits: Limits) -> Place {
        let offset = self.bytes;
        self.values.push((offset, extent));
        self.bytes += aligned(extent.bytes(limits.max_tokens, limits.max_sequences));
        Place {
            region: Region::Saved(unit),
            offset,
            extent,
            by_chunk: false,
        }
    }
}

/// Gives every value its place.
pub(super) fn place(
    drafts: &[Draft],
    params: &[Param],
    dtypes: Dtypes,
    limits: Limits,
) -> Result<Program> {
    let last = drafts.len() - 1;
    let mut arena = ArenaLayout::default();
    let mut kept: Vec<HashMap<ValueId, Place>> = vec![HashMap::new(); drafts.len()];
    for (index, draft) in drafts.iter().enumerate() {
        for &value in &draft.caches {
            let place = lasting(draft, value, dtypes, limits, &mut arena.cache)?;
            kept[index].insert(value, place);
        }
    }
    // What lasts: saved values and hidden states that a backward pass reads. What only one unit reads again lies in a block
    // of that unit's, which can leave the device between its two passes.
    let mut outputs: Vec<Option<Place>> = vec![None; drafts.len()];
    let mut blocks: Vec<SavedBlock> = vec![SavedBlock::default(); drafts.len()];
    let mut end = arena.cache;
    for (index, draft) in drafts.iter().enumerate() {
        let hidden = grad::output(&draft.unit.graph, "hidden");
        for &value in &draft.retention.saved {
            let place = if hidden == Some(value) {
                // The next unit reads it, too.
                lasting(draft, value, dtypes, limits, &mut end)?
            } else {
                blocks[index].put(index, extent_of(draft, value, dtypes)?, limits)
            };
            kept[index].insert(value, place);
        }
        let Some(hidden) = hidden else {
            continue;
        };
        if let Some(&place) = kept[index].get(&hidden) {
            outputs[index] = Some(place);
        } else if drafts[index + 1].retention.keeps_input {
            let extent = extent_of(draft, hidden, dtypes)?;
            outputs[index] = Some(blocks[index + 1].put(index + 1, extent, limits));
        }
    }
    // What passes: two slots for hidden states, two for their gradients, the loss by token.
    let mut slots = [0u64; 2];
    for (index, draft) in drafts.iter().enumerate().take(last) {
        let hidden = hidden_of(draft)?;
        let extent = extent_of(draft, hidden, dtypes)?;
        let bytes = aligned(extent.bytes(limits.max_tokens, limits.max_sequences));
        if outputs[index].is_none() {
            slots[0] = slots[0].max(bytes);
        }
        if draft.backward.seed.is_some() {
            slots[1] = slots[1].max(bytes);
        }
    }
    arena.saved = end - arena.cache;
    let base = end;
    let slot = |kind: usize, index: usize| {
        base + if kind == 0 { 0 } else { 2 * slots[0] } + (index as u64 % 2) * slots[kind]
    };
    for (index, draft) in drafts.iter().enumerate().take(last) {
        if outputs[index].is_none() {
            let extent = extent_of(draft, hidden_of(draft)?, dtypes)?;
            outputs[index] = Some(in_arena(slot(0, index), extent));
        }
    }
    arena.passing = 2 * (slots[0] + slots[1]);
    let mut by_token = |bytes: u64| {
        let place = in_arena(base + arena.passing, Extent::PerToken(bytes));
        arena.passing += aligned(bytes * limits.max_tokens);
        Place {
            by_chunk: true,
            ..place
        }
    };
    if limits.cache.is_none() {
        arena.loss = Some(by_token(dtypes.reduce.bytes()));
        arena.correct = Some(by_token(4));
    }

    let work = base + arena.passing;
    let mut units = Vec::with_capacity(drafts.len());
    let mut head_work = 0;
    for (index, draft) in drafts.iter().enumerate() {
        let mut fixed = kept[index].clone();
        let head = draft.kind == UnitKind::Head;
        let max_tokens = if head {
            chunk(draft, dtypes, limits)
        } else {
            limits.max_tokens
        };
        if index > 0 {
            if let Some(hidden) = grad::hidden_input(&draft.unit.graph) {
                let place =
                    outputs[index - 1].expect("units before the head hand over hidden states");
                fixed.insert(
                    hidden,
                    Place {
                        by_chunk: head,
                        ..place
                    },
                );
            }
            if let Some(gradient) = draft.backward.input {
                let extent = extent_of(draft, gradient, dtypes)?;
                let place = in_arena(slot(1, index - 1), extent);
                fixed.insert(
                    gradient,
                    Place {
                        by_chunk: head,
                        ..place
                    },
                );
            }
        }
        if let Some(seed) = draft.backward.seed {
            let extent = extent_of(draft, seed, dtypes)?;
            fixed.insert(seed, in_arena(slot(1, index), extent));
        }
        for (name, place) in [
            ("hidden", outputs[index]),
            ("loss", arena.loss),
            ("correct", arena.correct),
        ] {
            if let (Some(value), Some(place)) = (grad::output(&draft.unit.graph, name), place) {
                fixed.insert(value, place);
            }
        }
        for input in &draft.unit.graph.inputs {
            if let Source::Batch(name) = &input.source {
                fixed.insert(input.value, batch_place(name, head)?);
            }
        }
        let unit_limits = Limits {
            max_tokens,
            ..limits
        };
        let opened_model = OpenedModel {
            draft,
            params,
            dtypes,
            limits: unit_limits,
            fixed: &fixed,
            work,
        };
        let (forward, backward, bytes, logits);
        if head {
            let calls: Vec<_> = draft
                .forward_calls()
                .into_iter()
                .chain(draft.backward_calls())
                .collect();
            let (mut steps, end, places) = opened_model.steps(&calls)?;
            backward = steps.split_off(draft.unit.nodes.len());
            (forward, bytes) = (steps, end);
            logits =
                grad::output(&draft.unit.graph, "logits").and_then(|v| places.get(&v).copied());
            head_work = bytes;
        } else {
            let (steps, one, _) = opened_model.steps(&draft.forward_calls())?;
            let (again, two, _) = opened_model.steps(&draft.backward_calls())?;
            (forward, backward, bytes, logits) = (steps, again, one.max(two), None);
            arena.work = arena.work.max(bytes);
        }
        units.push(UnitProgram {
            name: draft.name.clone(),
            kind: draft.kind,
            forward,
            backward,
            recomputed: draft.retention.again.len(),
            max_tokens,
            logits,
            hidden: outputs[index],
        });
    }
    arena.logits = head_work.saturating_sub(arena.work);
    Ok(Program {
        units,
        arena,
        blocks,
    })
}

/// What a unit's steps are placed upon.
struct OpenedModel<'a> {
    draft: &'a Draft,
    params: &'a [Param],
    dtypes: Dtypes,
    limits: Limits,
    /// Values whose place is settled.
    fixed: &'a HashMap<ValueId, Place>,
    /// Where the work part of the arena begins.
    work: u64,
}

impl OpenedModel<'_> {
    /// The steps of `calls`, the bytes of work they need, and where each value lies.
    fn steps(&self, calls: &[Call<'_>]) -> Result<(Vec<Step>, u64, HashMap<ValueId, Place>)> {
        let mut lives: HashMap<ValueId, (usize, usize)> = HashMap::new();
        for (at, call) in calls.iter().enumerate() {
            let made = call.outputs.iter().filter_map(|target| match target {
                Target::Value(value) => Some(value),
                Target::Gradient(_) => None,
            });
            for &value in call.inputs.iter().chain(made) {
                if !self.fixed.contains_key(&value) {
                    lives.entry(value).or_insert((at, at)).1 = at;
                }
            }
        }
        let mut order: Vec<ValueId> = lives.keys().copied().collect();
        order.sort_unstable();
        let mut lifetimes = Vec::with_capacity(order.len());
        let mut places = self.fixed.clone();
        for &value in &order {
            let extent = extent_of(self.draft, value, self.dtypes)?;
            let bytes = extent.bytes(self.limits.max_tokens, self.limits.max_sequences);
            let (first, last) = lives[&value];
            lifetimes.push(Lifetime { bytes, first, last });
        }
        let (offsets, end) = pack(&lifetimes);
        for (&value, offset) in order.iter().zip(offsets) {
            let extent = extent_of(self.draft, value, self.dtypes)?;
            places.insert(value, in_arena(self.work + offset, extent));
        }
        let steps = calls.iter().map(|call| self.step(call, &places)).collect();
        Ok((steps, end, places))
    }

    fn step(&self, call: &Call<'_>, places: &HashMap<ValueId, Place>) -> Step {
        let inputs = call
            .inputs
            .iter()
            .map(|value| OperandPlace::Value(places[value]));
        let bound = |&local: &usize| OperandPlace::Param(self.draft.unit.params[local]);
        let outputs = call.outputs.iter().map(|target| match target {
            Target::Value(value) => OperandPlace::Value(places[value]),
            Target::Gradient(local) => OperandPlace::Gradient(self.draft.unit.params[*local]),
        });
        Step {
            request: request(self.draft, self.params, self.dtypes, self.limits, call),
            operands: inputs
                .chain(call.params.iter().map(bound))
                .chain(outputs)
                .collect(),
            scalars: match (call.dropout, call.op) {
                (Some(number), "dropout") => Scalars::Dropout(number),
                (_, "cross_entropy_backward") => Scalars::LossFactor,
                _ => Scalars::None,
            },
            site: call.site.cloned(),
        }
    }
}

fn in_arena(offset: u64, extent: Extent) -> Place {
    Place {
        region: Region::Arena,
        offset,
        extent,
        by_chunk: false,
    }
}

/// A place at the end of what is saved.
fn lasting(
    draft: &Draft,
    value: ValueId,
    dtypes: Dtypes,
    limits: Limits,
    end: &mut u64,
) -> Result<Place> {
    let extent = extent_of(draft, value, dtypes)?;
    let place = in_arena(*end, extent);
    *end += aligned(extent.bytes(limits.max_tokens, limits.max_sequences));
    Ok(place)
}

fn hidden_of(draft: &Draft) -> Result<ValueId> {
    grad::output(&draft.unit.graph, "hidden").ok_or_else(|| {
        PluginError::invalid(format!("unit `{}` has no output `hidden`", draft.name))
    })
}

fn batch_place(name: &str, by_chunk: bool) -> Result<Place> {
    let Some(index) = BATCH.iter().position(|known| *known == name) else {
        return Err(PluginError::invalid(format!(
            "no batch tensor `{name}`: there are {}",
            BATCH.join(", ")
        )));
    };
    let extent = if name == batch::CU_SEQLENS {
        Extent::Boundaries
    } else {
        Extent::PerToken(4)
    };
    Ok(Place {
        region: Region::Batch(index),
        offset: 0,
        extent,
        by_chunk,
    })
}

/// The size of a value; at most one of its extents may vary.
fn extent_of(draft: &Draft, value: ValueId, dtypes: Dtypes) -> Result<Extent> {
    let bytes = draft.dtype(value, dtypes).bytes();
    let shape = &draft.unit.graph.values[value].shape;
    let fixed: u64 = shape
        .iter()
        .map(|dim| {
            if let Dim::Fixed(extent) = dim {
                *extent
            } else {
                1
            }
        })
        .product();
    let varying: Vec<_> = shape
        .iter()
        .filter(|dim| !matches!(dim, Dim::Fixed(_)))
        .collect();
    match varying.as_slice() {
        [] => Ok(Extent::Fixed(fixed * bytes)),
        [Dim::Tokens] => Ok(Extent::PerToken(fixed * bytes)),
        [Dim::Boundaries] if fixed == 1 && bytes == DType::I32.bytes() => Ok(Extent::Boundaries),
        _ => Err(PluginError::invalid(format!(
            "unit `{}`: a value of shape {shape:?} has no linear size",
            draft.name
        ))),
    }
}

/// Tokens of a head's chunk: about [`CHUNK_BYTES`] of logits. Where the program generates, a sequence asks for one token's.
fn chunk(draft: &Draft, dtypes: Dtypes, limits: Limits) -> u64 {
    let logits = grad::output(&draft.unit.graph, "logits");
    let per_token = logits.and_then(|value| extent_of(draft, value, dtypes).ok());
    let bytes = match per_token {
        Some(Extent::PerToken(bytes)) => bytes.max(1),
        _ => 1,
    };
    let steps = (CHUNK_BYTES / bytes / CHUNK_STEP).max(1);
    let most = match limits.cache {
        Some(shape) => shape.slots,
        None => limits.max_tokens.div_ceil(CHUNK_STEP) * CHUNK_STEP,
    };
    (steps * CHUNK_STEP).min(most)
}
