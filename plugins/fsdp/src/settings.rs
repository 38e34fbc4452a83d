//! The options of `fsdp`.

use espalier_interface::{DType, OptionKind, OptionSpec, Options, PluginError, Result};

/// How long weights stay gathered, and over which ranks they are sharded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Sharded over all ranks, gathered only around the passes that read them.
    FullShard,
    /// Sharded over all ranks, gathered from their first pass of a step to their last.
    ShardGradOp,
    /// As `FullShard` within groups of ranks; every group holds all weights.
    Hybrid,
}

/// Data in host memory between uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// Nothing.
    Nothing,
    /// Frozen and trainable params.
    Params,
    /// The params, reduced gradients and moments.
    ParamsAndOptimizer,
}

/// The source of whole frozen units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gather {
    /// From the parts of all ranks that share them.
    Shards,
    /// From the machine's one host copy, whole: no rank sends frozen bytes to another. They are
    /// stored there with every `offload`, which then decides over trained data only.
    HostDirect,
}

/// All options, parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long weights stay gathered.
    pub strategy: Strategy,
    /// Ranks of a group of `Hybrid`; 0: those of a machine.
    pub shard_ranks: u32,
    /// Data in host memory.
    pub offload: Offload,
    /// The source of frozen units.
    pub gather: Gather,
    /// Passes ahead of which weights are gathered.
    pub prefetch: usize,
    /// Most micro-batches that a unit runs in turn each time its weights are gathered.
    pub micro_batches_per_fetch: u32,
    /// Dtype in which gradients are sent; unset: their own.
    pub reduce_dtype: Option<DType>,
    /// Whether saved activations wait for their backward pass in host memory.
    pub offload_activations: bool,
}

impl Settings {
    /// Reads checked options.
    ///
    /// # Errors
    /// `INVALID` for `shard_ranks` of a strategy that has no groups, and for several micro-batches
    /// a fetch of one that fetches once a step.
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
            micro_batches_per_fetch: u32::try_from(options.count("micro_batches_per_fetch")?)
                .unwrap_or(u32::MAX),
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
        if settings.micro_batches_per_fetch > 1 && settings.strategy == Strategy::ShardGradOp {
            return Err(PluginError::invalid(format!(
                "micro_batches_per_fetch = {} keeps the activations of so many micro-batches, so that units are fetched less \
                 often, and `strategy = \"shard_grad_op\"` fetches each once a step: leave micro_batches_per_fetch out, or \
                 set strategy = \"full_shard\"",
                settings.micro_batches_per_fetch
            )));
        }
        Ok(settings)
    }

    /// The stream that moves bytes: beside the compute stream, unless nothing is prefetched.
    pub fn moves(&self) -> u32 {
        u32::from(self.prefetch > 0)
    }
}

/// Options that `host plan --auto` varies: those that change no bit of the result.
pub const SEARCH: &str = concat!(
    r#"{"options": {"#,
    r#""strategy": {"full_shard": {"stage": "shard_weights"}, "#,
    r#""shard_grad_op": {"stage": "shard_state", "world": "ranks"}, "#,
    r#""hybrid": {"stage": "shard_weights", "world": "machines"}}, "#,
    r#""offload": {"none": {"world": "ranks"}, "params": {"stage": "offload_weights"}, "#,
    r#""params+optimizer": {"stage": "offload_weights"}}, "#,
    r#""gather": {"shards": {}, "host-direct": {"stage": "offload_weights", "world": "ranks"}}, "#,
    r#""offload_activations": {"false": {}, "#,
    r#""true": {"stage": "offload_activations", "after": "offload_weights"}}, "#,
    r#""prefetch": {"0": {}, "1": {}, "2": {}}, "#,
    r#""micro_batches_per_fetch": {"1": {}, "2": {}, "4": {}, "8": {}, "16": {}}, "#,
    r#""shard_ranks": {"0": {}, "2": {"world": "machines"}, "4": {"world": "machines"}, "8": {"world": "machines"}}"#,
    r#"}}"#,
);

/// The options as declared.
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
        doc: "data kept in host memory between uses; params+optimizer: gradients, too, once they are reduced",
    },
    OptionSpec {
        name: "gather",
        kind: OptionKind::TEXT,
        default: "\"shards\"",
        range: "shards | host-direct",
        doc: "source of gathered frozen units: the parts of all ranks, or one host copy for each machine, which then \
              holds them with every offload",
    },
    OptionSpec {
        name: "prefetch",
        kind: OptionKind::INTEGER,
        default: "1",
        range: "0..=64",
        doc: "units gathered ahead of the one that is computed, beside the computation; 0: each right before it is computed",
    },
    OptionSpec {
        name: "micro_batches_per_fetch",
        kind: OptionKind::INTEGER,
        default: "1",
        range: "1..=4096",
        doc: "most micro-batches of a step that run through a unit, one after the other, each time it is fetched and \
              gathered; the activations of all of them are kept",
    },
    OptionSpec {
        name: "reduce_dtype",
        kind: OptionKind::TEXT,
        default: "\"\"",
        range: "\"\" | f32 | bf16 | f64",
        doc: "dtype in which gradients are sent; empty: their own",
    },
    OptionSpec {
        name: "offload_activations",
        kind: OptionKind::BOOL,
        default: "false",
        range: "",
        doc: "what a forward pass saves waits for its backward pass in host memory",
    },
];
