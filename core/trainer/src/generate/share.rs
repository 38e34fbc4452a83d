//! Parts of sequences -> what one rank runs in a pass.

use espalier_data::MicroBatch;

/// What a rank runs in a pass: parts of some sequences, or nothing.
#[derive(Clone, Debug)]
pub(super) struct Share {
    /// The tokens of its parts.
    pub(super) micro: MicroBatch,
    /// Each sequence that gets a next token, with the row of its last one.
    pub(super) wanted: Vec<(usize, u64)>,
}

impl Share {
    /// A share without tokens.
    pub(super) fn new() -> Self {
        Share {
            micro: MicroBatch::new(),
            wanted: Vec::new(),
        }
    }

    /// Adds the tokens of a sequence of `length` tokens from its token `first` on; `slot` is the
    /// rank's own number of its slot.
    pub(super) fn push(&mut self, slot: usize, (first, length): (usize, usize), tokens: &[i32]) {
        let positions = first..first + tokens.len();
        let micro = &mut self.micro;
        micro.tokens.extend(tokens);
        micro
            .positions
            .extend(positions.map(|position| position as i32));
        micro.cu_seqlens.push(micro.tokens.len() as i32);
        micro.sequences.push(slot as i32);
        micro.lengths.push(length as i32);
    }

    /// Wants the token after those added last, for sequence `at`.
    pub(super) fn want_last(&mut self, at: usize) {
        self.wanted.push((at, self.micro.tokens.len() as u64 - 1));
    }

    /// The rows whose logits are wanted.
    pub(super) fn rows(&self) -> Vec<u64> {
        self.wanted.iter().map(|&(_, row)| row).collect()
    }

    /// The tokens that the share's rank sent, each with its sequence.
    pub(super) fn made(&self, sent: &[u8]) -> impl Iterator<Item = (usize, i32)> {
        let (tokens, _) = sent.as_chunks::<4>();
        let tokens = tokens.iter().map(|&token| i32::from_le_bytes(token));
        let sequences = self.wanted.iter().map(|&(at, _)| at);
        sequences.zip(tokens)
    }
}
