//! A head's graph -> whether it can work on tokens with a label alone, and the places that their
//! rows move between.

use espalier_interface::Result;
use espalier_interface::graph::{Source, batch};

use super::Layout;
use super::hidden_slots::HiddenSlots;
use crate::program::draft::Draft;
use crate::program::labelled_rows::LabelledRows;
use crate::program::value_location::ValueLocation;

impl Layout<'_> {
    /// The places for the rows of unit `head`. None where the program has no labels, where the head
    /// reads more of a token than its hidden state and its label, where another unit reads labels,
    /// and where the hidden states are read again after the head.
    pub(super) fn labelled_rows(
        &self,
        head: usize,
        slots: &HiddenSlots,
    ) -> Result<Option<LabelledRows>> {
        let draft = &self.drafts[head];
        let reads_labels_alone = batch_tensors(draft).eq([batch::LABELS]);
        let mut before = self.drafts[..head].iter().flat_map(batch_tensors);
        let from = head.checked_sub(1).and_then(|last| self.outputs[last]);
        let Some(from) = from.filter(|_| self.limits.cache.is_none()) else {
            return Ok(None);
        };
        let passes = from == ValueLocation::in_arena(slots.hidden(head - 1), from.extent);
        if !reads_labels_alone || before.any(|name| name == batch::LABELS) || !passes {
            return Ok(None);
        }
        // The other place of a pair belongs to the unit before the last, which has run, or has not
        // begun its backward pass.
        let other = |offset: u64| ValueLocation { offset, ..from };
        let mut gradient = None;
        if let Some(value) = draft.backward.input {
            let extent = draft.extent(value, self.dtypes)?;
            let place = |unit| ValueLocation::in_arena(slots.gradient(unit), extent);
            gradient = Some([place(head - 1), place(head)]);
        }
        Ok(Some(LabelledRows {
            hidden: [from, other(slots.hidden(head))],
            gradient,
        }))
    }
}

/// The tensors of the micro-batch that a unit reads.
fn batch_tensors(draft: &Draft) -> impl Iterator<Item = &str> {
    let inputs = draft.unit.graph.inputs.iter();
    inputs.filter_map(|input| match &input.source {
        Source::Batch(name) => Some(name.as_str()),
        Source::Previous(_) => None,
    })
}
