//! An adapter's answer to a model's sites: new params, and a graph fragment for each site it
//! changes.

use serde::{Deserialize, Serialize};

use crate::Init;
use crate::graph::{Graph, ParamId};

/// The local name of a fragment's param that is the weight of its site, as
/// [`op::base_weight`](crate::op::base_weight) makes it.
pub const BASE_WEIGHT: &str = "base.weight";

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
    /// A norm, for an adapter with [`Adapter::takes_norms`](crate::Adapter::takes_norms): no
    /// fragment joins it.
    Norm,
}

/// An operation of the model that an adapter may replace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// Module name, such as `model.layers.0.self_attn.q_proj`.
    pub name: String,
    /// Kind of operation.
    pub kind: SiteKind,
    /// Shape of its weight as in the checkpoint: `[out, in]`, or `[V, D]` for an embedding. Of a
    /// norm with N elements `[1, N]`.
    pub shape: [u64; 2],
    /// Name of the site whose weight it shares, for a tied head.
    #[serde(default)]
    pub tied_to: Option<String>,
    /// Whether its operation adds a bias.
    #[serde(default)]
    pub has_bias: bool,
}

/// A param that the adapter adds. It is trained, unless [`Adaptation::frozen`] has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdapterParam {
    /// Its key on disk, such as `base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight`.
    pub name: String,
    /// Shape on disk and in the graph.
    pub shape: Vec<u64>,
    /// Initial value.
    pub init: Init,
}

/// A param that is read and not trained: it has no gradient and no optimizer state.
///
/// Fragments of any number of sites may read it. It is kept once on every rank, whole and in the
/// dtype of trained params, under every sharding strategy. The adapter's files hold it under its
/// name. Its initial values are numbers of one kind or random ones, not [`Init::FromWeight`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrozenParam {
    /// Index into [`Adaptation::params`].
    pub param: usize,
    /// Index into [`Adaptation::params`] of another frozen matrix, of which this one is the first
    /// rows and of these the first columns. It has the same `init`. The adapter's files hold only
    /// the other one, so its name is for messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part_of: Option<usize>,
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
    /// For each param of the fragment but the site's own weight, its index into
    /// [`Adaptation::params`].
    pub params: Vec<usize>,
}

impl Join {
    /// The fragment's params that are the adapter's own, each with its index into
    /// [`Adaptation::params`].
    pub fn bound(&self) -> impl Iterator<Item = (ParamId, usize)> {
        let locals = self.fragment.params.iter().enumerate();
        let own = locals.filter(|(_, param)| param.name != BASE_WEIGHT);
        own.map(|(local, _)| local).zip(self.params.iter().copied())
    }

    /// The fragment's param that is the site's own weight, if it reads it.
    pub fn base_weight(&self) -> Option<ParamId> {
        let mut locals = self.fragment.params.iter();
        locals.position(|param| param.name == BASE_WEIGHT)
    }
}

/// A param that stands in place of a norm's weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplacedNorm {
    /// Index of the norm in the list that `adapt` was given.
    pub site: usize,
    /// Index into [`Adaptation::params`] of a param `[N]` that begins as
    /// [`Init::FromWeight`].
    pub param: usize,
}

/// An adapter's answer to all sites of a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Adaptation {
    /// The params it adds, in the order in which they are saved.
    pub params: Vec<AdapterParam>,
    /// The sites it replaces, with their fragments.
    pub joins: Vec<Join>,
    /// For each param, its learning rate over the run's, where no `[[optim.groups]]` gives its
    /// rate; empty where all are 1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub learning_rate_ratios: Vec<f64>,
    /// The norms whose weight it trains, beside the frozen one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub norms: Vec<ReplacedNorm>,
    /// Where it begins with a part of the weights: what becomes of the base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_change: Option<BaseChange>,
    /// The params that are not trained.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frozen: Vec<FrozenParam>,
}

/// The change of the base by an adapter that begins with a part of the weights.
///
/// `W` is a site's weight, `D` what the adapter adds to it, as its fragment computes it from its
/// params. The params are made by [`Adapter::initialise`](crate::Adapter::initialise), which is
/// given a matrix of the weight's shape and lets `D` approach it; all of them begin as
/// [`Init::FromWeight`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaseChange {
    /// The joins whose sites get another weight, by their index into [`Adaptation::joins`].
    pub joins: Vec<usize>,
    /// With 0 rounds `D` is made from `W`, and the base is `W - D`, packed where a quantizer packs
    /// it (PiSSA). With more, the base begins as `W` packed. `D` is made from what packing lost,
    /// `W - base`, and in each further round the base becomes `W - D`, packed, and `D` is made
    /// again (LoftQ).
    pub rounds: u64,
    /// The adapter's option that asks for it, for messages.
    pub option: String,
}

impl Adaptation {
    /// The learning rate of a param over the run's.
    pub fn learning_rate_ratio(&self, param: usize) -> f64 {
        self.learning_rate_ratios.get(param).copied().unwrap_or(1.0)
    }

    /// How a param is frozen; none where it is trained.
    pub fn frozen(&self, param: usize) -> Option<&FrozenParam> {
        self.frozen.iter().find(|one| one.param == param)
    }

    /// The param that the adapter's files hold for a param: itself, or the one it is a part of.
    pub fn stored(&self, param: usize) -> usize {
        let whole = self.frozen(param).and_then(|one| one.part_of);
        whole.unwrap_or(param)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs on record hold a hash of this text, made before there were ratios.
    #[test]
    fn an_answer_without_ratios_is_written_as_before_them() {
        let written = serde_json::to_string(&Adaptation::default()).expect("plain data");
        assert_eq!(written, r#"{"params":[],"joins":[]}"#);
    }
}
