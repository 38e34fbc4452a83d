//! The sequences of a step -> its micro-batches, without padding.

use super::dataset::Sequence;
use super::row::UNTRAINED;

/// What a micro-batch may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BatchLimit {
    /// This many sequences, in the step's order.
    Sequences(usize),
    /// Whole sequences up to this many tokens; every sequence of the run fits.
    Tokens(usize),
}

impl BatchLimit {
    /// The positions of each micro-batch's sequences in the step, from their `lengths`.
    ///
    /// `Tokens` takes the longest sequence first and puts each into the first micro-batch with
    /// room. This is "first fit decreasing": never more than 11/9 of the fewest possible plus 6/9
    /// (Dosa 2007). Then sequences within a micro-batch, and micro-batches by their first sequence,
    /// are put back into the step's order.
    pub(super) fn groups(self, lengths: &[usize]) -> Vec<Vec<u32>> {
        let all: Vec<u32> = (0..lengths.len() as u32).collect();
        let capacity = match self {
            BatchLimit::Sequences(count) => {
                return all.chunks(count).map(<[u32]>::to_vec).collect();
            }
            BatchLimit::Tokens(capacity) => capacity,
        };
        let length = |position: u32| lengths[position as usize];
        let mut longest_first = all;
        longest_first.sort_by_key(|&position| std::cmp::Reverse(length(position))); // stable
        let mut groups: Vec<(usize, Vec<u32>)> = Vec::new();
        for position in longest_first {
            let needed = length(position);
            match groups
                .iter_mut()
                .find(|(used, _)| used + needed <= capacity)
            {
                Some((used, group)) => {
                    *used += needed;
                    group.push(position);
                }
                None => groups.push((needed, vec![position])),
            }
        }
        let mut groups: Vec<Vec<u32>> = groups.into_iter().map(|(_, group)| group).collect();
        for group in &mut groups {
            group.sort_unstable();
        }
        groups.sort_unstable_by_key(|group| group[0]);
        groups
    }
}

/// The input of one pass through the model: sequences end to end, without padding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MicroBatch {
    /// Token ids, `[T]`.
    pub tokens: Vec<i32>,
    /// Position of each token in its own sequence, `[T]`, from 0.
    pub positions: Vec<i32>,
    /// Where each sequence begins, and `T` at the end, `[S + 1]`.
    pub cu_seqlens: Vec<i32>,
    /// The token that each position predicts, `[T]`: the next one of the same sequence, or
    /// [`UNTRAINED`].
    pub labels: Vec<i32>,
    /// Number of each sequence within the optimizer step, `[S]`. Random numbers depend on it, not
    /// on the micro-batch.
    pub sequences: Vec<i32>,
    /// Tokens of each whole sequence, `[S]`, where the micro-batch has only parts of sequences;
    /// else empty.
    pub lengths: Vec<i32>,
    /// Labels that are not [`UNTRAINED`].
    pub num_trained: usize,
}

impl MicroBatch {
    pub fn new() -> Self {
        MicroBatch {
            cu_seqlens: vec![0],
            ..MicroBatch::default()
        }
    }

    /// Adds the sequence that is number `position` of its step.
    pub(super) fn push(&mut self, position: u32, sequence: &Sequence) {
        self.tokens.extend_from_slice(&sequence.tokens);
        self.positions.extend(0..sequence.tokens.len() as i32);
        self.labels.extend(sequence.labels());
        self.cu_seqlens.push(self.tokens.len() as i32);
        self.sequences.push(position as i32);
        self.num_trained += sequence.trained_tokens;
        debug_assert_eq!(
            self.num_trained,
            self.labels
                .iter()
                .filter(|&&label| label != UNTRAINED)
                .count()
        );
    }

    /// `T`: its tokens.
    pub fn num_tokens(&self) -> usize {
        self.tokens.len()
    }

    /// Tokens of each whole sequence, `[S]`, in tokens.
    pub fn whole_lengths(&self) -> impl Iterator<Item = u64> + '_ {
        let bounds = self.cu_seqlens.windows(2).enumerate();
        bounds.map(|(index, ends)| match self.lengths.get(index) {
            Some(&length) => length as u64,
            None => (ends[1] - ends[0]) as u64,
        })
    }

    /// `S`: its sequences.
    pub fn num_sequences(&self) -> usize {
        self.sequences.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_cut_in_order_with_a_smaller_last_group() {
        let groups = BatchLimit::Sequences(2).groups(&[9, 1, 5, 3, 7]);
        assert_eq!(groups, [vec![0, 1], vec![2, 3], vec![4]]);
        assert!(BatchLimit::Sequences(4).groups(&[]).is_empty());
    }

    #[test]
    fn tokens_fill_with_whole_sequences_and_keep_the_steps_order() {
        // Longest first: 7 | 6 | 4 joins 6 | 3 joins 7 | 2 opens a third.
        let groups = BatchLimit::Tokens(10).groups(&[2, 3, 4, 6, 7]);
        assert_eq!(groups, [vec![0], vec![1, 4], vec![2, 3]]);
        assert_eq!(BatchLimit::Tokens(10).groups(&[10, 10]), [vec![0], vec![1]]);
        assert_eq!(
            BatchLimit::Tokens(10).groups(&[5, 5, 5]),
            [vec![0, 1], vec![2]]
        );
        assert!(BatchLimit::Tokens(10).groups(&[]).is_empty());
    }

    #[test]
    fn every_sequence_is_placed_once_and_no_group_overflows() {
        let lengths: Vec<usize> = (0..200).map(|i| 1 + (i * 37) % 50).collect();
        let groups = BatchLimit::Tokens(64).groups(&lengths);
        let mut placed: Vec<u32> = groups.concat();
        placed.sort_unstable();
        assert!(placed.into_iter().eq(0..200));
        for group in &groups {
            let used: usize = group
                .iter()
                .map(|&position| lengths[position as usize])
                .sum();
            assert!(used <= 64, "{used}");
        }
        let tokens: usize = lengths.iter().sum();
        assert!(
            groups.len() <= tokens.div_ceil(64) + 2,
            "{} groups",
            groups.len()
        );
    }
}
