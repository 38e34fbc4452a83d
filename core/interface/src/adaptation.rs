//! An adapter's answer to a model's sites: new params, and a graph fragment for each site it
//! changes.

use serde::{Deserialize, Serialize};

use crate::Init;
use crate::graph::Graph;

/// The kind of operation that a site is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SiteKind {
    /// A linear inside a layer.
    Linear,
    /// The token embedding.
    Embedding,
    /// The output head.
    Head,
}

/// An operation of the model that an adapter may replace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// Module name, such as `model.layers.0.self_attn.q_proj`.
    pub name: String,
    /// Kind of operation.
    pub kind: SiteKind,
    /// Shape of its weight as in the checkpoint: `[out, in]`, or `[V, D]` for an embedding.
    pub shape: [u64; 2],
    /// Name of the site whose weight it shares, for a tied head.
    #[serde(default)]
    pub tied_to: Option<String>,
}

/// A trainable param that the adapter adds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdapterParam {
    /// Its key on disk, such as `base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight`.
    pub name: String,
    /// Shape on disk and in the graph.
    pub shape: Vec<u64>,
    /// Initial value.
    pub init: Init,
}

/// A fragment that replaces a site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Join {
    /// Index of the site in the list that `adapt` was given.
    pub site: usize,
    /// The fragment. Its first input is the site's input, and its first output is the site's new
    /// output. The op `base` in it stands for the site's own operation. Sites of one shape give
    /// equal fragments, which the core shares.
    pub fragment: Graph,
    /// For each param of the fragment, its index into [`Adaptation::params`].
    pub params: Vec<usize>,
}

/// An adapter's answer to all sites of a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Adaptation {
    /// The params it adds, in the order in which they are saved.
    pub params: Vec<AdapterParam>,
    /// The sites it replaces, with their fragments.
    pub joins: Vec<Join>,
}
