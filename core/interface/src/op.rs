//! The ops of version 1: their names, operands and attributes, and builders that know their shapes.
//!
//! Legend: `T` tokens, `D` width, `F` feed-forward width, `H` heads, `J` key/value heads, `K` head
//! width, `V` vocabulary, `N x M` a weight `[out, in]`. Operands are written as inputs; params ->
//! outputs. `c` is the compute dtype, `r` the reduce dtype. Ops of the host's part of a step
//! (`adamw`, `sum_squares`, ...) take scalars at launch, in the stated order.
//!
//! | op | operands | attributes |
//! |---|---|---|
//! | `embedding` | tokens `[T]`; weight `[V, D]` -> `[T, D]` c | `transposed`: weight is `[D, V]` |
//! | `embedding_backward` | dy `[T, D]`, tokens `[T]` -> dweight, accumulated | `transposed` |
//! | `linear` | x `[T, M]`; weight `[N, M]` (any format), optional bias `[N]` -> `[T, N]` c | `site` |
//! | `linear_input_backward` | dy `[T, N]`; weight -> dx `[T, M]` c | |
//! | `linear_weight_backward` | dy `[T, N]`, x `[T, M]` -> dweight `[N, M]`, accumulated | |
//! | `bias_backward` | dy `[T, N]` -> dbias `[N]`, accumulated | |
//! | `rms_norm` | x `[T, D]`; weight `[G]`, each G of the D columns on their own -> `[T, D]` c | `eps` |
//! | `rms_norm_backward` | dy, x `[T, D]`; weight -> dx `[T, D]` c | `eps` |
//! | `rms_norm_weight_backward` | dy, x `[T, D]` -> dweight `[G]`, accumulated | `eps` |
//! | `rope` | x `[T, H K]`, positions `[T]` -> `[T, H K]` c | `head_dim`, `inv_freq` `[K / 2]`, `scaling`; halves rotated as in Llama |
//! | `rope_backward` | dy, positions -> dx | as `rope` |
//! | `attention` | q `[T, H K]`, k, v `[T, J K]`, cu_seqlens `[S + 1]` -> out `[T, H K]` c, lse `[T, H]` r | `heads`, `kv_heads`, `head_dim`, `scale`, `causal`, `window`, `softcap` |
//! | `attention_backward` | dout, q, k, v, out, lse, cu_seqlens -> dq, dk, dv | as `attention` |
//! | `swiglu` | gate, up `[T, F]` -> silu(gate) * up | |
//! | `swiglu_backward` | dy, gate, up -> dgate, dup | |
//! | `add` | a, b -> a + alpha * b | `alpha` (1) |
//! | `mul` | a, b -> a * b | |
//! | `scale` | a -> alpha * a | `alpha` |
//! | `scale_channels` | x `[T, N]`; weight of N elements -> each channel times its own, `[T, N]` c; also applied to gradients | |
//! | `scale_channels_weight_backward` | dy, x `[T, N]` -> dweight of N elements, accumulated | |
//! | `dropout` | x `[T, D]`, sequences `[T]`, positions `[T]` -> `[T, D]`; also applied to gradients | `p`; scalars: seed low, seed high, step, site |
//! | `cross_entropy` | logits `[T, V]`, labels `[T]` -> loss `[T]` r, lse `[T]` r, correct `[T]` i32 | |
//! | `cross_entropy_backward` | logits, labels, lse -> dlogits `[T, V]` c | scalars: factor |
//! | `attention_cached` | q `[T, H K]`, k, v `[T, J K]`, cu_seqlens `[S + 1]`, positions, sequences `[T]` -> out `[T, H K]` c, keys, values `[N, L, J K]` c, appended to | as `attention`, `causal` |
//! | `base` | in an adapter's fragment only: x -> the site's own output | |
//!
//! Ops of the host's part of a step, on flat arrays of `n` elements:
//!
//! | op | operands | attributes and scalars |
//! |---|---|---|
//! | `zero` | -> y `[n]` | |
//! | `cast` | x `[n]` -> y `[n]` | |
//! | `init` | -> y `[n]` | `kind`: `zeros`, `ones`, `uniform` (`bound`), `normal` (`std`); scalars: seed low, seed high, param |
//! | `sum_squares` | x `[n]` -> `[1]` f64, by a tree that `n` fixes | |
//! | `first_not_finite` | x `[n]` -> `[1]` i64: index, or -1 | |
//! | `adamw` | gradient `[n]` -> param, m, v `[n]`, updated | scalars: learning_rate, beta1, beta2, eps, weight_decay, step (from 1), factor of the gradient |
//!
//! The ops of optimizers, `adamw` and others, are stated by their [`crate::optimizer`] as data.
//!
//! `attention_cached` is `attention` over a cache of `N` slots of `L` tokens. The core replaces
//! `attention` by it where a model generates; graphs do not name it. Each sequence of the launch
//! continues the sequence in slot `sequences[t]`, where `t` is its first token, at position
//! `positions[t]`. k and v are written there. Its tokens attend to all that the slot then holds up
//! to themselves. No slot occurs twice in a launch.
//!
//! "Accumulated" outputs are added to, in the reduce dtype. Seeds cross as two halves of 32 bits,
//! since scalars are f64.

use serde_json::json;

use crate::DType;
use crate::graph::{Attributes, Dim, Graph, ParamId, ValueId, ValueType};

pub use crate::operands::operands;

/// Rows of a `[V, D]` weight by token, `[T, D]`; columns of a `[D, V]` weight where `transposed`.
pub fn embedding(
    graph: &mut Graph,
    tokens: ValueId,
    weight: ParamId,
    layout: EmbeddingLayout,
) -> ValueId {
    let shape = &graph.params[weight].shape;
    let transposed = layout == EmbeddingLayout::ByColumn;
    let width = if transposed { shape[0] } else { shape[1] };
    let ty = compute([Dim::Tokens, Dim::Fixed(width)]);
    let attributes = Attributes::new().with("transposed", transposed);
    graph.node("embedding", &[tokens], &[weight], vec![ty], attributes)
}

/// The memory layout of an embedding's weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmbeddingLayout {
    /// `[V, D]`: a token is a row, as in model checkpoints.
    ByRow,
    /// `[D, V]`: a token is a column, as in PEFT's `lora_embedding_A`.
    ByColumn,
}

/// `x W^T (+ bias)`, `[T, N]`.
pub fn linear(graph: &mut Graph, x: ValueId, weight: ParamId, bias: Option<ParamId>) -> ValueId {
    let width = graph.params[weight].shape[0];
    let ty = compute([Dim::Tokens, Dim::Fixed(width)]);
    let params: Vec<_> = std::iter::once(weight).chain(bias).collect();
    graph.node("linear", &[x], &params, vec![ty], Attributes::new())
}

/// `x / rms(x) * weight`, `[T, D]`. A weight of `K < D` elements normalizes each group of `K`
/// columns, a head, separately.
pub fn rms_norm(graph: &mut Graph, x: ValueId, weight: ParamId, eps: f64) -> ValueId {
    let ty = graph.type_of(x).clone();
    graph.node(
        "rms_norm",
        &[x],
        &[weight],
        vec![ty],
        Attributes::new().with("eps", eps),
    )
}

/// Rotary embedding of `[T, H K]`; `inv_freq` are the `K / 2` angular frequencies in radians per
/// position.
pub fn rope(
    graph: &mut Graph,
    x: ValueId,
    positions: ValueId,
    head_dim: u64,
    inv_freq: &[f32],
    scaling: f64,
) -> ValueId {
    let ty = graph.type_of(x).clone();
    let attributes = Attributes::new()
        .with("head_dim", head_dim)
        .with("inv_freq", json!(inv_freq))
        .with("scaling", scaling);
    graph.node("rope", &[x, positions], &[], vec![ty], attributes)
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
    let lse = ValueType {
        shape: vec![Dim::Tokens, Dim::Fixed(shape.heads)],
        dtype: DType::REDUCE,
    };
    let attributes = Attributes::new()
        .with("heads", shape.heads)
        .with("kv_heads", shape.kv_heads)
        .with("head_dim", shape.head_dim)
        .with("scale", shape.scale)
        .with("causal", true)
        .with("window", json!(shape.window))
        .with("softcap", json!(shape.softcap));
    graph.node(
        "attention",
        &[q, k, v, cu_seqlens],
        &[],
        vec![out, lse],
        attributes,
    )
}

/// `silu(gate) * up`.
pub fn swiglu(graph: &mut Graph, gate: ValueId, up: ValueId) -> ValueId {
    let ty = graph.type_of(gate).clone();
    graph.node("swiglu", &[gate, up], &[], vec![ty], Attributes::new())
}

/// `a + alpha * b`.
pub fn add(graph: &mut Graph, a: ValueId, b: ValueId, alpha: f64) -> ValueId {
    let ty = graph.type_of(a).clone();
    graph.node(
        "add",
        &[a, b],
        &[],
        vec![ty],
        Attributes::new().with("alpha", alpha),
    )
}

/// Each channel of `x`, `[T, N]`, times its element of `weight`. The weight has `N` elements in any
/// shape.
pub fn scale_channels(graph: &mut Graph, x: ValueId, weight: ParamId) -> ValueId {
    let ty = graph.type_of(x).clone();
    graph.node(
        "scale_channels",
        &[x],
        &[weight],
        vec![ty],
        Attributes::new(),
    )
}

/// Each element is kept with probability `1 - p` and divided by it, else 0. The core numbers the
/// dropouts of a model, so that no two draw the same mask and equal fragments stay equal.
pub fn dropout(graph: &mut Graph, x: ValueId, p: f64) -> ValueId {
    let sequences = graph.batch(crate::graph::batch::SEQUENCES);
    let positions = graph.batch(crate::graph::batch::POSITIONS);
    let ty = graph.type_of(x).clone();
    let attributes = Attributes::new().with("p", p);
    graph.node(
        "dropout",
        &[x, sequences, positions],
        &[],
        vec![ty],
        attributes,
    )
}

/// Loss, log-sum-exp and whether the label was the likeliest token, each `[T]`.
pub fn cross_entropy(graph: &mut Graph, logits: ValueId, labels: ValueId) -> [ValueId; 3] {
    let reduce = ValueType {
        shape: vec![Dim::Tokens],
        dtype: DType::REDUCE,
    };
    let correct = ValueType {
        shape: vec![Dim::Tokens],
        dtype: DType::I32,
    };
    let outputs = vec![reduce.clone(), reduce, correct];
    let first = graph.node(
        "cross_entropy",
        &[logits, labels],
        &[],
        outputs,
        Attributes::new(),
    );
    [first, first + 1, first + 2]
}

/// The site's own output for `x`; only inside an adapter's fragment.
pub fn base(graph: &mut Graph, x: ValueId, width: u64) -> ValueId {
    let ty = compute([Dim::Tokens, Dim::Fixed(width)]);
    graph.node("base", &[x], &[], vec![ty], Attributes::new())
}

fn compute(shape: impl Into<Vec<Dim>>) -> ValueType {
    ValueType {
        shape: shape.into(),
        dtype: DType::COMPUTE,
    }
}
