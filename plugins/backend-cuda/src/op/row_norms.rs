//! `adapted_row_norms`, over dense and packed weights.

use espalier_host_device::{Asked, Made};
use espalier_interface::{DType, Result};

use super::weight::{Weight, workspace};
use super::{Op, op, reduced, stored};
use crate::arguments::{Arguments, address};
use crate::kit::Kit;
use crate::sources::ROW_NORMS;

pub const OPS: &[Op] = &[op("adapted_row_norms", norms)];

/// Bytes of a weight's values that are made at a time.
const WINDOW_BYTES: usize = 16 << 20;

/// Shared memory of a sum over a block.
const SHARED_BYTES: u32 = 32;

fn norms(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    reduced(asked, asked.output(0).dtype)?;
    let alpha = asked.attributes().number("alpha")? as f32;
    let weight = Weight::new(asked, kit, [0, 0], &[DType::F32])?;
    let [rows, columns] = weight.size;
    let rank = asked.request.params[1].shape[0] as i64;
    let (a, b) = (
        stored(asked, asked.stored(1)?)?,
        stored(asked, asked.stored(2)?)?,
    );
    let window = (WINDOW_BYTES / (4 * columns.max(1))).clamp(1, rows.max(1));
    let bytes = weight.workspace_bytes(window);
    let kernel = kit.function(ROW_NORMS, &format!("adapted_row_norms_{a}_{b}"))?;
    let made = Made::new(move |call| {
        let at = workspace(call);
        let norms = call.output_place(0);
        let [a, b] = [0, 1].map(|index| address(call.param_place(weight.ranges + index)));
        for begin in (0..rows).step_by(window) {
            let count = window.min(rows - begin);
            let values = weight.values(call, at, [begin, count])?;
            let arguments = Arguments::new().with(values).with(a).with(b).at(norms);
            let arguments = arguments.with(alpha).with(begin as i64);
            let arguments = arguments.with(columns as i64).with(rank);
            kernel.launch([count as u64, 1, 1], SHARED_BYTES, &arguments)?;
        }
        Ok(())
    });
    Ok(made.with_workspace(bytes))
}
