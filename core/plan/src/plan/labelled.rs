//! The labels of a micro-batch -> the tokens that a head works on, where those without a label are
//! left out.

use std::ops::Range;
use std::sync::Arc;

/// The tokens of a micro-batch that have a label, where few enough have one.
#[derive(Clone, Debug)]
pub struct Labelled {
    /// Their runs, in order.
    runs: Arc<[Range<usize>]>,
    tokens: usize,
}

impl Labelled {
    /// The tokens with one of `labels`, `[T]`; none where a head would save less than an eighth.
    pub fn of(labels: &[i32]) -> Option<Self> {
        let tokens = Labelled::count(labels);
        if tokens == labels.len() {
            return None;
        }
        let mut runs = Vec::new();
        let mut end = 0;
        for run in labels.chunk_by(|a, b| is_label(*a) == is_label(*b)) {
            let start = end;
            end += run.len();
            if is_label(run[0]) {
                runs.push(start..end);
            }
        }
        Some(Labelled {
            runs: runs.into(),
            tokens,
        })
    }

    /// How many tokens the head works on: those, or all.
    pub fn count(labels: &[i32]) -> usize {
        let tokens = labels.iter().filter(|&&label| is_label(label)).count();
        let saves = labels.len() - tokens;
        if saves * 8 >= labels.len() {
            tokens
        } else {
            labels.len()
        }
    }

    /// How many they are.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// What belongs to them of `values`, `[T]`.
    pub fn together(&self, values: &[i32]) -> Vec<i32> {
        let runs = self.runs.iter();
        runs.flat_map(|run| &values[run.clone()]).copied().collect()
    }

    /// `values` of them, at their places among `tokens` tokens; zeros of the others.
    pub fn apart<T: Clone + Default>(&self, values: &[T], tokens: usize) -> Vec<T> {
        let mut all = vec![T::default(); tokens];
        for (run, first) in self.moves() {
            let some = first..first + run.len();
            all[run].clone_from_slice(&values[some]);
        }
        all
    }

    /// Their runs, and behind each the first of its rows where they lie together.
    pub fn moves(&self) -> impl Iterator<Item = (Range<usize>, usize)> {
        self.runs.iter().scan(0, |before, run| {
            let first = *before;
            *before += run.len();
            Some((run.clone(), first))
        })
    }
}

fn is_label(label: i32) -> bool {
    label >= 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_with_a_label_go_together_and_back() {
        let labels = [-100, 3, 0, -100, -100, 7, -100];
        let labelled = Labelled::of(&labels).expect("few have a label");
        assert_eq!(labelled.tokens(), 3);
        assert_eq!(labelled.together(&labels), [3, 0, 7]);
        let moves: Vec<_> = labelled.moves().collect();
        assert_eq!(moves, [(1..3, 0), (5..6, 2)]);
        let apart = labelled.apart(&[0.5, 0.25, 2.0], 7);
        assert_eq!(apart, [0.0, 0.5, 0.25, 0.0, 0.0, 2.0, 0.0]);
    }

    #[test]
    fn rows_stay_where_almost_all_tokens_have_a_label() {
        let labels = |without: usize| [vec![-100; without], vec![1; 16 - without]].concat();
        assert!(Labelled::of(&labels(0)).is_none());
        assert!(Labelled::of(&labels(1)).is_none());
        assert_eq!(Labelled::of(&labels(2)).expect("an eighth").tokens(), 14);
        assert_eq!(Labelled::of(&labels(16)).expect("all").tokens(), 0);
        assert!(Labelled::of(&[]).is_none());
    }
}
