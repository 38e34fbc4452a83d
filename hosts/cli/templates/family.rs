//! The model family `my-plugin`: a decoder as in Llama, with grouped-query attention, rotary
//! embeddings and a gated feed-forward part.
//!
//! A family turns a `config.json` into a model as data. These are the params with their names in
//! the checkpoint, and a graph of the host's ops for each kind of unit. The host derives the
//! gradients, packs the linears, lets adapters join them, and plans the memory. No code of this
//! crate runs while training. `espalier/interface/src/op.rs` lists all ops.
//!
//! Letters in shapes: `T` tokens, `D` width, `F` feed-forward width, `H` heads, `J` key/value
//! heads, `K` head width, `V` vocabulary.

use espalier_interface::graph::{Dim, Graph, Source, ValueId, batch};
use espalier_interface::model::{Model, ParamKind, ParamSpec, Unit, UnitKind};
use espalier_interface::op::{self, AttentionShape, EmbeddingLayout};
use espalier_interface::{Component, DType, Family, Init, Instance, PluginError, Result, Role};
use serde_json::Value as Json;

/// The name by which users choose it: `--plugins my-plugin`.
const NAME: &str = "my-plugin";

/// The family; it has no options.
struct Decoder;

impl Family for Decoder {
    /// The model that `config`, a parsed `config.json`, describes. Its values come from a user's
    /// file: check them.
    fn describe(&self, config: &Json) -> Result<Model> {
        Numbers::read(config)?.model()
    }
}

/// The checked numbers of the model.
struct Numbers {
    vocab: u64,
    width: u64,
    inner: u64,
    layers: u64,
    heads: u64,
    kv_heads: u64,
    head_dim: u64,
    max_positions: u64,
    norm_eps: f64,
    rope_theta: f64,
    tied_head: bool,
}

impl Numbers {
    fn read(config: &Json) -> Result<Self> {
        let width = count(config, "hidden_size", None)?;
        let heads = count(config, "num_attention_heads", None)?;
        let numbers = Numbers {
            vocab: count(config, "vocab_size", None)?,
            width,
            inner: count(config, "intermediate_size", None)?,
            layers: count(config, "num_hidden_layers", None)?,
            heads,
            kv_heads: count(config, "num_key_value_heads", Some(heads))?,
            head_dim: count(config, "head_dim", Some(width / heads))?,
            max_positions: count(config, "max_position_embeddings", None)?,
            norm_eps: positive(config, "rms_norm_eps", 1e-6)?,
            rope_theta: rope_theta(config)?,
            tied_head: flag(config, "tie_word_embeddings")?,
        };
        let refuse = |what: String| Err(PluginError::invalid(format!("config.json: {what}")));
        if numbers.layers > 1000 {
            return refuse(format!(
                "`num_hidden_layers` is {}, at most 1000",
                numbers.layers
            ));
        }
        if !heads.is_multiple_of(numbers.kv_heads) {
            let kv_heads = numbers.kv_heads;
            return refuse(format!(
                "`num_attention_heads` {heads} is no multiple of `num_key_value_heads` {kv_heads}"
            ));
        }
        if numbers.head_dim % 2 == 1 || numbers.head_dim > 4096 {
            let found = numbers.head_dim;
            return refuse(format!(
                "`head_dim` is {found}, expected an even number up to 4096"
            ));
        }
        refuse_unknown(config)?;
        Ok(numbers)
    }

    /// Three graphs: the token table, a layer, which all layers share, and the head.
    fn model(&self) -> Result<Model> {
        let mut params = Vec::new();
        let graphs = vec![self.embedding(), self.layer(), self.head()];
        let mut units = vec![self.unit("model.embed_tokens", 0, "", &graphs, &mut params)];
        for index in 0..self.layers {
            let name = format!("model.layers.{index}");
            units.push(self.unit(&name, 1, &format!("{name}."), &graphs, &mut params));
        }
        units.push(self.unit("lm_head", 2, "", &graphs, &mut params));
        let model = Model {
            family: NAME.to_owned(),
            hidden_size: self.width,
            vocab_size: self.vocab,
            max_positions: self.max_positions,
            params,
            graphs,
            units,
        };
        model.validate()?;
        Ok(model)
    }

    /// A unit runs a graph with its own params: each is called `prefix` and its name in the graph,
    /// in the checkpoint too.
    fn unit(
        &self,
        name: &str,
        graph: usize,
        prefix: &str,
        graphs: &[Graph],
        params: &mut Vec<ParamSpec>,
    ) -> Unit {
        let mut bound = Vec::new();
        for local in &graphs[graph].params {
            let name = format!("{prefix}{}", local.name);
            let kind = kind_of(&name);
            if kind == ParamKind::Head && self.tied_head {
                // The token table, the first param of all, is used again.
                params[0].aliases.push(name);
                bound.push(0);
                continue;
            }
            let init = match kind {
                ParamKind::Norm => Init::Ones,
                _ => Init::Normal { std: 0.02 },
            };
            bound.push(params.len());
            params.push(ParamSpec {
                name,
                aliases: Vec::new(),
                shape: local.shape.clone(),
                kind,
                init,
            });
        }
        Unit {
            name: name.to_owned(),
            kind: [UnitKind::Embedding, UnitKind::Layer, UnitKind::Head][graph],
            graph,
            prefix: prefix.to_owned(),
            params: bound,
        }
    }

    /// Tokens `[T]` -> `hidden` `[T, D]`. Units pass on the value `hidden`.
    fn embedding(&self) -> Graph {
        let mut graph = Graph::new("embedding");
        let tokens = graph.batch(batch::TOKENS);
        let table = graph.param("model.embed_tokens.weight", [self.vocab, self.width]);
        let hidden = op::embedding(&mut graph, tokens, table, EmbeddingLayout::ByRow);
        graph.output("hidden", hidden);
        graph
    }

    /// `hidden` `[T, D]` -> `hidden` `[T, D]`: `x + attention(norm(x))`, then `x +
    /// feed_forward(norm(x))`.
    fn layer(&self) -> Graph {
        let mut graph = Graph::new("layer");
        let hidden = self.hidden(&mut graph);
        let normed = self.norm(&mut graph, hidden, "input_layernorm.weight");
        let attended = self.attention(&mut graph, normed);
        let hidden = op::add(&mut graph, hidden, attended, 1.0);
        let normed = self.norm(&mut graph, hidden, "post_attention_layernorm.weight");
        let gate = linear(&mut graph, normed, "mlp.gate_proj.weight", self.inner);
        let up = linear(&mut graph, normed, "mlp.up_proj.weight", self.inner);
        let inner = op::swiglu(&mut graph, gate, up);
        let fed = linear(&mut graph, inner, "mlp.down_proj.weight", self.width);
        let hidden = op::add(&mut graph, hidden, fed, 1.0);
        graph.output("hidden", hidden);
        graph
    }

    /// `x` `[T, D]` -> `[T, D]`. `cu_seqlens` has the start of each packed sequence: none attends
    /// to another.
    fn attention(&self, graph: &mut Graph, x: ValueId) -> ValueId {
        let (queries, keys) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let q = linear(graph, x, "self_attn.q_proj.weight", queries);
        let k = linear(graph, x, "self_attn.k_proj.weight", keys);
        let v = linear(graph, x, "self_attn.v_proj.weight", keys);
        let positions = graph.batch(batch::POSITIONS);
        let steps = self.inv_freq();
        let q = op::rope(graph, q, positions, self.head_dim, &steps, 1.0);
        let k = op::rope(graph, k, positions, self.head_dim, &steps, 1.0);
        let cu_seqlens = graph.batch(batch::CU_SEQLENS);
        let shape = AttentionShape {
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            scale: (self.head_dim as f64).sqrt().recip(),
            window: None,
            softcap: None,
        };
        let out = op::attention(graph, q, k, v, cu_seqlens, shape);
        linear(graph, out, "self_attn.o_proj.weight", self.width)
    }

    /// `hidden` `[T, D]` -> `loss` `[T]`, `correct` `[T]`, `logits` `[T, V]`, each token by itself.
    /// The host runs the head in chunks of tokens, so that the logits of a batch are never in
    /// memory at once.
    fn head(&self) -> Graph {
        let mut graph = Graph::new("head");
        let hidden = self.hidden(&mut graph);
        let normed = self.norm(&mut graph, hidden, "model.norm.weight");
        let logits = linear(&mut graph, normed, "lm_head.weight", self.vocab);
        let labels = graph.batch(batch::LABELS);
        let [loss, _log_sum, correct] = op::cross_entropy(&mut graph, logits, labels);
        graph.output("loss", loss);
        graph.output("correct", correct);
        graph.output("logits", logits);
        graph
    }

    fn hidden(&self, graph: &mut Graph) -> ValueId {
        let shape = [Dim::Tokens, Dim::Fixed(self.width)];
        graph.input(Source::Previous("hidden".to_owned()), shape, DType::COMPUTE)
    }

    fn norm(&self, graph: &mut Graph, x: ValueId, name: &str) -> ValueId {
        let weight = graph.param(name, [self.width]);
        op::rms_norm(graph, x, weight, self.norm_eps)
    }

    /// The angle a position of each pair of channels, `[K / 2]`, in radians: `theta ^ (-2 pair /
    /// K)`.
    fn inv_freq(&self) -> Vec<f32> {
        let exponent = |pair: u64| (2 * pair) as f64 / self.head_dim as f64;
        let pairs = 0..self.head_dim / 2;
        pairs
            .map(|pair| self.rope_theta.powf(-exponent(pair)) as f32)
            .collect()
    }
}

/// `x` `[T, M]` -> `[T, width]` by a weight `[width, M]`: a site, which quantizers pack and
/// adapters join.
fn linear(graph: &mut Graph, x: ValueId, name: &str, width: u64) -> ValueId {
    let from = graph.fixed(x, 1);
    let weight = graph.param(name, [width, from]);
    op::linear(graph, x, weight, None)
}

/// The host's kind of a param, from its name.
fn kind_of(name: &str) -> ParamKind {
    match name {
        "model.embed_tokens.weight" => ParamKind::Embedding,
        "lm_head.weight" => ParamKind::Head,
        _ if name.ends_with("norm.weight") => ParamKind::Norm,
        _ => ParamKind::Linear,
    }
}

/// The keys that `Numbers::read` and `rope_theta` read.
const READ: &str = "\
    head_dim hidden_size intermediate_size max_position_embeddings num_attention_heads \
    num_hidden_layers num_key_value_heads rms_norm_eps rope_parameters rope_scaling \
    rope_theta tie_word_embeddings vocab_size";

/// Keys that change nothing of the model: names, tokens, the dtype of the files, how the model was
/// initialised and trained, what a program returns.
const HARMLESS: &str = "\
    _name_or_path architectures auto_map bos_token_id dtype eos_token_id id2label \
    initializer_range label2id model_type output_attentions output_hidden_states \
    pad_token_id pretraining_tp quantization_config return_dict torch_dtype \
    transformers_version use_cache";

/// Keys that are harmless with this value, as JSON; null is harmless in every key.
const HARMLESS_IF: &str = "\
    attention_bias=false attention_dropout=0.0 chunk_size_feed_forward=0 hidden_act=\"silu\" \
    is_encoder_decoder=false mlp_bias=false sliding_window=false use_sliding_window=false";

/// Refuses every key that is not known to be harmless: the graphs above do not compute what it asks
/// for, and ignoring it could silently train another model. Add a key to a list once you know.
fn refuse_unknown(config: &Json) -> Result<()> {
    for (key, value) in config.as_object().into_iter().flatten() {
        let is_same = |harmless: &&str| {
            let harmless: Json = serde_json::from_str(harmless).unwrap_or_default();
            harmless == *value || harmless.is_number() && harmless.as_f64() == value.as_f64()
        };
        let mut known = READ.split(' ').chain(HARMLESS.split(' '));
        let mut known_if = HARMLESS_IF.split(' ').filter_map(|one| one.split_once('='));
        let is_harmless = value.is_null()
            || known.any(|known| known == key)
            || known_if.any(|(known, harmless)| known == key && is_same(&harmless));
        if !is_harmless {
            return Err(PluginError::unsupported(format!(
                "config.json: `{key}` is {value:.60}, which this family does not know"
            )));
        }
    }
    Ok(())
}

/// The base of the rotary embedding: `rope_theta` of `rope_parameters`, as transformers 5 writes
/// it, else of the config itself, as earlier versions did. Scaled embeddings are refused.
fn rope_theta(config: &Json) -> Result<f64> {
    let theta = positive(config, "rope_theta", 10_000.0)?;
    let mut inner = None;
    for key in ["rope_parameters", "rope_scaling"] {
        let Some(rope) = get(config, key) else {
            continue;
        };
        let Some(fields) = rope.as_object() else {
            return Err(expected(config, key, "an object"));
        };
        for (name, value) in fields {
            match (name.as_str(), value) {
                (_, Json::Null) => {}
                ("rope_theta", _) => inner = Some(positive(rope, "rope_theta", theta)?),
                ("rope_type" | "type", Json::String(kind)) if kind == "default" => {}
                ("partial_rotary_factor", value) if value.as_f64() == Some(1.0) => {}
                (name, value) => {
                    return Err(PluginError::unsupported(format!(
                        "config.json: `{key}`: `{name}` is {value:.60}, which this family lacks"
                    )));
                }
            }
        }
    }
    Ok(inner.unwrap_or(theta))
}

/// The value of `key`; null counts as left out.
fn get<'a>(config: &'a Json, key: &str) -> Option<&'a Json> {
    config.get(key).filter(|value| !value.is_null())
}

/// The whole number `key` from 1 to 2^24, or `default`.
fn count(config: &Json, key: &str, default: Option<u64>) -> Result<u64> {
    let found = match get(config, key) {
        Some(value) => value.as_u64(),
        None => default,
    };
    let fitting = found.filter(|number| (1..=1 << 24).contains(number));
    fitting.ok_or_else(|| expected(config, key, "a whole number from 1 to 2^24"))
}

/// The number `key` above 0, or `default`.
fn positive(config: &Json, key: &str, default: f64) -> Result<f64> {
    let found = match get(config, key) {
        Some(value) => value.as_f64(),
        None => Some(default),
    };
    let fitting = found.filter(|number| number.is_finite() && *number > 0.0);
    fitting.ok_or_else(|| expected(config, key, "a number above 0"))
}

/// The truth value `key`, or false.
fn flag(config: &Json, key: &str) -> Result<bool> {
    match get(config, key) {
        None => Ok(false),
        Some(value) => value
            .as_bool()
            .ok_or_else(|| expected(config, key, "true or false")),
    }
}

fn expected(config: &Json, key: &str, what: &str) -> PluginError {
    let found = get(config, key).map_or("nothing".to_owned(), Json::to_string);
    PluginError::invalid(format!(
        "config.json: `{key}`: expected {what}, found {found:.60}"
    ))
}

/// A small config of this family, in one line, for the conformance kit.
const SAMPLE_CONFIG: &str = concat!(
    r#"{"model_type": "my-plugin", "#,
    r#""vocab_size": 512, "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 2, "#,
    r#""num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "#,
    r#""rms_norm_eps": 1e-5, "rope_theta": 10000.0}"#,
);

/// What users can choose. The host reads this from the file without running it. It takes the family
/// whose `model_types` hold the `model_type` of a `config.json`, or the one that `--plugins` names.
pub const COMPONENT: Component = Component {
    name: NAME,
    role: Role::FAMILY,
    doc: "a decoder as in Llama",
    options: &[],
    capabilities: &[
        ("model_types", "my-plugin"),
        ("sample_config", SAMPLE_CONFIG),
    ],
    create: |_options, _services| Ok(Instance::Family(Box::new(Decoder))),
};

// The library's description, and the one function that it exports.
espalier_interface::declare_plugin! {
    name: "my-plugin",
    components: &[COMPONENT],
}
