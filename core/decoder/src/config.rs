//! `config.json` as transformers 4 and 5 write it -> the numbers that define a decoder.

use espalier_interface::op::GeluForm;
use espalier_interface::{PluginError, Result};
use serde_json::Value as Json;

use crate::dialect::{AttentionBias, Dialect, FeedForward, Norm, Window};
use crate::fields::Fields;
use crate::gemma::Gemma;
use crate::keys::refuse_unknown;
use crate::multipliers::Multipliers;
use crate::rope::Rope;
use crate::window::windows;

/// Largest extent that is accepted: four times the widest vocabularies. A product of two does not
/// overflow.
const MAX_EXTENT: u64 = 1 << 24;

/// Most layers that are accepted.
const MAX_LAYERS: u64 = 4096;

/// Most elements of all params that are accepted; their bytes and sums stay far below 2^63.
const MAX_ELEMENTS: u64 = 1 << 50;

/// Keys of dropout within a model, which no family has.
const DROPOUTS: [&str; 5] = [
    "attention_dropout",
    "embd_pdrop",
    "embedding_dropout",
    "resid_pdrop",
    "residual_dropout",
];

/// The numbers of a decoder's `config.json`.
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderConfig {
    /// The family's name.
    pub family: &'static str,
    /// Vocabulary size `V`.
    pub vocab_size: u64,
    /// Width `D` of the hidden states.
    pub hidden_size: u64,
    /// Feed-forward width `F`.
    pub intermediate_size: u64,
    /// Number of layers.
    pub num_layers: u64,
    /// Number of query heads `H`.
    pub num_heads: u64,
    /// Number of key and value heads `J`, a divisor of `H`.
    pub num_kv_heads: u64,
    /// Head width `K`.
    pub head_dim: u64,
    /// Longest sequence the model was made for.
    pub max_positions: u64,
    /// How rows are normed.
    pub norm: Norm,
    /// Epsilon of every norm.
    pub norm_eps: f64,
    /// Rotary embedding.
    pub rope: Rope,
    /// That of layers with a window, where it is another one.
    pub local_rope: Option<Rope>,
    /// Whether the head's weight is the embedding's.
    pub tied_head: bool,
    /// Whether queries, keys and values have biases.
    pub qkv_bias: bool,
    /// Whether attention's output projection has a bias.
    pub output_bias: bool,
    /// Whether the feed-forward projections have biases.
    pub mlp_bias: bool,
    /// The activation of a feed-forward part without a gate; none where it has one.
    pub gelu: Option<GeluForm>,
    /// Whether each head of queries and keys is normalized.
    pub head_norms: bool,
    /// Factors of values.
    pub multipliers: Multipliers,
    /// Further numbers of a model of Gemma's line.
    pub gemma: Option<Gemma>,
    /// Whether queries, keys and values are one projection, and gate and up another one.
    pub fused_projections: bool,
    /// For each layer, most tokens that a token attends to, itself included; unset for no limit.
    pub windows: Vec<Option<u64>>,
    /// Standard deviation of initial weights.
    pub initializer_range: f64,
}

impl DecoderConfig {
    /// Reads a parsed `config.json` in the way of `dialect`.
    ///
    /// # Errors
    /// `INVALID` for a value that is missing or impossible, `UNSUPPORTED` for a variant that the
    /// family does not have.
    pub fn read(json: &Json, dialect: &Dialect) -> Result<Self> {
        let fields = Fields::new(json, "")?;
        refuse_variants(&fields, dialect)?;
        let hidden_size = fields.count("hidden_size", 1..=MAX_EXTENT, None)?;
        let num_heads = fields.count("num_attention_heads", 1..=MAX_EXTENT, None)?;
        let defaults = dialect.defaults;
        let as_many = defaults.num_kv_heads.unwrap_or(num_heads);
        let num_kv_heads = fields.count("num_key_value_heads", 1..=MAX_EXTENT, Some(as_many))?;
        let own_width = fields.get("head_dim").is_some() || defaults.head_dim.is_some();
        if !own_width && hidden_size % num_heads != 0 {
            return Err(PluginError::invalid(format!(
                "config.json: `hidden_size` {hidden_size} is not a multiple of \
                 `num_attention_heads` {num_heads}"
            )));
        }
        if num_heads % num_kv_heads != 0 {
            return Err(PluginError::invalid(format!(
                "config.json: `num_attention_heads` {num_heads} is not a multiple of \
                 `num_key_value_heads` {num_kv_heads}"
            )));
        }
        let even_share = (hidden_size / num_heads).max(1);
        let usual = defaults.head_dim.unwrap_or(even_share);
        let head_dim = fields.count("head_dim", 1..=MAX_EXTENT, Some(usual))?;
        if head_dim % 2 != 0 {
            return Err(PluginError::invalid(format!(
                "config.json: heads are {head_dim} wide, expected an even width: rotary \
                 embedding turns pairs (`hidden_size` {hidden_size}, `num_attention_heads` \
                 {num_heads})"
            )));
        }
        if num_heads * head_dim > MAX_EXTENT {
            return Err(PluginError::invalid(format!(
                "config.json: {num_heads} heads of width {head_dim} are {} wide together, \
                 expected at most {MAX_EXTENT}",
                num_heads * head_dim
            )));
        }
        let key = "max_position_embeddings";
        let max_positions = fields.count(key, 1..=1 << 40, Some(defaults.max_positions))?;
        let num_layers = fields.count("num_hidden_layers", 1..=MAX_LAYERS, None)?;
        let configured = fields.flag("attention_bias")?;
        let all_biases =
            dialect.attention_bias == AttentionBias::UseBias && fields.flag_or("use_bias", true)?;
        let config = DecoderConfig {
            family: dialect.model_type,
            vocab_size: fields.count("vocab_size", 1..=MAX_EXTENT, None)?,
            hidden_size,
            intermediate_size: fields.count("intermediate_size", 1..=MAX_EXTENT, None)?,
            num_layers,
            num_heads,
            num_kv_heads,
            head_dim,
            max_positions,
            norm: dialect.norm,
            norm_eps: fields.positive(eps_key(dialect.norm), Some(defaults.norm_eps))?,
            rope: Rope::read(&fields, dialect, max_positions)?,
            local_rope: Rope::read_local(&fields, dialect)?,
            tied_head: fields.flag_or("tie_word_embeddings", defaults.tied_head)?,
            qkv_bias: match dialect.attention_bias {
                AttentionBias::Never => false,
                AttentionBias::Configured => configured,
                AttentionBias::QueryKeyValue => true,
                AttentionBias::UseBias => all_biases,
            },
            output_bias: all_biases
                || configured && dialect.attention_bias == AttentionBias::Configured,
            mlp_bias: all_biases || dialect.mlp_bias && fields.flag("mlp_bias")?,
            gelu: gelu(&fields, dialect)?,
            head_norms: dialect.head_norms,
            multipliers: Multipliers::read(&fields, dialect.multipliers)?,
            gemma: Gemma::read(&fields, dialect)?,
            fused_projections: dialect.fused_projections,
            windows: windows(&fields, dialect.window, num_layers)?,
            initializer_range: fields
                .positive("initializer_range", Some(defaults.initializer_range))?,
        };
        config.check()?;
        Ok(config)
    }

    /// Checks what several numbers make together.
    fn check(&self) -> Result<()> {
        let elements = self.elements();
        if elements > MAX_ELEMENTS {
            return Err(PluginError::invalid(format!(
                "config.json: a model of {elements} weights, expected at most {MAX_ELEMENTS}"
            )));
        }
        let mut ropes = self.local_rope.iter().chain([&self.rope]);
        ropes.try_for_each(|rope| rope.check(self.head_dim))
    }

    /// Width of the queries, `H K`.
    pub fn query_width(&self) -> u64 {
        self.num_heads * self.head_dim
    }

    /// Width of the keys and of the values.
    pub fn kv_width(&self) -> u64 {
        self.num_kv_heads * self.head_dim
    }

    /// Elements of all linears and embeddings. Extents are at most 2^24 and layers at most 2^12, so
    /// nothing overflows.
    fn elements(&self) -> u64 {
        let attention = 2 * (self.query_width() + self.kv_width());
        let layer = self.hidden_size * (attention + 3 * self.intermediate_size);
        self.num_layers * layer + 2 * self.vocab_size * self.hidden_size
    }
}

fn refuse_variants(fields: &Fields<'_>, dialect: &Dialect) -> Result<()> {
    let family = dialect.model_type;
    let model_type = fields.text("model_type", family)?;
    if model_type != family {
        return Err(PluginError::unsupported(format!(
            "config.json: `model_type` is `{model_type}`, this family reads `{family}`"
        )));
    }
    let is_gemma = dialect.gemma.is_some();
    let activation = fields.text("hidden_act", "silu")?;
    if activation != "silu" && !is_gemma && dialect.feed_forward == FeedForward::Gated {
        return Err(PluginError::unsupported(format!(
            "config.json: `hidden_act` is `{activation}`, this family's is `silu`"
        )));
    }
    let windowless = dialect.window == Window::Never;
    let by_key = [AttentionBias::Configured, AttentionBias::QueryKeyValue];
    let has_bias = by_key.contains(&dialect.attention_bias);
    let biases = [("attention_bias", has_bias), ("mlp_bias", dialect.mlp_bias)];
    for (key, known) in biases {
        if !known && fields.flag(key)? {
            return Err(PluginError::unsupported(format!(
                "config.json: `{key}` is true, which this family does not have"
            )));
        }
    }
    let caps = ["attn_logit_softcapping", "final_logit_softcapping"];
    refuse_dropout(fields)?;
    let strange = caps.into_iter().filter(|_| !is_gemma);
    for key in strange.chain(windowless.then_some("sliding_window")) {
        if let Some(found) = fields.get(key).filter(|found| found.as_f64() != Some(0.0)) {
            return Err(PluginError::unsupported(format!(
                "config.json: `{key}` is {found}, which this family does not have"
            )));
        }
    }
    refuse_unknown(fields, dialect)
}

/// Refuses a config that asks for dropout within the model.
fn refuse_dropout(fields: &Fields<'_>) -> Result<()> {
    for key in DROPOUTS {
        if let Some(found) = fields.get(key).filter(|found| found.as_f64() != Some(0.0)) {
            return Err(PluginError::unsupported(format!(
                "config.json: `{key}` is {found}, and this family does not have dropout; set it to \
                 0 to train without, which evaluation does anyway"
            )));
        }
    }
    Ok(())
}

/// The key of the norms' epsilon.
fn eps_key(norm: Norm) -> &'static str {
    match norm {
        Norm::RootMeanSquare => "rms_norm_eps",
        Norm::Layer => "norm_epsilon",
    }
}

/// The activation of a feed-forward part without a gate.
fn gelu(fields: &Fields<'_>, dialect: &Dialect) -> Result<Option<GeluForm>> {
    if dialect.feed_forward == FeedForward::Gated {
        return Ok(None);
    }
    match fields.text("hidden_act", "gelu_pytorch_tanh")? {
        "gelu_pytorch_tanh" => Ok(Some(GeluForm::Tanh)),
        "gelu" => Ok(Some(GeluForm::Exact)),
        other => Err(PluginError::unsupported(format!(
            "config.json: `hidden_act` is `{other}`, this family has `gelu_pytorch_tanh` and `gelu`"
        ))),
    }
}

#[cfg(test)]
mod tests;
