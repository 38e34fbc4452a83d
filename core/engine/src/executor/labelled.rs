//! Tokens with a label -> the only rows that a head computes. Their hidden states are brought
//! together before it, and their gradients spread after it.

use espalier_compile::program::{LabelledRows, ValueLocation};
use espalier_interface::Stream;
use espalier_plan::plan::Labelled;

use super::Executor;
use super::window::Numbers;
use crate::error::Result;

impl Numbers {
    /// The micro-batch as the head sees it: its tokens with a label, or all.
    pub(super) fn of_head(&self) -> Numbers {
        let labelled = self.labelled.as_ref();
        Numbers {
            tokens: labelled.map_or(self.tokens, |some| some.tokens() as u64),
            ..self.clone()
        }
    }

    /// What the head gave for its tokens, at their places among all; zeros of the others.
    pub(super) fn of_all<T: Clone + Default>(&self, of_head: Vec<T>) -> Vec<T> {
        match &self.labelled {
            Some(labelled) => labelled.apart(&of_head, self.tokens as usize),
            None => of_head,
        }
    }
}

impl Executor {
    /// The tokens of a micro-batch that the head works on alone, where it can.
    pub(super) fn labelled(&self, labels: &[i32]) -> Option<Labelled> {
        self.head_rows().and_then(|_| Labelled::of(labels))
    }

    fn head_rows(&self) -> Option<LabelledRows> {
        self.program.units.last()?.labelled
    }

    /// Brings the hidden states together that the head reads.
    pub(super) fn gather_hidden(&self, numbers: &Numbers) -> Result<()> {
        let (Some(labelled), Some(rows)) = (&numbers.labelled, self.head_rows()) else {
            return Ok(());
        };
        let [place, room] = rows.hidden;
        for (run, first) in labelled.moves() {
            self.copy_rows(numbers.slot, (place, run.start), (room, first), run.len())?;
        }
        self.copy_rows(numbers.slot, (room, 0), (place, 0), labelled.tokens())
    }

    /// Spreads the gradients of hidden states that the head wrote; the others become zeros.
    pub(super) fn spread_gradient(&self, numbers: &Numbers) -> Result<()> {
        let rows = self.head_rows().and_then(|rows| rows.gradient);
        let zero = self.prepared.zero_hidden_gradient;
        let (Some(labelled), Some([place, room]), Some((zero, bytes))) =
            (&numbers.labelled, rows, zero)
        else {
            return Ok(());
        };
        self.copy_rows(numbers.slot, (place, 0), (room, 0), labelled.tokens())?;
        let begin = self.in_arena(numbers.slot, place.offset);
        self.launch_flat(&zero, &[self.storage.arena_range(begin, bytes)], &[])?;
        let mut moves = labelled.moves();
        moves.try_for_each(|(run, first)| {
            self.copy_rows(numbers.slot, (room, first), (place, run.start), run.len())
        })
    }

    /// Copies `rows` rows of the micro-batch in `slot`, from a row of a value on to those of
    /// another from a row on.
    pub(super) fn copy_rows(
        &self,
        slot: u64,
        from: (ValueLocation, usize),
        to: (ValueLocation, usize),
        rows: usize,
    ) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        let [from, to] = [from, to].map(|(place, first)| {
            let [skipped, bytes] = [first, rows].map(|rows| place.extent.bytes(rows as u64, 0));
            let begin = self.in_arena(slot, place.offset);
            self.storage.arena_range(begin + skipped, bytes)
        });
        let copied = self.device.copy(from, to, Stream(0));
        self.since_wait.during("copy", copied)
    }
}
