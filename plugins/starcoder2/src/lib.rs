//! StarCoder 2: its `config.json` -> a model as data. Layer norms with biases, biases on all
//! projections, and a feed-forward part without a gate, of GELU.

use espalier_decoder::{AttentionBias, Defaults, Dialect, FeedForward, Norm, Window};
use espalier_interface::model::Model;
use espalier_interface::{Component, Family, Instance, Result, Role};
use serde_json::Value as Json;

const PLAIN: Dialect = Dialect::plain("starcoder2");

/// Values that are left out are those of transformers 5, `Starcoder2Config`.
const DIALECT: Dialect = Dialect {
    attention_bias: AttentionBias::UseBias,
    norm: Norm::Layer,
    feed_forward: FeedForward::Gelu,
    window: Window::EveryLayer { default: None },
    defaults: Defaults {
        num_kv_heads: Some(2),
        max_positions: 4096,
        norm_eps: 1e-5,
        tied_head: true,
        initializer_range: 0.018042,
        ..PLAIN.defaults
    },
    // BigCode's files have these, which transformers does not read.
    harmless_keys: &[
        "attention_softmax_in_fp32",
        "layer_norm_epsilon",
        "mlp_type",
        "norm_type",
        "scale_attention_softmax_in_fp32",
        "scale_attn_weights",
    ],
    ..PLAIN
};

/// A small model's `config.json`, with which the conformance kit tests the family.
const SAMPLE_CONFIG: &str = concat!(
    r#"{"model_type": "starcoder2", "hidden_act": "gelu_pytorch_tanh", "hidden_size": 32, "#,
    r#""intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "#,
    r#""num_key_value_heads": 2, "vocab_size": 64, "max_position_embeddings": 64, "#,
    r#""norm_epsilon": 1e-5, "use_bias": true, "rope_theta": 10000.0, "#,
    r#""tie_word_embeddings": false, "initializer_range": 0.1}"#
);

/// The family of StarCoder 2.
pub struct Starcoder2;

impl Family for Starcoder2 {
    fn describe(&self, config: &Json) -> Result<Model> {
        espalier_decoder::describe(config, &DIALECT)
    }
}

const STARCODER2: Component = Component {
    name: "starcoder2",
    role: Role::FAMILY,
    doc: "StarCoder 2: layer norms with biases, biased projections, GELU without a gate",
    options: &[],
    capabilities: &[
        ("model_types", "starcoder2"),
        ("sample_config", SAMPLE_CONFIG),
    ],
    create: |_, _| Ok(Instance::Family(Box::new(Starcoder2))),
};

espalier_interface::declare_plugin! { name: "starcoder2", components: &[STARCODER2] }
