//! A weight's shape and the option `group_size` -> its groups: runs of a row.

use espalier_interface::{PluginError, Result};

/// Fewest weights that share a scale.
pub const LEAST_GROUP: u64 = 8;
/// Most weights that share a scale.
pub const LARGEST_GROUP: u64 = 1 << 20;

/// The groups of a weight `[N, M]`. A group never crosses a row, so that groups run along the
/// inputs as in GPTQ's and AWQ's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grouping {
    /// `N`.
    pub rows: usize,
    /// `M`.
    pub cols: usize,
    /// Weights a group, a divisor of `M`.
    pub size: usize,
}

impl Grouping {
    /// Groups of `size` weights; a shorter row is one group.
    ///
    /// # Errors
    /// `INVALID` where `size` does not divide a longer row, with the nearest sizes that do.
    pub fn of(size: u64, shape: [u64; 2]) -> Result<Self> {
        let [rows, cols] = shape;
        let elements = rows.checked_mul(cols).filter(|&n| n > 0);
        if elements.is_none_or(|n| isize::try_from(n).is_err()) {
            return Err(PluginError::invalid(format!(
                "a weight of shape {shape:?} cannot be quantized, expected at least one element and fewer than 2^63"
            )));
        }
        let size = size.min(cols);
        if !cols.is_multiple_of(size) {
            return Err(PluginError::invalid(format!(
                "group_size = {size} does not divide the {cols} columns of a weight of shape {shape:?}; {}",
                fitting(cols, size)
            )));
        }
        let [rows, cols, size] = [rows, cols, size].map(|extent| extent as usize);
        Ok(Grouping { rows, cols, size })
    }

    /// Groups of a row.
    pub fn per_row(&self) -> usize {
        self.cols / self.size
    }

    /// Number of groups.
    pub fn count(&self) -> usize {
        self.rows * self.per_row()
    }

    /// Number of weights.
    pub fn elements(&self) -> usize {
        self.rows * self.cols
    }
}

/// The nearest sizes that divide `cols`, in words.
fn fitting(cols: u64, size: u64) -> String {
    let fits = |candidate: &u64| cols.is_multiple_of(*candidate);
    let below = (LEAST_GROUP..size).rev().find(fits);
    let above = (size + 1..=cols.min(LARGEST_GROUP)).find(fits);
    match (below, above) {
        (Some(below), Some(above)) => format!("{below} and {above} do"),
        (Some(one), None) | (None, Some(one)) => format!("{one} does"),
        (None, None) => "no size in reach does: keep it dense with a `[[sites]]` rule".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_row_is_one_group() {
        let groups = Grouping::of(128, [3, 64]).expect("it fits");
        assert_eq!((groups.size, groups.count()), (64, 3));
        let groups = Grouping::of(128, [3, 256]).expect("it fits");
        assert_eq!((groups.per_row(), groups.count()), (2, 6));
    }

    #[test]
    fn a_size_that_does_not_fit_is_refused_with_those_that_do() {
        let error = Grouping::of(128, [4, 176]).expect_err("128 does not divide 176");
        assert!(error.message.contains("88 and 176 do"), "{error}");
        let error = Grouping::of(128, [1, 139]).expect_err("139 is prime");
        assert!(error.message.contains("139 does"), "{error}");
        Grouping::of(128, [u64::MAX, 2]).expect_err("too many elements");
        Grouping::of(128, [0, 2]).expect_err("no element");
    }
}
