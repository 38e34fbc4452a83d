//! The differences between families of decoders.

/// A family of decoders: the meaning of its `config.json` where families differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dialect {
    /// Its `model_type`, and the name of the family.
    pub model_type: &'static str,
    /// Biases of attention's projections.
    pub attention_bias: AttentionBias,
    /// Whether the key `mlp_bias` gives the feed-forward projections biases.
    pub mlp_bias: bool,
    /// The norms.
    pub norm: Norm,
    /// The feed-forward part.
    pub feed_forward: FeedForward,
    /// Whether each head of queries and keys is normalized before its rotation.
    pub head_norms: bool,
    /// The layers with a sliding window.
    pub window: Window,
    /// Values of keys that a config leaves out.
    pub defaults: Defaults,
    /// Whether the config scales embeddings, scores, residuals and logits: [`Multipliers`].
    ///
    /// [`Multipliers`]: crate::Multipliers
    pub multipliers: bool,
    /// What it has of Gemma's line.
    pub gemma: Option<GemmaLine>,
    /// Whether queries, keys and values are one projection, and gate and up another one.
    pub fused_projections: bool,
    /// Whether `partial_rotary_factor` may leave some channels of a head as they are.
    pub partial_rotary: bool,
    /// Older names of the rope type `longrope`.
    pub longrope_names: &'static [&'static str],
    /// Keys of its configs alone that change nothing of what it computes. Any other key that the
    /// family does not read is refused.
    pub harmless_keys: &'static [&'static str],
}

/// Values of keys that a config leaves out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Defaults {
    /// `head_dim`; none for the width over the number of heads.
    pub head_dim: Option<u64>,
    /// `num_key_value_heads`; none for as many as there are heads.
    pub num_kv_heads: Option<u64>,
    /// `max_position_embeddings`.
    pub max_positions: u64,
    /// `original_max_position_embeddings` of the rope type `longrope`; none for that of the rotary
    /// embedding, else `max_position_embeddings`.
    pub original_positions: Option<u64>,
    /// `rms_norm_eps`, or `norm_epsilon` of a family with layer norms.
    pub norm_eps: f64,
    /// `tie_word_embeddings`.
    pub tied_head: bool,
    /// `rope_theta`.
    pub rope_theta: f64,
    /// `initializer_range`.
    pub initializer_range: f64,
}

/// A member of Gemma's line: embeddings are scaled by the root of the width, norms have weights
/// around 0 and stand before and after attention and the feed-forward part, gates are GELUs, scores
/// are divided by the root of `query_pre_attn_scalar`, and `final_logit_softcapping` caps logits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GemmaLine {
    /// Cap of logits, where the key is left out.
    pub logits_softcap: Option<f64>,
    /// Cap of attention's scores, where the key `attn_logit_softcapping` is left out; none for a
    /// family without such a cap.
    pub attention_softcap: Option<f64>,
    /// Base of the wavelengths in layers with a window, where the key is left out; none for a
    /// family whose layers all have the same rotary embedding.
    pub local_rope_theta: Option<f64>,
}

impl Dialect {
    /// A family without special features, of Llama's defaults.
    pub const fn plain(model_type: &'static str) -> Self {
        Dialect {
            model_type,
            attention_bias: AttentionBias::Never,
            mlp_bias: false,
            norm: Norm::RootMeanSquare,
            feed_forward: FeedForward::Gated,
            head_norms: false,
            window: Window::Never,
            defaults: Defaults {
                head_dim: None,
                num_kv_heads: None,
                max_positions: 2048,
                original_positions: None,
                norm_eps: 1e-6,
                tied_head: false,
                rope_theta: 10_000.0,
                initializer_range: 0.02,
            },
            multipliers: false,
            gemma: None,
            fused_projections: false,
            partial_rotary: false,
            longrope_names: &[],
            harmless_keys: &[],
        }
    }
}

/// The projections of attention that have a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionBias {
    /// None.
    Never,
    /// All four, where the key `attention_bias` is true.
    Configured,
    /// Queries, keys and values.
    QueryKeyValue,
    /// All four, and the feed-forward projections, unless the key `use_bias` is false.
    UseBias,
}

/// The norms of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norm {
    /// By the root mean square, with a weight; epsilon is `rms_norm_eps`.
    RootMeanSquare,
    /// By mean and deviation, with a weight and a bias; epsilon is `norm_epsilon`.
    Layer,
}

/// The feed-forward part of a family's layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedForward {
    /// `gate_proj` and `up_proj`, whose product goes through `down_proj`.
    Gated,
    /// `c_fc`, GELU as `hidden_act` says, and `c_proj`.
    Gelu,
}

/// The layers that attend to `sliding_window` tokens only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// None: a config that asks for one is refused.
    Never,
    /// Every layer. Where the key `sliding_window` is missing, the window is `default`; null means
    /// no window.
    EveryLayer {
        /// Tokens, the attending one included.
        default: Option<u64>,
    },
    /// The layers that `layer_types` names, else all but each `every`-th one.
    AllBut {
        /// The window where the key `sliding_window` is missing: tokens, the attending one
        /// included.
        default: u64,
        /// Layers from one without a window to the next.
        every: u64,
        /// The key that says so, if the family has one.
        key: Option<&'static str>,
    },
    /// Where `use_sliding_window` is true, the layers that `layer_types` names, else those from
    /// `max_window_layers` on.
    Switched,
}
