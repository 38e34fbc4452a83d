//! Two small models, their steps, and the ways to train them.
#![allow(dead_code)] // Each test takes what it needs.

pub mod formula;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use espalier_data::StepBatch;
use espalier_engine::executor::StatePart;
use espalier_interface::random::{Purpose, key, philox};
use espalier_tests::{Named, TeamRig, golden_path, micro_batch, step_of};
use espalier_trainer::Error;
use serde_json::json;
use tempfile::TempDir;

/// Steps after which params are compared.
const STEPS: usize = 10;

/// A model and its trained params.
#[derive(Clone)]
pub struct Model {
    pub name: &'static str,
    directory: PathBuf,
    plugins: &'static [&'static str],
    keys: Vec<(&'static str, String)>,
    vocab: u32,
    compute: &'static str,
    _place: Option<Arc<TempDir>>,
}

impl Model {
    /// Packed weights with adapters, where each layer has frozen and trainable params. And a fully
    /// trained model with shapes that no number of ranks divides, whose head is its embedding.
    pub fn all() -> [Model; 2] {
        let place = tempfile::tempdir().expect("a folder");
        let config = json!({
            "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu",
            "hidden_size": 40, "intermediate_size": 72, "num_hidden_layers": 3,
            "num_attention_heads": 5, "num_key_value_heads": 1, "vocab_size": 61,
            "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
            "tie_word_embeddings": true, "initializer_range": 0.1, "dtype": "float32",
            "use_sliding_window": false, "bos_token_id": 0, "eos_token_id": 1
        });
        let written = std::fs::write(place.path().join("config.json"), config.to_string());
        written.expect("room for a config");
        [
            Model {
                name: "adapters on packed weights",
                directory: golden_path("llama/tiny-trained"),
                plugins: &["nf4", "lora"],
                keys: vec![
                    ("adapter.lora.rank", "5".to_owned()),
                    ("adapter.lora.dropout", "0.2".to_owned()),
                    ("quantizer.nf4.block_size", "64".to_owned()),
                ],
                vocab: 512,
                compute: "\"f64\"",
                _place: None,
            },
            Model {
                name: "all of a tied model",
                directory: place.path().to_owned(),
                plugins: &[],
                keys: vec![("model.init", "\"random\"".to_owned())],
                vocab: 61,
                compute: "\"f64\"",
                _place: Some(Arc::new(place)),
            },
        ]
    }

    /// The same with the plugins of `plugins`.
    pub fn with_plugins(self, plugins: &'static [&'static str]) -> Model {
        Model { plugins, ..self }
    }

    /// The same with more config keys.
    pub fn with_keys(mut self, keys: &[(&'static str, &str)]) -> Model {
        let owned = keys.iter().map(|&(key, value)| (key, value.to_owned()));
        self.keys.extend(owned);
        self
    }

    /// The same computed in f32.
    pub fn in_f32(self) -> Model {
        Model {
            compute: "\"f32\"",
            ..self
        }
    }

    /// Steps for ranks with `rounds` micro-batches each; the last of several ranks has one fewer.
    pub fn steps(&self, world: u32, rounds: usize) -> Vec<StepBatch> {
        let count = rounds * world as usize - usize::from(world > 1);
        (0..STEPS as u64)
            .map(|step| self.step(step, count))
            .collect()
    }

    /// A step of micro-batches of one or two sequences of 3 to 9 tokens.
    fn step(&self, step: u64, count: usize) -> StepBatch {
        let mut sequence = 0;
        let mut micro_batches = Vec::new();
        for number in 0..count {
            let rows: Vec<Vec<i32>> = (0..1 + number % 2)
                .map(|_| {
                    sequence += 1;
                    self.row(step, sequence)
                })
                .collect();
            let mut micro = micro_batch(&rows, &rows);
            let first = sequence as i32 - rows.len() as i32;
            micro.sequences = (first..sequence as i32).collect();
            micro_batches.push(micro);
        }
        step_of(micro_batches)
    }

    fn row(&self, step: u64, sequence: u32) -> Vec<i32> {
        let word = |at| philox(key(7, Purpose::SYNTHETIC, step), [sequence, at, 0, 0])[0];
        let length = 3 + word(0) % 7;
        (1..=length)
            .map(|at| (word(at) % self.vocab) as i32)
            .collect()
    }

    /// Gradients of the first step, then params and optimizer state after all steps.
    pub fn run(&self, variant: &Variant, steps: &[StepBatch]) -> Outcome {
        let rig = self.rig(variant, steps[0].micro_batches.len());
        let loss = rig.loss_and_gradients(&steps[0]);
        let gradients = rig.gradients();
        let outcomes = rig.train(steps);
        assert!(
            (loss - outcomes[0].loss).abs() <= 1e-12 * loss,
            "{loss} and {} of the same step",
            outcomes[0].loss
        );
        Outcome {
            gradients,
            losses: outcomes.iter().map(|step| step.loss).collect(),
            norms: outcomes.iter().map(|step| step.grad_norm).collect(),
            values: rig.state(StatePart::Values),
            state: rig.optimizer_state(),
        }
    }

    /// The ranks of a variant, for steps with that many micro-batches.
    pub fn rig(&self, variant: &Variant, micro_batches: usize) -> TeamRig {
        self.try_rig(variant, micro_batches)
            .unwrap_or_else(|error| panic!("{}, {variant}: {error:?}", self.name))
    }

    /// Like [`Model::rig`], but loading can fail.
    pub fn try_rig(&self, variant: &Variant, micro_batches: usize) -> Result<TeamRig, Error> {
        let plugins: Vec<&str> = self
            .plugins
            .iter()
            .copied()
            .chain([variant.strategy.plugin()])
            .collect();
        let (plugins, ranks) = (format!("{plugins:?}"), variant.world.to_string());
        let batch = (2 * micro_batches).to_string();
        let own = variant.keys();
        let mut keys = vec![
            ("plugins", plugins.as_str()),
            ("run.ranks", ranks.as_str()),
            ("run.threads", "2"),
            ("model.compute", self.compute),
            ("data.max_seq_len", "16"),
            ("data.micro_batch", "2"),
            ("data.batch_size", batch.as_str()),
            ("optim.learning_rate", "1e-3"),
            ("optim.weight_decay", "0.01"),
        ];
        keys.extend(self.keys.iter().map(|(key, value)| (*key, value.as_str())));
        keys.extend(
            own.iter()
                .map(|(key, value)| (key.as_str(), value.as_str())),
        );
        TeamRig::try_new(&self.directory, &keys)
    }
}

/// The result of a run.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    pub gradients: Named,
    losses: Vec<f64>,
    norms: Vec<f64>,
    values: Named,
    state: Vec<Named>,
}

impl Outcome {
    /// The updated params, then each tensor of the optimizer's state, beside those of another run.
    pub fn parts_beside<'a>(&'a self, other: &'a Outcome) -> Vec<(String, &'a Named, &'a Named)> {
        assert_eq!(self.state.len(), other.state.len());
        let state = self.state.iter().zip(&other.state).enumerate();
        let state = state.map(|(index, (own, other))| (format!("state {index}"), own, other));
        let params = ("params".to_owned(), &self.values, &other.values);
        std::iter::once(params).chain(state).collect()
    }
}

/// A sharding strategy with the size of its groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    Single,
    Ddp,
    FullShard,
    ShardGradOp,
    Hybrid(u32),
}

impl Strategy {
    /// The strategies for a world.
    pub fn of(world: u32) -> Vec<Strategy> {
        let mut all = vec![Strategy::Ddp, Strategy::FullShard, Strategy::ShardGradOp];
        match world {
            4 => all.push(Strategy::Hybrid(2)),
            3 => all.push(Strategy::Hybrid(1)),
            _ => {}
        }
        all
    }

    /// Its plugin.
    pub fn plugin(self) -> &'static str {
        match self {
            Strategy::Single => "single",
            Strategy::Ddp => "ddp",
            _ => "fsdp",
        }
    }
}

/// A way to train on some ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    pub strategy: Strategy,
    pub world: u32,
    pub offload: &'static str,
    pub gather: &'static str,
    pub prefetch: u32,
}

impl Variant {
    /// One rank that holds everything.
    pub const SINGLE: Variant = Variant::of(Strategy::Single, 1);

    /// A strategy with its defaults.
    pub const fn of(strategy: Strategy, world: u32) -> Variant {
        Variant {
            strategy,
            world,
            offload: "none",
            gather: "shards",
            prefetch: 1,
        }
    }

    /// The options of its strategy.
    pub fn keys(&self) -> Vec<(String, String)> {
        let key = |name: &str, value: String| (format!("sharding.fsdp.{name}"), value);
        let strategy = match self.strategy {
            Strategy::Single | Strategy::Ddp => return Vec::new(),
            Strategy::FullShard => "full_shard",
            Strategy::ShardGradOp => "shard_grad_op",
            Strategy::Hybrid(_) => "hybrid",
        };
        let mut keys = vec![
            key("strategy", format!("{strategy:?}")),
            key("offload", format!("{:?}", self.offload)),
            key("gather", format!("{:?}", self.gather)),
            key("prefetch", self.prefetch.to_string()),
        ];
        if let Strategy::Hybrid(ranks) = self.strategy {
            keys.push(key("shard_ranks", ranks.to_string()));
        }
        keys
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} on {} ranks, offload {}, gather {}, prefetch {}",
            self.strategy, self.world, self.offload, self.gather, self.prefetch
        )
    }
}

/// A strategy with all its options.
pub fn variants(strategy: Strategy, world: u32) -> Vec<Variant> {
    if matches!(strategy, Strategy::Single | Strategy::Ddp) {
        return vec![Variant::of(strategy, world)];
    }
    let mut all = Vec::new();
    for offload in ["none", "params", "params+optimizer"] {
        for gather in ["shards", "host-direct"] {
            for prefetch in [0, 1, 2] {
                all.push(Variant {
                    strategy,
                    world,
                    offload,
                    gather,
                    prefetch,
                });
            }
        }
    }
    all
}
