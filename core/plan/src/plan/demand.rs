//! The demand on a plan: purpose, limits of micro-batches, generation, ranks.

use espalier_compile::params::Training;
use espalier_compile::program::CacheShape;
use espalier_system::failure::UsageError;
use espalier_system::world::World;

use crate::Error;
use crate::trained_weights::TrainedWeights;

/// Limits of every micro-batch of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Most packed tokens.
    pub max_tokens: u64,
    /// Most sequences.
    pub max_sequences: u64,
}

/// The purpose of a loaded model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To train it, or an adapter on it.
    Train,
    /// To compute losses. Nothing is trained, and the plan has no memory for training.
    Evaluate,
    /// To generate text. The plan has no memory for training either.
    Generate,
}

impl Purpose {
    /// The trained params, in a run with or without an adapter; `trained` are the weights of the
    /// model that are trained without one.
    ///
    /// # Errors
    /// [`Error::Usage`] where an adapter is trained, and weights of the model are named.
    pub(super) fn training(
        self,
        has_adapter: bool,
        trained: &TrainedWeights,
    ) -> Result<Training, Error> {
        match (self, has_adapter, trained.are_all()) {
            (Purpose::Evaluate | Purpose::Generate, ..) => Ok(Training::Nothing),
            (Purpose::Train, true, true) => Ok(Training::Adapter),
            (Purpose::Train, false, true) => Ok(Training::Full),
            (Purpose::Train, false, false) => Ok(Training::Part),
            (Purpose::Train, true, false) => Err(Error::Usage(UsageError {
                message: "`model.train_only` names weights of the model, and an adapter was \
                          chosen, which trains its own params alone"
                    .to_owned(),
                next_step: "leave one of them out".to_owned(),
            })),
        }
    }
}

/// Limits of generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation {
    /// Sequences at once, and most tokens of each, prompt included.
    pub cache: CacheShape,
    /// Most tokens of one forward pass; longer prompts are processed in parts.
    pub max_tokens: u64,
}

impl Generation {
    /// The limits of each of `ranks` ranks that share the sequences.
    pub fn of_rank(self, ranks: u32) -> Self {
        let slots = self.cache.slots.div_ceil(u64::from(ranks));
        Generation {
            cache: CacheShape {
                slots,
                ..self.cache
            },
            ..self
        }
    }
}

/// Host memory, as the operating system reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostBytes {
    /// Bytes that the program itself holds.
    pub program: u64,
    /// Bytes that a run can allocate; `None` where unknown.
    pub available: Option<u64>,
}

/// The demand on a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The purpose of the model.
    pub purpose: Purpose,
    /// The largest micro-batch of training and evaluation.
    pub limits: BatchLimits,
    /// Limits of generation, alone or beside training or evaluation.
    pub generation: Option<Generation>,
    /// All ranks, and those of this process.
    pub world: World,
    /// The bytes of each group of the collective of devices that moves the weights and gradients of
    /// the ranks; `None` where the host's collective moves them.
    pub device_group_bytes: Option<u64>,
    /// Most micro-batches of a rank in a step; 0 where unknown.
    pub micro_batches: u64,
}

impl Demand {
    /// Most tokens and most sequences of any forward pass.
    pub fn batch(&self) -> [u64; 2] {
        let BatchLimits {
            max_tokens,
            max_sequences,
        } = self.limits;
        match self.generation {
            None => [max_tokens, max_sequences],
            Some(generation) => [
                max_tokens.max(generation.max_tokens),
                max_sequences.max(generation.cache.slots),
            ],
        }
    }
}
