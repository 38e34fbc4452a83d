//! A decoder's graphs: the embedding, a layer, and the head with its loss.
//!
//! Legend: `T` tokens, `D` width, `F` feed-forward width, `H` heads, `J` key/value heads, `K` head
//! width, `V` vocabulary.

use espalier_interface::DType;
use espalier_interface::graph::batch::{self, LengthPositions};
use espalier_interface::graph::{Dim, Graph, Source, ValueId};
use espalier_interface::op::{self, AttentionShape, EmbeddingLayout};

use crate::config::DecoderConfig;
use crate::dialect::Norm;
use crate::rope::Rope;

/// The name under which hidden states pass from unit to unit.
const HIDDEN: &str = "hidden";

/// Tokens `[T]` -> `hidden` `[T, D]`.
pub fn embedding(config: &DecoderConfig) -> Graph {
    let mut graph = Graph::new(&format!("{}.embedding", config.family));
    let tokens = graph.batch(batch::TOKENS);
    let shape = [config.vocab_size, config.hidden_size];
    let table = graph.param("model.embed_tokens.weight", shape);
    let hidden = op::embedding(&mut graph, tokens, table, EmbeddingLayout::ByRow);
    let hidden = match config.gemma {
        // The factor is a number of the table's dtype.
        Some(_) => op::scale_rounded(&mut graph, hidden, (config.hidden_size as f64).sqrt()),
        None => scaled(&mut graph, hidden, config.multipliers.embedding),
    };
    graph.output(HIDDEN, hidden);
    graph
}

/// `hidden` `[T, D]` -> `hidden` `[T, D]`: `x + r attention(norm(x))`, then `x + r
/// feed_forward(norm(x))`, where `r` is the family's factor of residuals, else 1. In Gemma's line
/// both results are normed before they are added. Tokens attend to `window` tokens, themselves
/// included, or to all earlier tokens of their sequence.
pub fn layer(config: &DecoderConfig, window: Option<u64>) -> Graph {
    let mut graph = Graph::new(&format!("{}.layer", config.family));
    let [before_attention, after_attention, before_fed, after_fed] = match config.gemma {
        Some(_) => [
            Some("input_layernorm.weight"),
            Some("post_attention_layernorm.weight"),
            Some("pre_feedforward_layernorm.weight"),
            Some("post_feedforward_layernorm.weight"),
        ],
        None => [
            Some("input_layernorm.weight"),
            None,
            Some("post_attention_layernorm.weight"),
            None,
        ],
    };
    let norm = |graph: &mut Graph, x: ValueId, name: Option<&str>| match name {
        Some(name) => norm(graph, x, name, config),
        None => x,
    };
    let factor = config.multipliers.residual;
    let hidden = previous(&mut graph, config);
    let normed = norm(&mut graph, hidden, before_attention);
    let attended = attention(&mut graph, normed, config, window);
    let attended = norm(&mut graph, attended, after_attention);
    let hidden = op::add(&mut graph, hidden, attended, factor);
    let normed = norm(&mut graph, hidden, before_fed);
    let fed = feed_forward(&mut graph, normed, config);
    let fed = norm(&mut graph, fed, after_fed);
    let hidden = op::add(&mut graph, hidden, fed, factor);
    graph.output(HIDDEN, hidden);
    graph
}

/// `hidden` `[T, D]` -> `loss` `[T]`, `correct` `[T]`, `logits` `[T, V]`.
pub fn head(config: &DecoderConfig) -> Graph {
    let mut graph = Graph::new(&format!("{}.head", config.family));
    let hidden = previous(&mut graph, config);
    let normed = norm(&mut graph, hidden, "model.norm.weight", config);
    // Fewer numbers than logits are.
    let normed = scaled(&mut graph, normed, 1.0 / config.multipliers.logits_divisor);
    let weight = graph.param("lm_head.weight", [config.vocab_size, config.hidden_size]);
    let logits = op::linear(&mut graph, normed, weight, None);
    let cap = config.gemma.and_then(|gemma| gemma.logits_softcap);
    let logits = capped(&mut graph, logits, cap);
    let labels = graph.batch(batch::LABELS);
    let [loss, _log_sum, correct] = op::cross_entropy(&mut graph, logits, labels);
    graph.output("loss", loss);
    graph.output("correct", correct);
    graph.output("logits", logits);
    graph
}

fn previous(graph: &mut Graph, config: &DecoderConfig) -> ValueId {
    let shape = [Dim::Tokens, Dim::Fixed(config.hidden_size)];
    graph.input(Source::Previous(HIDDEN.to_owned()), shape, DType::COMPUTE)
}

/// `factor x`.
fn scaled(graph: &mut Graph, x: ValueId, factor: f64) -> ValueId {
    if factor == 1.0 {
        return x;
    }
    op::scale(graph, x, factor)
}

/// `cap tanh(x / cap)`, where there is a cap.
fn capped(graph: &mut Graph, x: ValueId, cap: Option<f64>) -> ValueId {
    let Some(cap) = cap else {
        return x;
    };
    let parts = op::scale(graph, x, cap.recip());
    let parts = op::tanh(graph, parts);
    op::scale(graph, parts, cap)
}

fn norm(graph: &mut Graph, x: ValueId, name: &str, config: &DecoderConfig) -> ValueId {
    norm_of(graph, x, name, config.hidden_size, config)
}

/// Normalizes each `width` columns of `x` by the weight `name`, and in a layer norm by the bias
/// beside it.
fn norm_of(
    graph: &mut Graph,
    x: ValueId,
    name: &str,
    width: u64,
    config: &DecoderConfig,
) -> ValueId {
    let (weight, eps) = (graph.param(name, [width]), config.norm_eps);
    if config.norm == Norm::Layer {
        let bias = graph.param(&name.replace(".weight", ".bias"), [width]);
        return op::layer_norm(graph, x, weight, Some(bias), eps);
    }
    match config.gemma {
        Some(_) => op::rms_norm_offset(graph, x, weight, eps, 1.0),
        None => op::rms_norm(graph, x, weight, eps),
    }
}

/// Normalizes each head of `x` `[T, H K]`, where the family norms queries and keys.
fn head_norm(graph: &mut Graph, x: ValueId, name: &str, config: &DecoderConfig) -> ValueId {
    if !config.head_norms {
        return x;
    }
    norm_of(graph, x, name, config.head_dim, config)
}

/// Whether a projection adds a bias.
#[derive(Clone, Copy)]
enum Bias {
    With,
    Without,
}

impl Bias {
    fn when(wanted: bool) -> Self {
        if wanted { Bias::With } else { Bias::Without }
    }
}

/// `x` `[T, M]` -> `[T, width]` by the params `NAME.weight` and `NAME.bias`.
fn project(graph: &mut Graph, x: ValueId, name: &str, width: u64, bias: Bias) -> ValueId {
    let from = graph.fixed(x, 1);
    let weight = graph.param(&format!("{name}.weight"), [width, from]);
    let bias = match bias {
        Bias::With => Some(graph.param(&format!("{name}.bias"), [width])),
        Bias::Without => None,
    };
    op::linear(graph, x, weight, bias)
}

fn attention(
    graph: &mut Graph,
    x: ValueId,
    config: &DecoderConfig,
    window: Option<u64>,
) -> ValueId {
    let [q, k, v] = queries_keys_values(graph, x, config);
    let q = head_norm(graph, q, "self_attn.q_norm.weight", config);
    let k = head_norm(graph, k, "self_attn.k_norm.weight", config);
    let local = config.local_rope.as_ref().filter(|_| window.is_some());
    let rope = local.unwrap_or(&config.rope);
    let [q, k] = rotated(graph, [q, k], rope, config.head_dim);
    let scalar = config.gemma.map(|gemma| gemma.query_scalar);
    let usual_scale = scalar.unwrap_or(config.head_dim as f64).sqrt().recip();
    let shape = AttentionShape {
        heads: config.num_heads,
        kv_heads: config.num_kv_heads,
        head_dim: config.head_dim,
        scale: config.multipliers.attention.unwrap_or(usual_scale),
        window,
        softcap: config.gemma.and_then(|gemma| gemma.attention_softcap),
    };
    let cu_seqlens = graph.batch(batch::CU_SEQLENS);
    let out = op::attention(graph, q, k, v, cu_seqlens, shape);
    let bias = Bias::when(config.output_bias);
    project(graph, out, "self_attn.o_proj", config.hidden_size, bias)
}

/// Queries and keys, rotated by their positions.
///
/// Frequencies that depend on a sequence's length take two rotations, of which one is by position
/// 0. The first also multiplies by the factor of cosines and sines, so that long rows are rounded
/// by both.
fn rotated(graph: &mut Graph, values: [ValueId; 2], rope: &Rope, head_dim: u64) -> [ValueId; 2] {
    let (short, factor) = (rope.inv_freq(head_dim), rope.attention_factor());
    let Some((limit, long)) = rope.inv_freq_beyond(head_dim) else {
        let positions = graph.batch(batch::POSITIONS);
        return values.map(|x| op::rope(graph, x, positions, head_dim, &short, factor));
    };
    let [within, beyond] = [LengthPositions::UpTo(limit), LengthPositions::Beyond(limit)]
        .map(|which| graph.batch(&which.name()));
    let values = values.map(|x| op::rope(graph, x, within, head_dim, &short, factor));
    values.map(|x| op::rope(graph, x, beyond, head_dim, &long, 1.0))
}

/// Queries `[T, H K]`, keys and values `[T, J K]` of `x`.
fn queries_keys_values(graph: &mut Graph, x: ValueId, config: &DecoderConfig) -> [ValueId; 3] {
    let bias = Bias::when(config.qkv_bias);
    let (queries, keys) = (config.query_width(), config.kv_width());
    if !config.fused_projections {
        let names = [("q", queries), ("k", keys), ("v", keys)];
        return names.map(|(name, width)| {
            project(graph, x, &format!("self_attn.{name}_proj"), width, bias)
        });
    }
    let all = project(graph, x, "self_attn.qkv_proj", queries + 2 * keys, bias);
    let parts = [(0, queries), (queries, keys), (queries + keys, keys)];
    parts.map(|(first, width)| op::slice_columns(graph, all, first, width))
}

fn feed_forward(graph: &mut Graph, x: ValueId, config: &DecoderConfig) -> ValueId {
    let bias = Bias::when(config.mlp_bias);
    let width = config.intermediate_size;
    if let Some(form) = config.gelu {
        let inner = project(graph, x, "mlp.c_fc", width, bias);
        let inner = op::gelu(graph, inner, form);
        return project(graph, inner, "mlp.c_proj", config.hidden_size, bias);
    }
    let [gate, up] = if config.fused_projections {
        let both = project(graph, x, "mlp.gate_up_proj", 2 * width, bias);
        [0, width].map(|first| op::slice_columns(graph, both, first, width))
    } else {
        ["gate", "up"].map(|name| project(graph, x, &format!("mlp.{name}_proj"), width, bias))
    };
    let inner = match config.gemma {
        Some(_) => op::geglu_tanh(graph, gate, up),
        None => op::swiglu(graph, gate, up),
    };
    project(graph, inner, "mlp.down_proj", config.hidden_size, bias)
}
