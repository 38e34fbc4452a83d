//! The dense base's logits of some held-out tokens -> a temporary file, and back for the comparison
//! with an arm.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use espalier_data::{BatchSchedule, MicroBatch};
use espalier_engine::Error;
use espalier_engine::executor::{Executor, LogitsWindow};
use espalier_interface::DType;
use espalier_numeric::numbers;
use espalier_system::files::{FileError, write_error};

/// Most bytes of kept logits.
const MOST_BYTES: u64 = 1 << 30;
/// Bytes of logits moved at once, at least one token's.
const BLOCK_BYTES: u64 = 4 << 20;

/// Logits of the dense base, with which arms are compared, in the device's dtype: nothing is
/// rounded.
///
/// They are in an unnamed file, which the operating system deletes with the process. A comparison
/// resumed in another process measures the dense base again if an arm still needs it.
pub struct DenseBaseline {
    directory: PathBuf,
    most_bytes: u64,
    pub(super) kept: Option<BaselineLogits>,
}

/// Logits `[tokens, V]` in a file.
pub(super) struct BaselineLogits {
    file: File,
    directory: PathBuf,
    pub row_bytes: u64,
    pub dtype: DType,
    pub choice: Choice,
}

/// The selection of measured tokens among all trained tokens, in the order of evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// Tokens that are measured.
    pub chosen: u64,
    /// Trained tokens.
    pub trained: u64,
}

/// A chosen token of a micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    /// Its number within the micro-batch.
    pub token: u64,
    /// Its number among all chosen tokens.
    pub place: u64,
}

impl DenseBaseline {
    /// A baseline that is not measured yet; its file of at most 1 GiB is created in `directory`.
    pub fn new(directory: &Path) -> Self {
        DenseBaseline::within(directory, MOST_BYTES)
    }

    /// As [`DenseBaseline::new`], with a file of at most `most_bytes` bytes.
    pub fn within(directory: &Path, most_bytes: u64) -> Self {
        DenseBaseline {
            directory: directory.to_owned(),
            most_bytes,
            kept: None,
        }
    }

    /// Whether the dense base was measured, so that arms can be compared.
    pub fn is_measured(&self) -> bool {
        self.kept.is_some()
    }

    /// An empty file for the logits that `executor` computes of `rows`.
    pub(super) fn start(
        &self,
        executor: &Executor,
        rows: &BatchSchedule,
    ) -> Result<BaselineLogits, Error> {
        let row_bytes = executor.logits_row_bytes()?;
        let choice = Choice::of(trained_tokens(rows)?, self.most_bytes / row_bytes.max(1));
        let directory = self.directory.clone();
        let file = tempfile::tempfile_in(&directory)
            .map_err(|error| write_error(&directory, choice.chosen * row_bytes, error))?;
        Ok(BaselineLogits {
            file,
            directory,
            row_bytes,
            dtype: executor.logits_dtype(),
            choice,
        })
    }
}

impl BaselineLogits {
    /// Writes the logits of rows from number `first` on.
    pub(super) fn write(&self, first: u64, bytes: &[u8]) -> Result<(), Error> {
        let written = self.file.write_all_at(bytes, first * self.row_bytes);
        let whole = self.choice.chosen * self.row_bytes;
        Ok(written.map_err(|error| write_error(&self.directory, whole, error))?)
    }

    /// Reads the logits of rows from number `first` on.
    pub(super) fn read(&self, first: u64, bytes: &mut [u8]) -> Result<(), Error> {
        let read = self.file.read_exact_at(bytes, first * self.row_bytes);
        let failed = |source: io::Error| FileError::Read {
            path: self.directory.clone(),
            source,
        };
        Ok(read.map_err(failed)?)
    }
}

impl Choice {
    /// `most` of `trained` tokens, or all where there are no more.
    fn of(trained: u64, most: u64) -> Self {
        Choice {
            chosen: trained.min(most),
            trained,
        }
    }

    /// The chosen among the first `index` trained tokens. Chosen tokens are equally spaced, so that
    /// every document contributes its share.
    fn before(self, index: u64) -> u64 {
        let before = u128::from(index) * u128::from(self.chosen) / u128::from(self.trained.max(1));
        before as u64
    }

    /// The chosen among some `tokens` of `micro`, before which the rows have `before` trained
    /// tokens.
    pub(super) fn pick(self, before: u64, micro: &MicroBatch, tokens: Range<u64>) -> Vec<Chosen> {
        let is_trained = |token: &u64| micro.labels[*token as usize] >= 0;
        let first = before + (0..tokens.start).filter(is_trained).count() as u64;
        let trained = (first..self.trained).zip(tokens.filter(is_trained));
        let taken = trained.filter_map(|(index, token)| {
            let place = self.before(index);
            (self.before(index + 1) > place).then_some(Chosen { token, place })
        });
        taken.collect()
    }
}

/// Receives chosen tokens that follow each other, and their logits.
pub(super) type TakeBlock<'a> = &'a mut dyn FnMut(&[Chosen], &[u8]) -> Result<(), Error>;

/// Passes the `chosen` tokens of a window and their logits in blocks, as bytes of the device's
/// dtype.
pub(super) fn for_each_block(
    window: &LogitsWindow<'_>,
    chosen: &[Chosen],
    row_bytes: u64,
    take: TakeBlock<'_>,
) -> Result<(), Error> {
    let at_once = block_rows(row_bytes) as usize;
    let mut bytes = vec![0; chosen.len().min(at_once) * row_bytes as usize];
    for chosen in chosen.chunks(at_once) {
        let bytes = &mut bytes[..chosen.len() * row_bytes as usize];
        let rows = bytes.chunks_exact_mut(row_bytes as usize);
        for (&Chosen { token, .. }, row) in chosen.iter().zip(rows) {
            window.read(token..token + 1, row)?;
        }
        take(chosen, bytes)?;
    }
    Ok(())
}

/// Rows of logits moved at once.
fn block_rows(row_bytes: u64) -> u64 {
    (BLOCK_BYTES / row_bytes.max(1)).max(1)
}

/// Most bytes of measuring: a block of each of two bases, and per thread a row of each in f64.
pub(super) fn block_bytes(row_bytes: u64, dtype: DType, threads: usize) -> u64 {
    let block = block_rows(row_bytes) * row_bytes;
    // The dense baseline can have a wider dtype than the arm.
    let widest = row_bytes / dtype.bytes().max(1) * DType::F64.bytes();
    block + block_rows(row_bytes) * widest + 2 * widest * threads as u64
}

/// Rows of logits as f64, one after the other.
pub(super) fn row(bytes: &[u8], row_bytes: u64, index: usize, dtype: DType) -> Vec<f64> {
    let row_bytes = row_bytes as usize;
    numbers(&bytes[index * row_bytes..(index + 1) * row_bytes], dtype)
}

/// Trained tokens of all rows.
fn trained_tokens(rows: &BatchSchedule) -> Result<u64, Error> {
    let mut trained = 0;
    for step in 0..rows.total_steps() {
        trained += rows.step(step)?.trained_tokens as u64;
    }
    Ok(trained)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_chosen_at_equal_distances() {
        for (trained, most) in [(10, 10), (10, 20), (10, 3), (1000, 7), (1 << 40, 1 << 20)] {
            let choice = Choice::of(trained, most);
            assert_eq!(choice.chosen, trained.min(most));
            let looked_at = trained.min(1 << 22);
            let taken: Vec<u64> = (0..looked_at)
                .filter(|&i| choice.before(i + 1) > choice.before(i))
                .collect();
            let share = looked_at as f64 * choice.chosen as f64 / trained as f64;
            assert!((taken.len() as f64 - share).abs() <= 1.0, "{choice:?}");
            let steps = taken.windows(2).map(|two| two[1] - two[0]);
            let distance = trained as f64 / choice.chosen as f64;
            assert!(
                steps
                    .into_iter()
                    .all(|step| (step as f64 - distance).abs() < 1.0)
            );
        }
    }

    #[test]
    fn the_chosen_are_trained_and_counted_over_windows_and_micro_batches() {
        let micro = MicroBatch {
            labels: vec![5, -100, 5, 5, -100, 5, 5, 5],
            ..MicroBatch::default()
        };
        // Every second one of the trained tokens 0, 2, 3, 5, 6, 7, twice.
        let choice = Choice::of(12, 6);
        let pick = |before: u64, tokens: Range<u64>| {
            let picked = choice.pick(before, &micro, tokens).into_iter();
            picked
                .map(|chosen| (chosen.token, chosen.place))
                .collect::<Vec<_>>()
        };
        assert_eq!(pick(0, 0..3), [(2, 0)]);
        assert_eq!(pick(0, 3..8), [(5, 1), (7, 2)]);
        assert_eq!(pick(6, 0..8), [(2, 3), (5, 4), (7, 5)]);
        assert!(pick(12, 0..8).is_empty(), "rows beyond the measured ones");
    }
}
