//! One unit of a layout -> its program: the places of its values outside working memory, then its
//! steps.

use std::collections::HashMap;

use espalier_interface::Result;
use espalier_interface::graph::{Source, ValueId};
use espalier_interface::model::UnitKind;

use super::Layout;
use super::hidden_slots::HiddenSlots;
use super::unit_steps::UnitSteps;
use crate::grad;
use crate::program::draft::Draft;
use crate::program::value_location::{Extent, ValueLocation};
use crate::program::{Limits, UnitProgram};

/// Fewest tokens of a chunk. Chunks are multiples of it, which keeps every operand aligned.
const CHUNK_STEP: u64 = 64;

impl Layout<'_> {
    /// The program of a unit, and the bytes of working memory that it needs.
    pub(super) fn unit_program(
        &self,
        index: usize,
        slots: &HiddenSlots,
    ) -> Result<(UnitProgram, u64)> {
        let draft = &self.drafts[index];
        let head = draft.kind == UnitKind::Head;
        let max_tokens = if head {
            self.chunk_tokens(draft)
        } else {
            self.limits.max_tokens
        };
        let fixed = self.fixed_places(index, slots)?;
        let unit_steps = UnitSteps {
            draft,
            params: self.params,
            dtypes: self.dtypes,
            limits: Limits {
                max_tokens,
                ..self.limits
            },
            fixed: &fixed,
            work_begin: self.arena.work_begin(),
        };
        let (forward, backward, work_bytes, logits);
        if head {
            // Both passes run on a chunk before the next chunk, so their values live together.
            let mut calls = draft.forward_calls();
            calls.extend(draft.backward_calls());
            let count = draft.unit.nodes.len();
            let mut both = unit_steps.of(&calls, count)?;
            backward = both.steps.split_off(count);
            forward = both.steps;
            work_bytes = both.work_bytes;
            let value = grad::output(&draft.unit.graph, "logits");
            logits = value.and_then(|value| both.places.get(&value).copied());
        } else {
            let first = unit_steps.of(&draft.forward_calls(), draft.unit.nodes.len())?;
            let second = unit_steps.of(&draft.backward_calls(), 0)?;
            work_bytes = first.work_bytes.max(second.work_bytes);
            (forward, backward, logits) = (first.steps, second.steps, None);
        }
        let labelled = match draft.kind {
            UnitKind::Head => self.labelled_rows(index, slots)?,
            _ => None,
        };
        let unit = UnitProgram {
            name: draft.name.clone(),
            kind: draft.kind,
            forward,
            backward,
            recomputed: draft.retention.again.len(),
            max_tokens,
            logits,
            hidden: self.outputs[index],
            labelled,
        };
        Ok((unit, work_bytes))
    }

    /// The places of all values of a unit outside its working memory.
    fn fixed_places(
        &self,
        index: usize,
        slots: &HiddenSlots,
    ) -> Result<HashMap<ValueId, ValueLocation>> {
        let draft = &self.drafts[index];
        let graph = &draft.unit.graph;
        let by_chunk = draft.kind == UnitKind::Head;
        let mut fixed = self.kept[index].clone();
        if index > 0 {
            if let Some(hidden) = grad::hidden_input(graph) {
                let place =
                    self.outputs[index - 1].expect("units before the head hand over hidden states");
                fixed.insert(hidden, ValueLocation { by_chunk, ..place });
            }
            if let Some(gradient) = draft.backward.input {
                let extent = draft.extent(gradient, self.dtypes)?;
                let place = ValueLocation::in_arena(slots.gradient(index - 1), extent);
                fixed.insert(gradient, ValueLocation { by_chunk, ..place });
            }
        }
        if let Some(seed) = draft.backward.seed {
            let extent = draft.extent(seed, self.dtypes)?;
            fixed.insert(seed, ValueLocation::in_arena(slots.gradient(index), extent));
        }
        for (name, place) in [
            ("hidden", self.outputs[index]),
            ("loss", self.arena.loss),
            ("correct", self.arena.correct),
        ] {
            if let (Some(value), Some(place)) = (grad::output(graph, name), place) {
                fixed.insert(value, place);
            }
        }
        for input in &graph.inputs {
            if let Source::Batch(name) = &input.source {
                fixed.insert(
                    input.value,
                    ValueLocation::of_batch(name, &self.by_length, by_chunk)?,
                );
            }
        }
        Ok(fixed)
    }

    /// Tokens of a head's chunk: about as many as fill the limit with logits. Where the program
    /// generates, each sequence needs the logits of one token only.
    fn chunk_tokens(&self, draft: &Draft) -> u64 {
        let logits = grad::output(&draft.unit.graph, "logits");
        let per_token = logits.and_then(|value| draft.extent(value, self.dtypes).ok());
        let bytes = match per_token {
            Some(Extent::PerToken(bytes)) => bytes.max(1),
            _ => 1,
        };
        let steps = (self.limits.head_chunk_bytes / bytes / CHUNK_STEP).max(1);
        let most = match self.limits.cache {
            Some(shape) => shape.slots,
            None => self.limits.max_tokens.div_ceil(CHUNK_STEP) * CHUNK_STEP,
        };
        (steps * CHUNK_STEP).min(most)
    }
}
