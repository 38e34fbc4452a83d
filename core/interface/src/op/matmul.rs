//! `matmul`: a `[I, K]`, b `[K, J]` as they are read, each extent fixed or `T` -> `[I, J]`.

use super::definition::{AttributeKind, OpCall, OpDefinition, OpFlops, optional, written};
use crate::Result;
use crate::graph::{Attributes, Dim, Graph, ValueId, ValueType};

pub(super) static MATMUL: OpDefinition = OpDefinition {
    inputs: &["a", "b"],
    outputs: &[written("y")],
    attributes: &[
        optional("transpose_a", AttributeKind::Flag),
        optional("transpose_b", AttributeKind::Flag),
    ],
    flops,
    kept_by_selective_recompute: true,
    ..OpDefinition::new("matmul", infer)
};

fn infer(call: &OpCall<'_>) -> Result<Vec<ValueType>> {
    let (a, b) = (call.float(0)?, call.float(1)?);
    let side = |value: &ValueType, flag: &str| match value.shape[..] {
        [rows, cols] if ![rows, cols].contains(&Dim::Boundaries) => {
            let how = if call.attributes.flag(flag) {
                Read::Transposed
            } else {
                Read::Plain
            };
            Ok(read(&value.shape, how))
        }
        _ => Err(call.invalid(format!("{:?} is no matrix", value.shape))),
    };
    let ([rows, depth], [depth_b, cols]) = (side(&a, "transpose_a")?, side(&b, "transpose_b")?);
    if depth != depth_b || a.dtype != b.dtype {
        return Err(call.invalid(format!(
            "inputs `a` {} {:?} and `b` {} {:?} do not fit, read as {depth:?} and {depth_b:?} deep",
            a.dtype, a.shape, b.dtype, b.shape
        )));
    }
    Ok(vec![ValueType {
        shape: vec![rows, cols],
        dtype: a.dtype,
    }])
}

fn flops(call: &OpCall<'_>) -> OpFlops {
    let (a, out) = (&call.inputs[0], &call.outputs[0]);
    let axis = usize::from(!call.attributes.flag("transpose_a"));
    let depth = match a.shape[axis] {
        Dim::Fixed(depth) => depth,
        _ => 1,
    };
    let operations = 2 * depth * out.fixed_elements();
    let mut flops = OpFlops::NONE;
    if a.shape.contains(&Dim::Tokens) || out.shape.contains(&Dim::Tokens) {
        flops.per_token = operations;
    } else {
        flops.per_launch = operations;
    }
    flops
}

/// How a matrix is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// As it is.
    Plain,
    /// Rows as columns.
    Transposed,
}

/// `a b`, where each side is read plain or transposed, in the compute dtype. Extents may be fixed
/// or `T`; a product over `T` sums over the tokens.
///
/// With `W` `[N, M]` a value, `matmul(x, Plain, W, Transposed)` is what `linear` is for a param.
///
/// # Shapes
/// a `[I, K]` and b `[K, J]` as they are read -> `[I, J]`.
pub fn matmul(graph: &mut Graph, a: ValueId, read_a: Read, b: ValueId, read_b: Read) -> ValueId {
    let [rows, _] = read(&graph.type_of(a).shape, read_a);
    let [_, cols] = read(&graph.type_of(b).shape, read_b);
    let ty = ValueType {
        shape: vec![rows, cols],
        dtype: graph.type_of(a).dtype,
    };
    let attributes = Attributes::new()
        .with("transpose_a", read_a == Read::Transposed)
        .with("transpose_b", read_b == Read::Transposed);
    graph.node("matmul", &[a, b], &[], vec![ty], attributes)
}

fn read<T: Copy>(shape: &[T], how: Read) -> [T; 2] {
    match how {
        Read::Plain => [shape[0], shape[1]],
        Read::Transposed => [shape[1], shape[0]],
    }
}
