//! Qwen 2 and 2.5: their `config.json` -> a model as data. Biases on queries, keys and values,
//! sliding windows where switched on.

use espalier_decoder::{AttentionBias, Dialect, Window};
use espalier_interface::model::Model;
use espalier_interface::{Component, Family, Instance, Result, Role};
use serde_json::Value as Json;

const DIALECT: Dialect = Dialect {
    attention_bias: AttentionBias::QueryKeyValue,
    window: Window::Switched,
    ..Dialect::plain("qwen2")
};

/// The family of Qwen 2 and 2.5.
pub struct Qwen2;

impl Family for Qwen2 {
    fn describe(&self, config: &Json) -> Result<Model> {
        espalier_decoder::describe(config, &DIALECT)
    }
}

const QWEN2: Component = Component {
    name: "qwen2",
    role: Role::FAMILY,
    doc: "Qwen 2 and 2.5: biases on queries, keys and values, sliding windows in late layers where switched on",
    options: &[],
    capabilities: &[
        ("model_types", "qwen2"),
        ("sample_config", espalier_decoder::sample_config!("qwen2")),
    ],
    create: |_, _| Ok(Instance::Family(Box::new(Qwen2))),
};

espalier_interface::declare_plugin! { name: "qwen2", components: &[QWEN2] }
