//! An optimizer as data: the op of its update, the scalars of a launch, and the state that it keeps
//! of each param. Storage, plan, mover, checkpoint and update read it and know no optimizer by
//! name.
//!
//! The op updates a range of `n` elements of a unit's trainable run: gradient `[n]` -> param `[n]`,
//! then each state tensor, updated. A state tensor has an element for each element of the param, or
//! one for each block of elements. Blocks are counted from a param's first element. No two params
//! and no two ranks share a block: params begin, and runs are cut among ranks, at multiples of
//! [`OptimizerSpec::granule`].
//!
//! An optimizer may leave params with few elements to another one ([`SmallParams`]). Then a run has
//! two kinds of state, and each param one of them, by its own elements and not by a rank's part.

mod shipped;

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::DType;
use crate::op::definition;

/// Params begin at multiples of this many elements: at least 64 bytes in every dtype.
const STEP: u64 = 64;
/// Ranges of state begin at multiples of this many bytes.
const ALIGNED: u64 = 64;

/// Scalars of a launch that are the step's own, by name; others are settings of the optimizer.
pub mod scalar {
    /// The group's learning rate of this step.
    pub const LEARNING_RATE: &str = "learning_rate";
    /// The group's weight decay.
    pub const WEIGHT_DECAY: &str = "weight_decay";
    /// Updates so far, this one included.
    pub const STEP: &str = "step";
    /// Factor of the gradient, from clipping.
    pub const FACTOR: &str = "factor";
    /// Low half of the run's seed, for stochastic rounding.
    pub const SEED_LOW: &str = "seed_low";
    /// Its high half.
    pub const SEED_HIGH: &str = "seed_high";
    /// Low word of the hash of the param's name ([`crate::stochastic::name_words`]).
    pub const NAME_LOW: &str = "name_low";
    /// Its high word.
    pub const NAME_HIGH: &str = "name_high";
    /// Index in the param of the launch's first element.
    pub const FIRST: &str = "first";
}

/// How a step rounds a param to its dtype.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rounding {
    /// To the nearest number, ties to even.
    #[default]
    Nearest,
    /// Up or down at random, so that the mean is kept ([`crate::stochastic`]).
    Stochastic,
}

/// The dtypes of a run's update, and how its params are rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Of arithmetic, and of state that is none of `state`.
    pub reduce: DType,
    /// Of gradients.
    pub gradients: DType,
    /// Of state tensors with an element for each of the param.
    pub state: DType,
    /// How params are rounded.
    pub rounding: Rounding,
}

impl Numbers {
    /// Gradients and state in the dtype of arithmetic, params rounded to nearest.
    pub fn all(reduce: DType) -> Self {
        Numbers {
            reduce,
            gradients: reduce,
            state: reduce,
            rounding: Rounding::Nearest,
        }
    }

    /// The version of an update's op that has them.
    fn op_version(self) -> u32 {
        match self.rounding {
            Rounding::Stochastic => 3,
            Rounding::Nearest if self == Numbers::all(self.reduce) => 1,
            Rounding::Nearest => 2,
        }
    }
}

/// An optimizer: how a step changes trainable params, and what it keeps from step to step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OptimizerSpec {
    /// Its name, as in `optim.name`.
    pub name: String,
    /// The op of its update.
    pub op: String,
    /// The version of the op; [`OptimizerSpec::of_run`] chooses it.
    #[serde(default = "first_version")]
    pub version: u32,
    /// The scalars of a launch by name, in the op's order: see [`scalar`], and those of `settings`.
    pub scalars: Vec<String>,
    /// The keys of `[optim]` that only some optimizers have, and this one has.
    pub settings: Vec<Setting>,
    /// What it keeps of each param, in the order of the op's operands.
    pub state: Vec<StateTensor>,
    /// The optimizer of small params; none where this one updates all.
    #[serde(default)]
    pub small: Option<Box<SmallParams>>,
}

/// The version of an op where none is stated.
fn first_version() -> u32 {
    1
}

/// The params that an optimizer leaves to another one, because they have few elements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmallParams {
    /// The scalar that says how many elements: params with fewer are small.
    pub below: String,
    /// Its number; [`OptimizerSpec::of_run`] sets it.
    pub elements: u64,
    /// Their optimizer. It leaves none to a third one.
    pub optimizer: OptimizerSpec,
}

/// Which optimizer of a run updates a param.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ParamSize {
    /// The run's own.
    Large,
    /// That of small params.
    Small,
}

/// A key of `[optim]` that gives scalars.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The key: a number, a list of numbers, or `true` and `false` for 1 and 0. Unset is 0.
    pub key: String,
    /// The scalars that it gives, one for each number.
    pub scalars: Vec<String>,
    /// The range of each number.
    pub bounds: Bounds,
    /// Another key that must not be 0 where this one is not.
    pub needs: Option<String>,
}

/// The range of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bounds {
    /// Above 0.
    Positive,
    /// A whole number.
    Count,
    /// From 0 to below 1.
    Fraction,
    /// 0 or 1.
    Flag,
}

impl Bounds {
    /// Whether `number` is within.
    pub fn hold(self, number: f64) -> bool {
        match self {
            Bounds::Positive => number > 0.0,
            Bounds::Count => number >= 0.0 && number.fract() == 0.0,
            Bounds::Fraction => (0.0..1.0).contains(&number),
            Bounds::Flag => number == 0.0 || number == 1.0,
        }
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Bounds::Positive => "above 0",
            Bounds::Count => "a whole number, 0 or more",
            Bounds::Fraction => "from 0 to below 1",
            Bounds::Flag => "true or false",
        })
    }
}

/// A tensor that an optimizer keeps of each param.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateTensor {
    /// Its name. A checkpoint stores it as `PARAM.NAME`.
    pub name: String,
    /// Its dtype; [`DType::REDUCE`] is replaced by [`OptimizerSpec::of_run`].
    pub dtype: DType,
    /// Its elements.
    pub extent: Extent,
    /// The scalar without which it is not kept: where that is 0.
    pub kept_with: Option<String>,
}

/// The elements of a state tensor, as a function of those of its param.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// One for each element.
    PerElement,
    /// One for each block of this many elements; the last block of a param may be shorter.
    PerBlock(u64),
}

impl StateTensor {
    /// A tensor in the dtype of gradients with an element for each element of the param.
    pub fn per_element(name: &str) -> Self {
        StateTensor {
            name: name.to_owned(),
            dtype: DType::REDUCE,
            extent: Extent::PerElement,
            kept_with: None,
        }
    }

    /// Its elements for `elements` of a param, counted from a block's first.
    pub fn elements(&self, elements: u64) -> u64 {
        match self.extent {
            Extent::PerElement => elements,
            Extent::PerBlock(block) => elements.div_ceil(block),
        }
    }

    /// Its elements for a range of a param. The range begins at a block's first element.
    pub fn range(&self, of: &Range<u64>) -> Range<u64> {
        self.elements(of.start)..self.elements(of.end)
    }

    /// The shape in which a checkpoint stores it for a param of `shape`.
    pub fn shape(&self, shape: &[u64]) -> Vec<u64> {
        match self.extent {
            Extent::PerElement => shape.to_vec(),
            Extent::PerBlock(_) => vec![self.elements(shape.iter().product())],
        }
    }

    /// Its bytes for `elements` of a param.
    pub fn bytes(&self, elements: u64) -> u64 {
        self.elements(elements) * self.dtype.bytes()
    }

    /// Elements of a param for each of its own.
    fn block(&self) -> u64 {
        match self.extent {
            Extent::PerElement => 1,
            Extent::PerBlock(block) => block,
        }
    }

    /// Elements of a param at whose multiples its elements begin at a multiple of 64 bytes.
    fn granule(&self) -> u64 {
        let each = self.dtype.bytes().max(1);
        self.block() * least_common_multiple(each, ALIGNED) / each
    }
}

impl OptimizerSpec {
    /// The shipped optimizers.
    pub fn shipped() -> Vec<OptimizerSpec> {
        shipped::all()
    }

    /// The shipped optimizer called `name`.
    pub fn named(name: &str) -> Option<OptimizerSpec> {
        let mut shipped = Self::shipped().into_iter();
        shipped.find(|spec| spec.name == name)
    }

    /// The optimizer of a run: `value` gives the scalars of its settings, `numbers` its dtypes and
    /// its rounding, which decide the version of the op. State that the settings leave unused is
    /// left out, and so is the optimizer of small params where no param is small.
    pub fn of_run(mut self, value: &dyn Fn(&str) -> f64, numbers: Numbers) -> OptimizerSpec {
        self.version = numbers.op_version();
        if let Some(definition) = definition(&self.op, self.version) {
            let scalars = definition.scalars.iter();
            self.scalars = scalars.map(|&name| name.to_owned()).collect();
        }
        self.state.retain(|tensor| {
            let mut with = tensor.kept_with.iter();
            with.all(|scalar| value(scalar) != 0.0)
        });
        for tensor in &mut self.state {
            tensor.dtype = match (tensor.dtype, tensor.extent) {
                (DType::REDUCE, Extent::PerElement) => numbers.state,
                (DType::REDUCE, Extent::PerBlock(_)) => numbers.reduce,
                (concrete, _) => concrete,
            };
        }
        let small = self.small.take().map(|small| {
            Box::new(SmallParams {
                elements: value(&small.below) as u64,
                optimizer: small.optimizer.of_run(value, numbers),
                below: small.below,
            })
        });
        self.small = small.filter(|small| small.elements > 0);
        self
    }

    /// Whether a launch covers one param alone, whose name and elements it depends on.
    pub fn updates_params_apart(&self) -> bool {
        let mut scalars = self.scalars.iter();
        scalars.any(|name| name == scalar::NAME_LOW)
    }

    /// Which optimizer updates a param of `elements` elements.
    pub fn size_of(&self, elements: u64) -> ParamSize {
        match &self.small {
            Some(small) if elements < small.elements => ParamSize::Small,
            _ => ParamSize::Large,
        }
    }

    /// The optimizer of params of a size.
    pub fn of_size(&self, size: ParamSize) -> &OptimizerSpec {
        match (&self.small, size) {
            (Some(small), ParamSize::Small) => &small.optimizer,
            _ => self,
        }
    }

    /// All state tensors of a run by their index, each with the size of the params that have it.
    pub fn tensors(&self) -> Vec<(ParamSize, &StateTensor)> {
        let small = self.small.iter().flat_map(|small| &small.optimizer.state);
        let large = self.state.iter().map(|tensor| (ParamSize::Large, tensor));
        large
            .chain(small.map(|tensor| (ParamSize::Small, tensor)))
            .collect()
    }

    /// The indices of the state tensors of params of a size.
    pub fn tensors_of(&self, size: ParamSize) -> Range<usize> {
        match size {
            ParamSize::Large => 0..self.state.len(),
            ParamSize::Small => self.state.len()..self.tensors().len(),
        }
    }

    /// Bytes of its own state of `elements` of a trainable run.
    pub fn state_bytes(&self, elements: u64) -> u64 {
        let state = self.state.iter();
        state.map(|tensor| tensor.bytes(elements)).sum()
    }

    /// Elements at whose multiples its params begin and runs are cut: a multiple of 64 and of every
    /// block, where each state tensor, also of small params, has a multiple of 64 bytes.
    pub fn granule(&self) -> u64 {
        let tensors = self.tensors().into_iter();
        let granules = tensors.map(|(_, tensor)| tensor.granule());
        granules.fold(STEP, least_common_multiple)
    }

    /// Elements at whose multiples the blocks of all its state tensors begin.
    pub fn block(&self) -> u64 {
        let tensors = self.state.iter().map(StateTensor::block);
        tensors.fold(1, least_common_multiple)
    }
}

fn least_common_multiple(a: u64, b: u64) -> u64 {
    let (mut divisor, mut rest) = (a, b);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    a / divisor * b
}

#[cfg(test)]
mod tests;
