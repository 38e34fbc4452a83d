//! Drafts of units -> a place for every value, in the arena or in a unit's block of saved values.

mod hidden_slots;
mod labelled_rows;
mod unit_program;
mod unit_steps;

use std::collections::{BTreeSet, HashMap};

use espalier_interface::Result;
use espalier_interface::graph::ValueId;
use espalier_interface::graph::batch::LengthPositions;
use espalier_interface::model::UnitKind;

use self::hidden_slots::HiddenSlots;
use super::draft::Draft;
use super::memory::{ArenaLayout, SavedBlock};
use super::value_location::{Extent, ValueLocation};
use super::{Limits, Program, by_length};
use crate::arena::aligned;
use crate::grad;
use crate::params::{Dtypes, Param};

/// Places given so far.
pub(super) struct Layout<'a> {
    drafts: &'a [Draft],
    params: &'a [Param],
    dtypes: Dtypes,
    limits: Limits,
    arena: ArenaLayout,
    /// For each unit, the values that outlast a pass: caches and saved values.
    kept: Vec<HashMap<ValueId, ValueLocation>>,
    /// For each unit, the place of its output `hidden`.
    outputs: Vec<Option<ValueLocation>>,
    blocks: Vec<SavedBlock>,
    /// The tensors of a micro-batch behind those that every one has.
    by_length: Vec<LengthPositions>,
}

impl<'a> Layout<'a> {
    /// A layout without a place.
    pub fn new(drafts: &'a [Draft], params: &'a [Param], dtypes: Dtypes, limits: Limits) -> Self {
        Layout {
            drafts,
            params,
            dtypes,
            limits,
            arena: ArenaLayout::default(),
            kept: vec![HashMap::new(); drafts.len()],
            outputs: vec![None; drafts.len()],
            blocks: vec![SavedBlock::default(); drafts.len()],
            by_length: by_length::tensors(drafts),
        }
    }

    /// Gives every value its place and makes the program.
    ///
    /// # Errors
    /// `INVALID` for a unit before the last without the output `hidden`, an unknown batch tensor,
    /// and a value whose size is no linear function of the micro-batch.
    pub fn program(mut self) -> Result<Program> {
        self.place_caches()?;
        self.place_saved()?;
        let slots = self.place_hidden()?;
        self.place_losses();
        let mut units = Vec::with_capacity(self.drafts.len());
        let mut head_work = 0;
        for (index, draft) in self.drafts.iter().enumerate() {
            let (unit, work_bytes) = self.unit_program(index, &slots)?;
            if draft.kind == UnitKind::Head {
                head_work = work_bytes;
            } else {
                self.arena.work = self.arena.work.max(work_bytes);
            }
            units.push(unit);
        }
        self.arena.logits = head_work.saturating_sub(self.arena.work);
        Ok(Program {
            units,
            arena: self.arena,
            blocks: self.blocks,
            by_length: self.by_length,
            decomposed: BTreeSet::new(),
        })
    }

    /// Places the caches at the start of the arena.
    fn place_caches(&mut self) -> Result<()> {
        for (index, draft) in self.drafts.iter().enumerate() {
            for &value in &draft.caches {
                let extent = draft.extent(value, self.dtypes)?;
                let place = ValueLocation::in_arena(self.arena.cache, extent);
                self.arena.cache += self.most_bytes(extent);
                self.kept[index].insert(value, place);
            }
        }
        Ok(())
    }

    /// Places saved values, and the hidden states that a backward pass reads. A value that only
    /// one unit reads again goes to that unit's block, which can leave the device between the
    /// unit's two passes.
    fn place_saved(&mut self) -> Result<()> {
        for (index, draft) in self.drafts.iter().enumerate() {
            let hidden = grad::output(&draft.unit.graph, "hidden");
            for &value in &draft.retention.saved {
                let extent = draft.extent(value, self.dtypes)?;
                let place = if hidden == Some(value) {
                    // The next unit reads it, too.
                    let offset = self.arena.cache + self.arena.saved;
                    self.arena.saved += self.most_bytes(extent);
                    ValueLocation::in_arena(offset, extent)
                } else {
                    self.blocks[index].put(index, extent, self.limits)
                };
                self.kept[index].insert(value, place);
            }
            let Some(hidden) = hidden else {
                continue;
            };
            if let Some(&place) = self.kept[index].get(&hidden) {
                self.outputs[index] = Some(place);
            } else if self.drafts[index + 1].retention.keeps_input {
                let extent = draft.extent(hidden, self.dtypes)?;
                let next = index + 1;
                self.outputs[index] = Some(self.blocks[next].put(next, extent, self.limits));
            }
        }
        Ok(())
    }

    /// Places the hidden states that are not saved, and the gradients of hidden states.
    fn place_hidden(&mut self) -> Result<HiddenSlots> {
        let before_last = self.drafts.len() - 1;
        let mut slots = HiddenSlots {
            begin: self.arena.passing_begin(),
            hidden_bytes: 0,
            gradient_bytes: 0,
        };
        for (index, draft) in self.drafts.iter().enumerate().take(before_last) {
            let extent = draft.extent(draft.hidden()?, self.dtypes)?;
            let bytes = self.most_bytes(extent);
            if self.outputs[index].is_none() {
                slots.hidden_bytes = slots.hidden_bytes.max(bytes);
            }
            if draft.backward.seed.is_some() {
                slots.gradient_bytes = slots.gradient_bytes.max(bytes);
            }
        }
        for (index, draft) in self.drafts.iter().enumerate().take(before_last) {
            if self.outputs[index].is_none() {
                let extent = draft.extent(draft.hidden()?, self.dtypes)?;
                self.outputs[index] = Some(ValueLocation::in_arena(slots.hidden(index), extent));
            }
        }
        self.arena.passing = slots.bytes();
        Ok(slots)
    }

    /// Places the loss of each token and the flag whether its label was the likeliest.
    fn place_losses(&mut self) {
        if self.limits.cache.is_none() {
            self.arena.loss = Some(self.place_per_token(self.dtypes.reduce.bytes()));
            self.arena.correct = Some(self.place_per_token(4));
        }
    }

    /// A place at the end of `passing` with `bytes` per token, which the head uses by chunk.
    fn place_per_token(&mut self, bytes: u64) -> ValueLocation {
        let offset = self.arena.passing_begin() + self.arena.passing;
        self.arena.passing += aligned(bytes * self.limits.max_tokens);
        ValueLocation {
            by_chunk: true,
            ..ValueLocation::in_arena(offset, Extent::PerToken(bytes))
        }
    }

    /// Bytes of a value at the largest micro-batch, rounded up to the arena's alignment.
    fn most_bytes(&self, extent: Extent) -> u64 {
        aligned(extent.bytes(self.limits.max_tokens, self.limits.max_sequences))
    }
}
