//! The options of `fsdp`.

use espalier_interface::{DType, OptionKind, OptionSpec, Options, PluginError, Result};

/// How long weights stay together, and among which ranks they are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Cut among all ranks, together only around the passes that read them.
    FullShard,
    /// Cut among all ranks, together from their first pass of a step to their last.
    ShardGradOp,
    /// As `FullShard` within groups of ranks; the groups hold the same.
    Hybrid,
}

/// What lies in host memory between uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// Nothing.
    Nothing,
    /// Frozen and trainable params.
    Params,
    /// Those, reduced gradients and moments.
    ParamsAndOptimizer,
}

/// Where whole frozen units come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gather {
    /// From the parts of all ranks that share them.
    Shards,
    /// From the machine's one host copy, whole: no rank sends frozen bytes to another. They lie
    /// there whatever `offload` says, which then decides over what is trained.
    HostDirect,
}

/// All options, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long weights stay together.
    pub strategy: Strategy,
    /// Ranks of a group of `Hybrid`; 0: those of a machine.
    pub shard_ranks: u32,
    /// What lies in host memory.
    pub offload: Offload,
    /// Where frozen units come from.
    pub gather: Gather,
    /// Passes ahead of which weights are brought.
    pub prefetch: usize,
    /// Dtype in which gradients travel; unset: their own.
    pub reduce_dtype: Option<DType>,
    /// Whether saved activations wait for their backward pass in host memory.
    pub offload_activations: bool,
}

impl Settings {
    /// Reads checked options.
    ///
    /// # Errors
    /// `INVALID` for `shard_ranks` of a strategy that has no groups.
    pub fn read(options: &Options) -> Result<Self> {
        let settings = Settings {
            strategy: match options.text("strategy")?.as_str() {
                "shard_grad_op" => Strategy::ShardGradOp,
                "hybrid" => Strategy::Hybrid,
                _ => Strategy::FullShard,
            },
            shard_ranks: u32::try_from(options.count("shard_ranks")?).unwrap_or(u32::MAX),
            offload: match options.text("offload")?.as_str() {
                "params" => Offload::Params,
                "params+optimizer" => Offload::ParamsAndOptimizer,
                _ => Offload::Nothing,
            },
            gather: match options.text("gather")?.as_str() {
                "host-direct" => Gather::HostDirect,
                _ => Gather::Shards,
            },
            prefetch: options.count("prefetch")? as usize,
            reduce_dtype: DType::from_name(&options.text("reduce_dtype")?),
            offload_activations: options.flag("offload_activations")?,
        };
        if settings.shard_ranks > 0 && settings.strategy != Strategy::Hybrid {
            return Err(PluginError::invalid(format!(
                "shard_ranks = {} is the size of the groups of `strategy = \"hybrid\"`, found strategy {:?}: set that \
                 strategy, or leave shard_ranks out",
                settings.shard_ranks,
                options.text("strategy")?
            )));
        }
        Ok(settings)
    }

    /// The stream of what moves bytes: beside the one that computes, unless nothing is brought
    /// ahead.
    pub fn moves(&self) -> u32 {
        u32::from(self.prefetch > 0)
    }
}

/// What `host plan --auto` tries of the options: those that change no bit of the result.
pub const SEARCH: &str = concat!(
    r#"{"options": {"#,
    r#""strategy": {"full_shard": {"stage": "shard_weights"}, "#,
    r#""shard_grad_op": {"stage": "shard_state", "world": "ranks"}, "#,
    r#""hybrid": {"stage": "shard_weights", "world": "machines"}}, "#,
    r#""offload": {"none": {"world": "ranks"}, "params": {"stage": "offload_weights"}, "#,
    r#""params+optimizer": {"stage": "offload_weights"}}, "#,
    r#""gather": {"shards": {}, "host-direct": {"stage": "offload_weights", "world": "ranks"}}, "#,
    r#""offload_activations": {"false": {}, "#,
    r#""true": {"stage": "offload_activations", "after": "offload_weights"}}"#,
    r#"}}"#,
);

/// The options as they are declared.
pub const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "strategy",
        kind: OptionKind::TEXT,
        default: "\"full_shard\"",
        range: "full_shard | shard_grad_op | hybrid",
        doc: "full_shard: weights are together only around the passes that read them; shard_grad_op: through the step; \
              hybrid: cut inside groups of ranks, the same in each group",
    },
    OptionSpec {
        name: "shard_ranks",
        kind: OptionKind::INTEGER,
        default: "0",
        range: "0..",
        doc: "ranks of a group of hybrid; 0: those of a machine",
    },
    OptionSpec {
        name: "offload",
        kind: OptionKind::TEXT,
        default: "\"none\"",
        range: "none | params | params+optimizer",
        doc: "what lies in host memory between uses; params+optimizer: gradients, too, once they are reduced",
    },
    OptionSpec {
        name: "gather",
        kind: OptionKind::TEXT,
        default: "\"shards\"",
        range: "shards | host-direct",
        doc: "whole frozen units come from the parts of all ranks, or from the machine's one host copy, where they then lie \
              whatever offload says",
    },
    OptionSpec {
        name: "prefetch",
        kind: OptionKind::INTEGER,
        default: "1",
        range: "0..=64",
        doc: "units brought ahead of the one that is computed, beside the computing; 0: each right before it is computed",
    },
    OptionSpec {
        name: "reduce_dtype",
        kind: OptionKind::TEXT,
        default: "\"\"",
        range: "\"\" | f32 | bf16 | f64",
        doc: "dtype in which gradients travel; empty: their own",
    },
    OptionSpec {
        name: "offload_activations",
        kind: OptionKind::BOOL,
        default: "false",
        range: "",
        doc: "what a forward pass saves waits for its backward pass in host memory",
    },
];
