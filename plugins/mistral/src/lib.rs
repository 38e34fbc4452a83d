//! Mistral 7B and models that share its `config.json`: the file -> a model as data. A sliding
//! window in every layer, no biases.

use espalier_decoder::{Dialect, Window};
use espalier_interface::model::Model;
use espalier_interface::{Component, Family, Instance, Result, Role};
use serde_json::Value as Json;

const DIALECT: Dialect = Dialect {
    window: Window::EveryLayer {
        default: Some(4096),
    },
    ..Dialect::plain("mistral")
};

/// The family of Mistral 7B and models that share its `config.json`.
pub struct Mistral;

impl Family for Mistral {
    fn describe(&self, config: &Json) -> Result<Model> {
        espalier_decoder::describe(config, &DIALECT)
    }
}

const MISTRAL: Component = Component {
    name: "mistral",
    role: Role::FAMILY,
    doc: "Mistral 7B and its kin: grouped-query attention, a sliding window where the config has one",
    options: &[],
    capabilities: &[
        ("model_types", "mistral"),
        ("sample_config", espalier_decoder::sample_config!("mistral")),
    ],
    create: |_, _| Ok(Instance::Family(Box::new(Mistral))),
};

espalier_interface::declare_plugin! { name: "mistral", components: &[MISTRAL] }
