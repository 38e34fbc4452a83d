//! Granite 3, the dense ones: their `config.json` -> a model as data. Embeddings, attention's
//! scores, what a layer adds, and logits are scaled by numbers of the config.

use espalier_decoder::{AttentionBias, Dialect};
use espalier_interface::model::Model;
use espalier_interface::{Component, Family, Instance, Result, Role};
use serde_json::Value as Json;

const DIALECT: Dialect = Dialect {
    attention_bias: AttentionBias::Configured,
    mlp_bias: true,
    multipliers: true,
    ..Dialect::plain("granite")
};

/// The family of Granite 3, the dense ones.
pub struct Granite;

impl Family for Granite {
    fn describe(&self, config: &Json) -> Result<Model> {
        espalier_decoder::describe(config, &DIALECT)
    }
}

const GRANITE: Component = Component {
    name: "granite",
    role: Role::FAMILY,
    doc: "Granite 3, the dense ones: embeddings, scores, residuals and logits are scaled",
    options: &[],
    capabilities: &[
        ("model_types", "granite"),
        ("sample_config", espalier_decoder::sample_config!("granite")),
    ],
    create: |_, _| Ok(Instance::Family(Box::new(Granite))),
};

espalier_interface::declare_plugin! { name: "granite", components: &[GRANITE] }
