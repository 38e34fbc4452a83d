//! `attention`: q `[T, H K]`, k, v `[T, J K]`, cu_seqlens `[S + 1]` -> out `[T, H K]`, lse `[T,
//! H]`.
//!
//! `attention_backward`: dout, q, k, v, out, lse, cu_seqlens -> dq, dk, dv.
//!
//! `attention_cached` is attention over a cache of `N` slots of `L` tokens. The core replaces
//! `attention` by it where a model generates; graphs do not name it. Its outputs `keys` and
//! `values`, `[N, L, J K]`, are appended to. Each sequence of the launch continues the sequence
//! in slot `sequences[t]`, where `t` is its first token, at position `positions[t]`. k and v
//! are written there. Its tokens attend to all that the slot then holds up to themselves. No
//! slot occurs twice in a launch.

use serde_json::json;

use super::definition::{
    AttributeDefinition, AttributeKind, OpCall, OpDefinition, OpFlops, needed, optional, reduced,
    rows, updated, written,
};
use crate::graph::{Attributes, Dim, Graph, ValueId, ValueType};
use crate::{DType, Result};

const ATTRIBUTES: &[AttributeDefinition] = &[
    needed("heads", AttributeKind::Count),
    needed("kv_heads", AttributeKind::Count),
    needed("head_dim", AttributeKind::Count),
    needed("scale", AttributeKind::Number),
    optional("causal", AttributeKind::Flag),
    optional("window", AttributeKind::Count),
    optional("softcap", AttributeKind::Number),
];

pub(super) static ATTENTION: OpDefinition = OpDefinition {
    inputs: &["q", "k", "v", "cu_seqlens"],
    outputs: &[written("out"), written("lse")],
    attributes: ATTRIBUTES,
    // Two products; four more backward. Scores that are computed again are not counted.
    flops: |call| OpFlops {
        per_token: 0,
        per_pair: 4 * call.inputs[0].fixed_elements(),
        per_launch: 0,
    },
    kept_by_selective_recompute: true,
    ..OpDefinition::new("attention", |call| {
        let types = types(call, [0, 1, 2], 3)?;
        Ok(vec![types.query, types.lse])
    })
};

pub(super) static ATTENTION_BACKWARD: OpDefinition = OpDefinition {
    inputs: &["dout", "q", "k", "v", "out", "lse", "cu_seqlens"],
    outputs: &[written("dq"), written("dk"), written("dv")],
    attributes: ATTRIBUTES,
    flops: |call| OpFlops {
        per_token: 0,
        per_pair: 8 * call.inputs[1].fixed_elements(),
        per_launch: 0,
    },
    ..OpDefinition::new("attention_backward", |call| {
        let types = types(call, [1, 2, 3], 6)?;
        call.expect_all(&[0, 4], &types.query)?;
        call.expect(5, &types.lse)?;
        Ok(vec![types.query, types.key.clone(), types.key])
    })
};

pub(super) static ATTENTION_CACHED: OpDefinition = OpDefinition {
    inputs: &["q", "k", "v", "cu_seqlens", "positions", "sequences"],
    outputs: &[written("out"), updated("keys"), updated("values")],
    attributes: ATTRIBUTES,
    ..OpDefinition::new("attention_cached", infer_cached)
};

/// The types of values that queries, keys and their statistics have.
struct Types {
    query: ValueType,
    key: ValueType,
    lse: ValueType,
}

/// Checks heads, q, k and v, and the boundaries.
fn types(call: &OpCall<'_>, [q, k, v]: [usize; 3], cu_seqlens: usize) -> Result<Types> {
    let (heads, kv_heads) = (call.count("heads")?, call.count("kv_heads")?);
    if !heads.is_multiple_of(kv_heads) {
        return Err(call.invalid(format!(
            "{heads} heads cannot share {kv_heads} key/value heads"
        )));
    }
    if let Some(cap) = call.attributes.optional_number("softcap")
        && !(cap.is_finite() && cap > 0.0)
    {
        return Err(call.invalid(format!(
            "attribute `softcap` is {cap}, expected a number above 0"
        )));
    }
    let head = call.count("head_dim")?;
    call.width(q)?;
    let dtype = call.inputs[q].dtype;
    let types = Types {
        query: rows(heads * head, dtype),
        key: rows(kv_heads * head, dtype),
        lse: rows(heads, reduced(dtype)),
    };
    call.expect(q, &types.query)?;
    call.expect_all(&[k, v], &types.key)?;
    call.expect_boundaries(cu_seqlens)?;
    Ok(types)
}

fn infer_cached(call: &OpCall<'_>) -> Result<Vec<ValueType>> {
    let types = types(call, [0, 1, 2], 3)?;
    call.expect_integers(&[4, 5])?;
    if !call.attributes.flag("causal") {
        return Err(call.invalid("attribute `causal` is false: a cache holds no later token"));
    }
    let (stated, width) = (call.stated_extents(1)?, types.key.shape[1]);
    match stated[..] {
        [_, _, found] if Dim::Fixed(found) == width => {}
        _ => {
            return Err(call.invalid(format!(
                "output `keys` is {stated:?}, expected slots, tokens and {width:?}"
            )));
        }
    }
    let cache = super::definition::fixed(&stated, types.query.dtype);
    Ok(vec![types.query, cache.clone(), cache])
}

/// The shape of an attention, its scale and its mask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionShape {
    /// `H`.
    pub heads: u64,
    /// `J`, a divisor of `H`.
    pub kv_heads: u64,
    /// `K`.
    pub head_dim: u64,
    /// Factor of the attention logits, usually `1 / sqrt(K)`.
    pub scale: f64,
    /// Most tokens that a token attends to, itself and those before it; no limit where unset.
    pub window: Option<u64>,
    /// `c` of `c tanh(logit / c)`; no cap where unset.
    pub softcap: Option<f64>,
}

/// Causal softmax attention within packed sequences, `[T, H K]`.
pub fn attention(
    graph: &mut Graph,
    q: ValueId,
    k: ValueId,
    v: ValueId,
    cu_seqlens: ValueId,
    shape: AttentionShape,
) -> ValueId {
    let out = graph.type_of(q).clone();
    let lse = rows(shape.heads, DType::REDUCE);
    let attributes = Attributes::new()
        .with("heads", shape.heads)
        .with("kv_heads", shape.kv_heads)
        .with("head_dim", shape.head_dim)
        .with("scale", shape.scale)
        .with("causal", true)
        .with("window", json!(shape.window))
        .with("softcap", json!(shape.softcap));
    let inputs = [q, k, v, cu_seqlens];
    graph.node("attention", &inputs, &[], vec![out, lse], attributes)
}
