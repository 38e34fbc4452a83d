//! `slice_columns`: x `[T, M]` -> its `width` (W) columns from `first` on, `[T, W]`; an absent
//! `first` is 0.
//!
//! `slice_columns_backward`: dy `[T, W]` -> dx `[T, M]`: dy in those columns, 0 in the others; or
//! the rounded sum of that and `added` `[T, M]`, whose memory the output may take. So the gradients
//! of several slices of a value are made in one.

use super::definition::{
    AttributeDefinition, AttributeKind, OpCall, OpDefinition, needed, optional, rows, written,
};
use crate::Result;
use crate::graph::{Attributes, Dim, Graph, ValueId, ValueType};

const ATTRIBUTES: &[AttributeDefinition] = &[
    optional("first", AttributeKind::Count),
    needed("width", AttributeKind::Count),
];

pub(super) static SLICE_COLUMNS: OpDefinition = OpDefinition {
    inputs: &["x"],
    outputs: &[written("y")],
    attributes: ATTRIBUTES,
    ..OpDefinition::new("slice_columns", |call| {
        let width = within(call, call.width(0)?)?;
        Ok(vec![rows(width, call.inputs[0].dtype)])
    })
};

pub(super) static SLICE_COLUMNS_BACKWARD: OpDefinition = OpDefinition {
    inputs: &["dy"],
    optional_inputs: &["added"],
    outputs: &[written("dx")],
    attributes: ATTRIBUTES,
    in_place: Some(1),
    ..OpDefinition::new("slice_columns_backward", infer_backward)
};

fn infer_backward(call: &OpCall<'_>) -> Result<Vec<ValueType>> {
    let (dy, stated) = (call.width(0)?, call.outputs[0].shape);
    // Another shape is reported as other than the narrowest one.
    let columns = match stated {
        [Dim::Tokens, Dim::Fixed(columns)] => *columns,
        _ => dy,
    };
    let width = within(call, columns)?;
    if width != dy {
        return Err(call.invalid(format!(
            "input `dy` has {dy} columns, expected the {width} of attribute `width`"
        )));
    }
    let dx = rows(columns, call.inputs[0].dtype);
    call.expect_optional(1, &dx)?;
    Ok(vec![dx])
}

/// Checks that the slice lies within `columns` columns, and gives its width.
fn within(call: &OpCall<'_>, columns: u64) -> Result<u64> {
    let first = match call.attributes.optional_number("first") {
        None => 0,
        Some(_) => call.count("first")?,
    };
    let width = call.count("width")?;
    match first.checked_add(width) {
        Some(end) if end <= columns => Ok(width),
        _ => Err(call.invalid(format!(
            "{width} columns from {first} on do not lie within {columns} columns"
        ))),
    }
}

/// The `width` columns of `x`, `[T, M]`, from `first` on: a part of what a fused projection makes.
pub fn slice_columns(graph: &mut Graph, x: ValueId, first: u64, width: u64) -> ValueId {
    let ty = rows(width, graph.type_of(x).dtype);
    let attributes = Attributes::new().with("width", width);
    let attributes = match first {
        0 => attributes,
        first => attributes.with("first", first),
    };
    graph.node("slice_columns", &[x], &[], vec![ty], attributes)
}
