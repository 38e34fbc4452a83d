//! A weight and the Gram matrix of its inputs -> codes column by column, each making up for the
//! errors of those before it (GPTQ).
//!
//! With `e = w - q` the errors of a row and `H = R R^T`, `R` upper triangular in the order in which
//! columns are coded, the error of the outputs is `|e R|^2`. Its part of column `j` is
//! `e_j R_jj + sum_{i<j} e_i R_ij`, and is least for the code nearest to
//! `w_j + sum_{i<j} e_i R_ij / R_jj`. That is GPTQ's sequence of updates by the inverse of `H`
//! (Frantar et al. 2022, arXiv:2210.17323, algorithm 1), without the inverse: see Chen et al. 2025,
//! arXiv:2507.18553, on GPTQ and Babai's nearest plane.
//!
//! Legend: `M` columns. Columns are stored from the last to be coded to the first, so that `R` is
//! the lower factor `L` of [`cholesky`]: stored column `s` is coded before all below `s`.

use std::cmp::Ordering;

use espalier_interface::{PluginError, Result, Services};
use espalier_kernels::simd::vectorized;

use crate::cholesky::cholesky;
use crate::grid::{Grid, GridSpec};
use crate::grouping::Grouping;
use crate::nearest::Found;

/// Columns whose errors are passed on to later ones together.
const BLOCK: usize = 32;
/// Rows that a thread takes at a time.
const ROWS: usize = 16;
/// Columns whose errors are added at once.
const AT_ONCE: usize = 8;

/// The order of columns, and where the grids come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnOrder {
    /// From the first to the last. A group's grid is chosen when its first column is reached, from
    /// weights that make up for the errors so far.
    Stored,
    /// From the largest inputs to the smallest, with the grids of the original weights (GPTQ's
    /// `actorder` with `static_groups`).
    LargestInputsFirst,
}

/// The options of the algorithm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gptq {
    /// How grids are chosen and stored.
    pub grid: GridSpec,
    /// The order of columns.
    pub order: ColumnOrder,
    /// What is added to the diagonal, as a part of its mean.
    pub damping: f64,
}

/// The factor of the inputs' matrix, and the order of its columns.
struct Factor<'a> {
    /// `L`, `[M, M]`.
    lower: &'a [f64],
    /// The column of the weight that each stored column is, `[M]`.
    columns: &'a [usize],
}

impl Gptq {
    /// Bytes of workspace besides what is found: the factor, and alignment.
    pub fn workspace(groups: Grouping) -> u64 {
        8 + 8 * (groups.cols as u64).saturating_mul(groups.cols as u64)
    }

    /// Codes the weight `[N, M]`. `gram` is `[M, M]`, `workspace` as long as [`Gptq::workspace`]
    /// says.
    ///
    /// # Errors
    /// `INVALID` for a Gram matrix that is not positive definite after damping; `CANCELLED` when
    /// the user stopped the run.
    pub fn encode(
        self,
        groups: Grouping,
        weight: &[f32],
        gram: &[f32],
        found: &mut Found<'_>,
        workspace: &mut [u8],
        services: &dyn Services,
    ) -> Result<()> {
        let cols = groups.cols;
        let skipped = workspace.as_ptr().align_offset(align_of::<f64>());
        let lower = &mut workspace[skipped..][..8 * cols * cols];
        let lower: &mut [f64] = bytemuck::cast_slice_mut(lower);
        let columns = self.columns(gram, cols);
        fill(lower, gram, &columns, self.damping);
        cholesky(lower, cols, services).map_err(|error| {
            let what = "raise the option damping, or give more calibration rows";
            PluginError::invalid(format!("{}; {what}", error.message))
        })?;
        let factor = Factor {
            lower,
            columns: &columns,
        };
        found.by_rows(groups, weight, ROWS, services, |rows| {
            let mut rows = Rows {
                groups,
                weight: rows.weight,
                codes: rows.codes,
                scales: rows.scales,
                zeros: rows.zeros,
                carried: vec![0.0; rows.weight.len()],
            };
            self.encode_rows(&factor, &mut rows);
        })
    }

    /// The column of the weight that each stored column is: those coded last come first.
    fn columns(self, gram: &[f32], cols: usize) -> Vec<usize> {
        let mut columns: Vec<usize> = (0..cols).rev().collect();
        if self.order == ColumnOrder::LargestInputsFirst {
            let size = |col: &usize| gram[col * cols + col];
            // Of equal inputs the earlier column is coded first, as a stable sort has it.
            columns.sort_by(|a, b| size(a).partial_cmp(&size(b)).unwrap_or(Ordering::Equal));
        }
        columns
    }

    fn encode_rows(self, factor: &Factor<'_>, rows: &mut Rows<'_>) {
        let groups = rows.groups;
        if self.order == ColumnOrder::LargestInputsFirst {
            let all = rows.weight.chunks_exact(groups.size);
            for (index, group) in all.enumerate() {
                let grid = self.grid.of(group);
                (rows.scales[index], rows.zeros[index]) = (grid.scale, grid.zero);
            }
        }
        let mut end = groups.cols;
        while end > 0 {
            // In stored order a block lies in one group, whose grid its first column chooses.
            let coded = groups.cols - end;
            let left = match self.order {
                ColumnOrder::Stored => groups.size - coded % groups.size,
                ColumnOrder::LargestInputsFirst => end,
            };
            let begin = end - BLOCK.min(left).min(end);
            let starts_group =
                self.order == ColumnOrder::Stored && coded.is_multiple_of(groups.size);
            for row in 0..rows.count() {
                if starts_group {
                    self.choose_grid(factor, rows, row, end);
                }
                let mut errors = [0.0; BLOCK];
                let errors = &mut errors[..end - begin];
                self.encode_block(factor, rows, row, begin..end, errors);
                let carried = &mut rows.carried[row * groups.cols..][..begin];
                carry(
                    carried,
                    &factor.lower[begin * groups.cols..],
                    groups.cols,
                    errors,
                );
            }
            end = begin;
        }
    }

    /// Chooses the grid of the group whose first column is stored column `end - 1`, from its
    /// weights as they would best be if none of them were rounded.
    fn choose_grid(self, factor: &Factor<'_>, rows: &mut Rows<'_>, row: usize, end: usize) {
        let Grouping { cols, size, .. } = rows.groups;
        let carried = &rows.carried[row * cols..][..cols];
        let mut moved = vec![0.0f64; size];
        let mut updated = vec![0.0f32; size];
        for at in 0..size {
            let stored = end - 1 - at;
            let before = moved[..at].iter().enumerate();
            let sum = before.fold(carried[stored], |sum, (other, moved)| {
                sum - moved * factor.at(cols, end - 1 - other, stored)
            });
            moved[at] = sum / factor.at(cols, stored, stored);
            let weight = rows.weight[row * cols + factor.columns[stored]];
            updated[at] = (f64::from(weight) + moved[at]) as f32;
        }
        let grid = self.grid.of(&updated);
        let group = row * rows.groups.per_row() + (cols - end) / size;
        (rows.scales[group], rows.zeros[group]) = (grid.scale, grid.zero);
    }

    /// Codes a block of columns of a row; `errors` are those of its weights, in stored order.
    fn encode_block(
        self,
        factor: &Factor<'_>,
        rows: &mut Rows<'_>,
        row: usize,
        block: std::ops::Range<usize>,
        errors: &mut [f64],
    ) {
        let Grouping { cols, size, .. } = rows.groups;
        let per_row = rows.groups.per_row();
        for stored in block.clone().rev() {
            let col = factor.columns[stored];
            let group = row * per_row + col / size;
            let grid = Grid {
                scale: rows.scales[group],
                zero: rows.zeros[group],
            };
            let weight = f64::from(rows.weight[row * cols + col]);
            let carried = rows.carried[row * cols + stored];
            let wanted = weight + carried / factor.at(cols, stored, stored);
            let code = self.grid.code(grid, wanted as f32);
            rows.codes[row * cols + col] = code as u8;
            let error = weight - f64::from(grid.value(code));
            errors[stored - block.start] = error;
            let of_row = &factor.lower[stored * cols..];
            let later = block.start..stored;
            let carried = &mut rows.carried[row * cols..][later.clone()];
            for (sum, factor) in carried.iter_mut().zip(&of_row[later]) {
                *sum += error * factor;
            }
        }
    }
}

impl Factor<'_> {
    fn at(&self, cols: usize, row: usize, col: usize) -> f64 {
        self.lower[row * cols + col]
    }
}

/// Some rows of a weight while they are coded.
struct Rows<'a> {
    groups: Grouping,
    weight: &'a [f32],
    codes: &'a mut [u8],
    scales: &'a mut [f32],
    zeros: &'a mut [f32],
    /// For each row and stored column, `sum e_i R_ij` over the columns that are coded.
    carried: Vec<f64>,
}

impl Rows<'_> {
    fn count(&self) -> usize {
        self.weight.len() / self.groups.cols
    }
}

/// Adds the errors of a block, whose rows of the factor `lower` begins with, to the later columns.
fn carry(carried: &mut [f64], lower: &[f64], cols: usize, errors: &[f64]) {
    vectorized(
        #[inline(always)]
        || {
            for (index, errors) in errors.chunks(AT_ONCE).enumerate() {
                let later = carried.len();
                let row = |at: usize| &lower[(index * AT_ONCE + at) * cols..][..later];
                if let Ok(errors) = <[f64; AT_ONCE]>::try_from(errors) {
                    let rows: [&[f64]; AT_ONCE] = std::array::from_fn(row);
                    for (col, sum) in carried.iter_mut().enumerate() {
                        let mut added = 0.0;
                        for at in 0..AT_ONCE {
                            added += errors[at] * rows[at][col];
                        }
                        *sum += added;
                    }
                } else {
                    for (at, error) in errors.iter().enumerate() {
                        for (sum, factor) in carried.iter_mut().zip(row(at)) {
                            *sum += error * factor;
                        }
                    }
                }
            }
        },
    );
}

/// Writes the damped Gram matrix in stored order. An input that is always 0 tells nothing of its
/// weights, which are then rounded to nearest: its row is that of the identity.
fn fill(lower: &mut [f64], gram: &[f32], columns: &[usize], damping: f64) {
    let cols = columns.len();
    let diagonal = |col: usize| f64::from(gram[col * cols + col]);
    let live = (0..cols).map(diagonal).filter(|&x| x > 0.0);
    let (sum, count) = live.fold((0.0, 0usize), |(sum, count), x| (sum + x, count + 1));
    let mean = match count {
        0 => 1.0,
        _ => sum / count as f64,
    };
    for (row, &from) in lower.chunks_exact_mut(cols).zip(columns) {
        for (value, &col) in row.iter_mut().zip(columns) {
            *value = f64::from(gram[from * cols + col]);
        }
    }
    for (stored, &col) in columns.iter().enumerate() {
        let x = diagonal(col);
        let own = if x > 0.0 { x } else { mean };
        lower[stored * cols + stored] = own + damping * mean;
    }
}
