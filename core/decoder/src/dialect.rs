//! What tells one family of decoders from another.

/// A family of decoders: what its `config.json` means where families differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// Its `model_type`, and the name of the family.
    pub model_type: &'static str,
    /// Biases of attention's projections.
    pub attention_bias: AttentionBias,
    /// Whether the key `mlp_bias` gives the feed-forward projections biases.
    pub mlp_bias: bool,
    /// Whether each head of queries and keys is normed before its rotation.
    pub head_norms: bool,
    /// Which layers see a window only.
    pub window: Window,
    /// `K` where `head_dim` is not set; unset: the width over the number of heads.
    pub default_head_dim: Option<u64>,
}

/// Which projections of attention have a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionBias {
    /// None.
    Never,
    /// All four, where the key `attention_bias` is true.
    Configured,
    /// Queries, keys and values.
    QueryKeyValue,
}

/// Which layers see `sliding_window` tokens back and no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// None: a config that asks for one is refused.
    Never,
    /// Every layer; where the key is left out, the window is `default`, and null means none.
    EveryLayer {
        /// Tokens, the seeing one included.
        default: u64,
    },
    /// Where `use_sliding_window` is true, the layers that `layer_types` names, else those from `max_window_layers` on.
    Switched,
}
