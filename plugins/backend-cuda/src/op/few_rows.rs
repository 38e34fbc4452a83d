//! A few rows times a weight, which is read once and decoded on the way.

use espalier_host_device::{Asked, Call};
use espalier_interface::{DType, Result, WeightLayout};

use super::product::{Epilogue, Extents};
use super::stored;
use super::weight::{Segments, on_host};
use crate::arguments::{Arguments, address};
use crate::decoder::{Description, GivenTables, RUN};
use crate::kit::Kit;
use crate::modules::Function;
use crate::sources::FEW_ROWS;

/// Most rows, as the kernel has it.
pub const MOST: usize = 8;

/// Columns of a block: one for each warp.
const COLUMNS: usize = 8;

/// What stands before the kernel of a dense weight of `dtype`.
pub fn definitions(dtype: &str) -> String {
    format!("#define WEIGHT {dtype}\n")
}

/// The kernel of a weight `[columns, depth]`.
pub struct FewRows {
    kernel: Function,
    /// Number of segments and the tables of a packed weight.
    packed: Option<(usize, GivenTables)>,
    size: [usize; 2],
}

impl FewRows {
    /// The kernel of param 0 for values of `dtype`, if its rows are whole runs.
    ///
    /// # Errors
    /// `UNSUPPORTED` for a dtype or a format that this backend does not have, `DEVICE` where the
    /// kernel cannot be compiled.
    pub fn new(asked: &Asked<'_>, kit: &Kit, dtype: DType) -> Result<Option<Self>> {
        let size = asked.matrix(0)?;
        if !(size[1] as u64).is_multiple_of(RUN) {
            return Ok(None);
        }
        let name = format!("few_rows_{}", dtype.name());
        let (kernel, packed) = match &asked.request.params[0].layout {
            WeightLayout::Dense(of) => {
                let before = definitions(stored(asked, *of)?);
                (kit.modules.function(FEW_ROWS, &before, &name)?, None)
            }
            WeightLayout::Packed(format) => {
                if on_host(asked, kit, 0, format).is_some() {
                    return Ok(None);
                }
                let described = Description::of(format, asked.request.device_code_of(0))?;
                if !described.has_runs {
                    return Ok(None);
                }
                let (kernel, tables) = described.kernel(kit, FEW_ROWS, &name)?;
                (kernel, Some((format.segments.len(), tables)))
            }
        };
        Ok(Some(FewRows {
            kernel,
            packed,
            size,
        }))
    }

    /// Puts the product of a launch's first input on this thread's stream.
    ///
    /// # Errors
    /// `DEVICE`.
    pub fn launch(&self, call: &Call<'_>, finish: Epilogue) -> Result<()> {
        let [columns, depth] = self.size;
        let arguments = Arguments::new().at(call.input_place(0));
        let (arguments, shared) = match &self.packed {
            Some((ranges, tables)) => {
                let segments = Segments::of(call, 0, *ranges);
                let arguments = arguments.with_words(&segments.and(tables));
                (arguments, tables.shared_bytes())
            }
            None => (arguments.with(address(call.param_place(0))), 0),
        };
        let arguments = arguments.at(call.output_place(0));
        let extents = [call.tokens, columns, depth].map(|extent| extent as i64);
        let arguments = arguments.with(Extents(extents)).with(finish);
        let blocks = columns.div_ceil(COLUMNS) as u64;
        let blocks = if call.tokens == 0 { 0 } else { blocks };
        self.kernel.launch([blocks, 1, 1], shared, &arguments)
    }
}
