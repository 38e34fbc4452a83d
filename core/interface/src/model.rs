//! A model as data, as a family describes a `config.json`: params, units and their graphs.

use serde::{Deserialize, Serialize};

use crate::graph::batch::LengthPositions;
use crate::graph::{Graph, Source};
use crate::{Init, PluginError, Result};

/// The kind of a param.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParamKind {
    /// The weight of a linear inside a layer, which quantizers pack.
    Linear,
    /// The weight of the token embedding.
    Embedding,
    /// The weight of the output head.
    Head,
    /// The weight of a norm.
    Norm,
    /// A bias.
    Bias,
}

/// A named weight of the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParamSpec {
    /// Name in the checkpoint, such as `model.layers.0.self_attn.q_proj.weight`.
    pub name: String,
    /// Further names of the same param, such as a tied head's. A checkpoint may hold them or not.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Shape in the checkpoint.
    pub shape: Vec<u64>,
    /// Its kind.
    pub kind: ParamKind,
    /// Initial value when a model is trained from scratch.
    pub init: Init,
}

impl ParamSpec {
    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }
}

/// The kind of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnitKind {
    /// Token ids in, hidden states out.
    Embedding,
    /// Hidden states in and out; the recompute policy applies to it.
    Layer,
    /// Hidden states in; `logits`, and `loss` and `correct` per token out. Its graph processes each
    /// token separately. So the core runs it forward and backward in chunks of tokens and never
    /// holds all logits.
    Head,
}

/// A part of the model that is gathered and computed as a whole: the embedding, a layer, or the
/// head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unit {
    /// Name, such as `model.layers.0`.
    pub name: String,
    /// Its kind.
    pub kind: UnitKind,
    /// Index into [`Model::graphs`]; layers of one shape share one.
    pub graph: usize,
    /// Prefix of a graph param's local name in the name of a site: `model.layers.0.`, or empty.
    pub prefix: String,
    /// For each param of the graph, its index into [`Model::params`].
    pub params: Vec<usize>,
}

/// A model as data. Each unit passes its output `hidden` to the next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// Name of the family, such as `llama`.
    pub family: String,
    /// Width of the hidden states.
    pub hidden_size: u64,
    /// Rows of the token embedding.
    pub vocab_size: u64,
    /// Longest sequence the model was made for.
    pub max_positions: u64,
    /// Params.
    pub params: Vec<ParamSpec>,
    /// Graphs, each shared by the units that name it.
    pub graphs: Vec<Graph>,
    /// Units in the order of the forward pass: one embedding, the layers, one head.
    pub units: Vec<Unit>,
}

impl Model {
    /// The lengths of sequences, in tokens, at which its graphs tell positions apart, ascending:
    /// those of every [`LengthPositions`] that a graph reads.
    pub fn length_limits(&self) -> Vec<u64> {
        let inputs = self.graphs.iter().flat_map(|graph| &graph.inputs);
        let mut limits: Vec<u64> = inputs
            .filter_map(|input| match &input.source {
                Source::Batch(name) => LengthPositions::of_name(name).map(LengthPositions::limit),
                Source::Previous(_) => None,
            })
            .collect();
        limits.sort_unstable();
        limits.dedup();
        limits
    }

    /// Checks that indices are in range, that shapes agree, and the order of units.
    ///
    /// # Errors
    /// `INVALID`, naming the unit and what is wrong with it.
    pub fn validate(&self) -> Result<()> {
        let fail = |what: String| {
            Err(PluginError::invalid(format!(
                "family `{}`: {what}",
                self.family
            )))
        };
        for graph in &self.graphs {
            graph.validate()?;
        }
        let last = self.units.len().saturating_sub(1);
        if last < 1 {
            return fail("a model has an embedding and a head at least".to_owned());
        }
        for (index, unit) in self.units.iter().enumerate() {
            let expected = match index {
                0 => UnitKind::Embedding,
                i if i == last => UnitKind::Head,
                _ => UnitKind::Layer,
            };
            if unit.kind != expected {
                return fail(format!(
                    "unit `{}` at place {index} is {:?}, expected {expected:?}",
                    unit.name, unit.kind
                ));
            }
            let Some(graph) = self.graphs.get(unit.graph) else {
                return fail(format!("unit `{}` names graph {}", unit.name, unit.graph));
            };
            if graph.params.len() != unit.params.len() {
                return fail(format!(
                    "unit `{}` binds {} params, its graph has {}",
                    unit.name,
                    unit.params.len(),
                    graph.params.len()
                ));
            }
            for (local, &bound) in graph.params.iter().zip(&unit.params) {
                match self.params.get(bound) {
                    Some(param) if param.shape == local.shape => {}
                    Some(param) => {
                        return fail(format!(
                            "param `{}` is {:?}, unit `{}` expects {:?}",
                            param.name, param.shape, unit.name, local.shape
                        ));
                    }
                    None => return fail(format!("unit `{}` binds param {bound}", unit.name)),
                }
            }
        }
        Ok(())
    }
}
