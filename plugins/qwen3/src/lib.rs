//! Qwen 3, the dense ones: their `config.json` -> a model as data. Queries and keys are normalised
//! by head; the head width is a separate key.

use espalier_decoder::{AttentionBias, Defaults, Dialect, Window};
use espalier_interface::model::Model;
use espalier_interface::{Component, Family, Instance, Result, Role};
use serde_json::Value as Json;

const PLAIN: Dialect = Dialect::plain("qwen3");

const DIALECT: Dialect = Dialect {
    attention_bias: AttentionBias::Configured,
    head_norms: true,
    window: Window::Switched,
    defaults: Defaults {
        head_dim: Some(128),
        ..PLAIN.defaults
    },
    ..PLAIN
};

/// The family of Qwen 3, the dense ones.
pub struct Qwen3;

impl Family for Qwen3 {
    fn describe(&self, config: &Json) -> Result<Model> {
        espalier_decoder::describe(config, &DIALECT)
    }
}

const QWEN3: Component = Component {
    name: "qwen3",
    role: Role::FAMILY,
    doc: "Qwen 3, the dense ones: queries and keys normed by head, heads with a width of their own",
    options: &[],
    capabilities: &[
        ("model_types", "qwen3"),
        ("sample_config", espalier_decoder::sample_config!("qwen3")),
    ],
    create: |_, _| Ok(Instance::Family(Box::new(Qwen3))),
};

espalier_interface::declare_plugin! { name: "qwen3", components: &[QWEN3] }
