//! A decoder's graphs: the embedding, a layer, and the head with its loss.
//!
//! Legend: `T` tokens, `D` width, `F` feed-forward width, `H` heads, `J` key/value heads, `K` head
//! width, `V` vocabulary.

use espalier_interface::DType;
use espalier_interface::graph::{Dim, Graph, Source, ValueId, batch};
use espalier_interface::op::{self, AttentionShape, EmbeddingLayout};

use crate::config::DecoderConfig;

/// The name under which hidden states pass from unit to unit.
const HIDDEN: &str = "hidden";

/// Tokens `[T]` -> `hidden` `[T, D]`.
pub fn embedding(config: &DecoderConfig) -> Graph {
    let mut graph = Graph::new(&format!("{}.embedding", config.family));
    let tokens = graph.batch(batch::TOKENS);
    let shape = [config.vocab_size, config.hidden_size];
    let table = graph.param("model.embed_tokens.weight", shape);
    let hidden = op::embedding(&mut graph, tokens, table, EmbeddingLayout::ByRow);
    let hidden = scaled(&mut graph, hidden, config.multipliers.embedding);
    graph.output(HIDDEN, hidden);
    graph
}

/// `hidden` `[T, D]` -> `hidden` `[T, D]`: `x + r attention(norm(x))`, then `x + r
/// feed_forward(norm(x))`, where `r` is the family's factor of residuals, else 1. Tokens attend to
/// `window` tokens, themselves included, or to all earlier tokens of their sequence.
pub fn layer(config: &DecoderConfig, window: Option<u64>) -> Graph {
    let mut graph = Graph::new(&format!("{}.layer", config.family));
    let hidden = previous(&mut graph, config);
    let normed = norm(&mut graph, hidden, "input_layernorm.weight", config);
    let attended = attention(&mut graph, normed, config, window);
    let factor = config.multipliers.residual;
    let hidden = op::add(&mut graph, hidden, attended, factor);
    let normed = norm(
        &mut graph,
        hidden,
        "post_attention_layernorm.weight",
        config,
    );
    let fed = feed_forward(&mut graph, normed, config);
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

fn norm(graph: &mut Graph, x: ValueId, name: &str, config: &DecoderConfig) -> ValueId {
    let weight = graph.param(name, [config.hidden_size]);
    op::rms_norm(graph, x, weight, config.rms_norm_eps)
}

/// Normalizes each head of `x` `[T, H K]`, where the family norms queries and keys.
fn head_norm(graph: &mut Graph, x: ValueId, name: &str, config: &DecoderConfig) -> ValueId {
    if !config.head_norms {
        return x;
    }
    let weight = graph.param(name, [config.head_dim]);
    op::rms_norm(graph, x, weight, config.rms_norm_eps)
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
    let bias = Bias::when(config.qkv_bias);
    let q = project(graph, x, "self_attn.q_proj", config.query_width(), bias);
    let k = project(graph, x, "self_attn.k_proj", config.kv_width(), bias);
    let v = project(graph, x, "self_attn.v_proj", config.kv_width(), bias);
    let q = head_norm(graph, q, "self_attn.q_norm.weight", config);
    let k = head_norm(graph, k, "self_attn.k_norm.weight", config);
    let inv_freq = config.rope.inv_freq(config.head_dim);
    let positions = graph.batch(batch::POSITIONS);
    let q = op::rope(graph, q, positions, config.head_dim, &inv_freq, 1.0);
    let k = op::rope(graph, k, positions, config.head_dim, &inv_freq, 1.0);
    let usual_scale = (config.head_dim as f64).sqrt().recip();
    let shape = AttentionShape {
        heads: config.num_heads,
        kv_heads: config.num_kv_heads,
        head_dim: config.head_dim,
        scale: config.multipliers.attention.unwrap_or(usual_scale),
        window,
        softcap: None,
    };
    let cu_seqlens = graph.batch(batch::CU_SEQLENS);
    let out = op::attention(graph, q, k, v, cu_seqlens, shape);
    let bias = Bias::when(config.output_bias);
    project(graph, out, "self_attn.o_proj", config.hidden_size, bias)
}

fn feed_forward(graph: &mut Graph, x: ValueId, config: &DecoderConfig) -> ValueId {
    let bias = Bias::when(config.mlp_bias);
    let gate = project(graph, x, "mlp.gate_proj", config.intermediate_size, bias);
    let up = project(graph, x, "mlp.up_proj", config.intermediate_size, bias);
    let inner = op::swiglu(graph, gate, up);
    project(graph, inner, "mlp.down_proj", config.hidden_size, bias)
}
