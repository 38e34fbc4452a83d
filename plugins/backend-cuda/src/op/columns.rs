//! Sums over tokens of each column: gradients of what all tokens share.

use espalier_host_device::{Asked, Made, Place};
use espalier_interface::Result;

use super::{Op, computed, gradient, most_elements, op};
use crate::arguments::Arguments;
use crate::kit::Kit;
use crate::modules::{Function, THREADS};
use crate::sources::COLUMN_SUMS;

pub const OPS: &[Op] = &[
    op("bias_backward", |asked, kit| summed(asked, kit, Sum::Added)),
    op("scale_channels_weight_backward", |asked, kit| {
        summed(asked, kit, Sum::Added)
    }),
    op("scale_by_backward", |asked, kit| {
        summed(asked, kit, Sum::Written)
    }),
];

/// Rows that a thread sums, as the kernels have it.
const ROWS: usize = 32;

/// What is done with a sum.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sum {
    /// It is added to the output.
    Added,
    /// It is the output.
    Written,
}

/// What becomes of a number times its row's factor before it is multiplied.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Normal {
    /// It is rounded to the dtype of the values.
    Rounded,
    /// Nothing.
    Exact,
}

/// What a number is multiplied by before it is summed: that of its row, at these addresses, which
/// are 0 where there is none.
#[derive(Clone, Copy)]
pub struct Factors {
    /// The factor of each row.
    pub inverse: u64,
    /// What is subtracted from a row's numbers first.
    pub mean: u64,
    /// What becomes of the number then.
    pub normal: Normal,
}

impl Factors {
    /// None.
    const NONE: Factors = Factors {
        inverse: 0,
        mean: 0,
        normal: Normal::Exact,
    };
}

/// The kernels of sums over rows.
pub struct ColumnSums {
    of_rows: Function,
    of_chunks: Function,
}

impl ColumnSums {
    /// The kernels for values of `dtype`, whose sums are of `sum`.
    ///
    /// # Errors
    /// `DEVICE` where they cannot be compiled.
    pub fn new(kit: &Kit, [dtype, sum]: [&str; 2]) -> Result<Self> {
        Ok(ColumnSums {
            of_rows: kit.function(COLUMN_SUMS, &format!("sum_rows_{dtype}"))?,
            of_chunks: kit.function(COLUMN_SUMS, &format!("sum_chunks_{sum}"))?,
        })
    }

    /// Bytes of workspace for `rows` rows of `width` columns.
    pub fn workspace_bytes(rows: usize, width: usize) -> usize {
        4 * rows.div_ceil(ROWS).max(1) * width
    }

    /// Sums `dy`, times `x` and its rows' `factors` where they are there, of rows of `width`
    /// columns. `partial` is the address of the workspace.
    ///
    /// # Errors
    /// `DEVICE`.
    pub fn launch(
        &self,
        [dy, sum]: [Place; 2],
        x: Option<Place>,
        factors: Factors,
        partial: u64,
        how: Sum,
        [rows, width]: [usize; 2],
    ) -> Result<()> {
        let chunks = rows.div_ceil(ROWS);
        let blocks = (width as u64).div_ceil(THREADS);
        let arguments = Arguments::new().at(dy).at_or_null(x);
        let arguments = arguments.with(factors.inverse).with(factors.mean);
        let arguments = arguments.with(i32::from(factors.normal == Normal::Rounded));
        let arguments = arguments.with(partial).with(width as i64).with(rows as i64);
        self.of_rows
            .launch([blocks, chunks as u64, 1], 0, &arguments)?;
        let arguments = Arguments::new().with(partial).at(sum);
        let arguments = arguments.with(i32::from(how == Sum::Added));
        let arguments = arguments.with(width as i64).with(chunks as i64);
        self.of_chunks.launch([blocks, 1, 1], 0, &arguments)
    }
}

fn summed(asked: &Asked<'_>, kit: &Kit, how: Sum) -> Result<Made> {
    let dy = asked.input(0);
    let dtype = computed(asked, dy.dtype)?;
    let sum = gradient(asked, 0)?;
    let has_x = asked.request.inputs.len() > 1;
    let width = asked.columns(dy);
    let most = most_elements(asked, dy) / width.max(1);
    let sums = ColumnSums::new(kit, [dtype, sum])?;
    let made = Made::new(move |call| {
        let places = [call.input_place(0), call.output_place(0)];
        let x = has_x.then(|| call.input_place(1));
        let partial = call.workspace_place().expect("a kernel asked for it");
        let partial = partial.address.as_ptr() as u64;
        let size = [call.tokens, width];
        sums.launch(places, x, Factors::NONE, partial, how, size)
    });
    Ok(made.with_workspace(ColumnSums::workspace_bytes(most, width)))
}
