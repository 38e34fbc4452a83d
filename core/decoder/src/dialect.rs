//! The differences between families of decoders.

/// A family of decoders: the meaning of its `config.json` where families differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// Its `model_type`, and the name of the family.
    pub model_type: &'static str,
    /// Biases of attention's projections.
    pub attention_bias: AttentionBias,
    /// Whether the key `mlp_bias` gives the feed-forward projections biases.
    pub mlp_bias: bool,
    /// Whether each head of queries and keys is normalized before its rotation.
    pub head_norms: bool,
    /// The layers with a sliding window.
    pub window: Window,
    /// Head width where `head_dim` is not set; none for the width over the number of heads.
    pub default_head_dim: Option<u64>,
    /// Whether the config scales embeddings, scores, residuals and logits: [`Multipliers`].
    ///
    /// [`Multipliers`]: crate::Multipliers
    pub multipliers: bool,
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
        default: u64,
    },
    /// Where `use_sliding_window` is true, the layers that `layer_types` names, else those from
    /// `max_window_layers` on.
    Switched,
}
