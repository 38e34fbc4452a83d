//! The lengths of rows -> a histogram of them, and what a `max_seq_len` of each size would lose.

use serde::Serialize;

use super::super::row::Row;

/// Values of `max_seq_len` that are tried, beside the config's own.
const TRIED: [usize; 9] = [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384];
/// Bars of a histogram.
const BINS: usize = 16;

/// The lengths of all rows that can be read.
#[derive(Debug, Default, Serialize)]
pub struct Lengths {
    /// Rows.
    pub rows: u64,
    /// Tokens of the shortest.
    pub shortest: usize,
    /// Tokens of the longest.
    pub longest: usize,
    /// Half of the rows have no more tokens than this.
    pub median: usize,
    /// Of 100 rows, 95 have no more tokens than this.
    pub percentile_95: usize,
    /// Rows above the config's `max_seq_len`.
    pub longer_than_max_seq_len: u64,
    /// Rows by length, in steps of equal width.
    pub histogram: Vec<Bin>,
    /// What cutting rows at other lengths would lose.
    pub at: Vec<LengthLoss>,
    #[serde(skip)]
    all: Vec<u32>,
    #[serde(skip)]
    max_seq_len: usize,
    #[serde(skip)]
    trained: u64,
}

/// Rows of at least `from` and less than `to` tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bin {
    /// The least length.
    pub from: usize,
    /// The first length that is too large.
    pub to: usize,
    /// Rows.
    pub rows: u64,
}

/// What a `max_seq_len` would lose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LengthLoss {
    /// The value.
    pub max_seq_len: usize,
    /// Rows that are longer.
    pub longer: u64,
    /// Rows whose prompt fills it: none of their trained tokens is left.
    pub prompt_fills: u64,
    /// The share of the trained tokens that is lost where rows are cut.
    pub lost_truncated: f64,
    /// The share that is lost where longer rows are left out.
    pub lost_dropped: f64,
    #[serde(skip)]
    kept: u64,
    #[serde(skip)]
    whole: u64,
}

impl Lengths {
    pub(super) fn new(max_seq_len: usize) -> Self {
        let mut tried = TRIED.to_vec();
        tried.push(max_seq_len);
        tried.sort_unstable();
        tried.dedup();
        let at = tried.into_iter().map(|max_seq_len| LengthLoss {
            max_seq_len,
            ..LengthLoss::default()
        });
        Lengths {
            at: at.collect(),
            max_seq_len,
            ..Lengths::default()
        }
    }

    pub(super) fn add(&mut self, row: &Row) {
        let (length, trained) = (row.full_length, row.full_trained as u64);
        self.all.push(u32::try_from(length).unwrap_or(u32::MAX));
        self.trained += trained;
        self.longer_than_max_seq_len += u64::from(length > self.max_seq_len);
        for at in &mut self.at {
            if length <= at.max_seq_len {
                at.kept += trained;
                at.whole += trained;
                continue;
            }
            let kept = row.trained_within(at.max_seq_len) as u64;
            at.longer += 1;
            at.prompt_fills += u64::from(kept == 0 && trained > 0);
            at.kept += kept;
        }
    }

    /// Computes the statistics; no row may be added afterwards.
    pub(super) fn finish(&mut self) {
        self.all.sort_unstable();
        let all = &self.all;
        self.rows = all.len() as u64;
        let at = |share: f64| {
            let index = (share * all.len() as f64).ceil() as usize;
            all.get(index.max(1) - 1)
                .map_or(0, |&length| length as usize)
        };
        (self.shortest, self.median, self.percentile_95, self.longest) =
            (at(0.0), at(0.5), at(0.95), at(1.0));
        let share = |kept: u64| 1.0 - kept as f64 / self.trained.max(1) as f64;
        for at in &mut self.at {
            (at.lost_truncated, at.lost_dropped) = match self.trained {
                0 => (0.0, 0.0),
                _ => (share(at.kept), share(at.whole)),
            };
        }
        // Beyond the longest row nothing changes, so one such value is enough.
        let longest = self.longest;
        let own = self.max_seq_len;
        let first = self.at.iter().position(|at| at.max_seq_len >= longest);
        let enough = first.map_or(usize::MAX, |index| self.at[index].max_seq_len);
        self.at
            .retain(|at| at.max_seq_len <= enough || at.max_seq_len == own);
        self.histogram = histogram(all, longest);
    }
}

/// The sorted lengths in bins of equal width: a power of two of tokens, or 1.5 times one.
fn histogram(lengths: &[u32], longest: usize) -> Vec<Bin> {
    let widths = (0..40).flat_map(|power| [2usize << power, 3usize << power]);
    let mut width = widths.filter(|width| width * BINS > longest);
    let Some(width) = width.next().filter(|_| !lengths.is_empty()) else {
        return Vec::new();
    };
    let bins = longest / width + 1;
    let below = |length: usize| lengths.partition_point(|&one| (one as usize) < length) as u64;
    (0..bins)
        .map(|bin| {
            let (from, to) = (bin * width, (bin + 1) * width);
            Bin {
                from,
                to,
                rows: below(to) - below(from),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::row::Kind;
    use super::*;

    #[test]
    fn other_lengths_lose_what_is_trained_behind_them() {
        let mut lengths = Lengths::new(100);
        // The prompt takes 90 tokens of 150, then 70 of 80; the third is all trained.
        for (prompt, length) in [(90, 150), (70, 80), (0, 41)] {
            let tokens: Vec<i32> = (0..length).collect();
            let labels = tokens
                .iter()
                .map(|&token| if token < prompt { -100 } else { token });
            let labels = labels.collect();
            lengths.add(&Row::new(tokens, Some(labels), Kind::default()));
        }
        lengths.finish();
        let tried: Vec<usize> = lengths.at.iter().map(|at| at.max_seq_len).collect();
        assert_eq!(tried, [64, 100, 128, 256]);
        // 60 + 10 + 40 tokens are trained.
        let lost = |index: usize| (lengths.at[index].lost_truncated * 110.0).round();
        assert_eq!([0, 1, 2, 3].map(lost), [70.0, 50.0, 22.0, 0.0]);
        assert_eq!((lengths.at[0].longer, lengths.at[0].prompt_fills), (2, 2));
        assert!((lengths.at[1].lost_dropped - 60.0 / 110.0).abs() < 1e-12);
        assert_eq!((lengths.longer_than_max_seq_len, lengths.median), (1, 80));
        let rows: Vec<u64> = lengths.histogram.iter().map(|bin| bin.rows).collect();
        assert_eq!(rows.iter().sum::<u64>(), 3);
        assert!(lengths.histogram.len() <= BINS);
    }
}
