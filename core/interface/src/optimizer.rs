//! An optimizer as data: the op of its update, the scalars of a launch, and the state that it keeps
//! of each param. Storage, plan, mover, checkpoint and update read it and know no optimizer by
//! name.
//!
//! The op updates a range of `n` elements of a unit's trainable run: gradient `[n]` -> param `[n]`,
//! then each state tensor, updated. A state tensor has an element for each element of the param, or
//! one for each block of elements. Blocks are counted from a param's first element. No two params
//! and no two ranks share a block: params begin, and runs are cut among ranks, at multiples of
//! [`OptimizerSpec::granule`].

mod shipped;

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::DType;

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
}

/// An optimizer: how a step changes trainable params, and what it keeps from step to step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OptimizerSpec {
    /// Its name, as in `optim.name`.
    pub name: String,
    /// The op of its update.
    pub op: String,
    /// The scalars of a launch by name, in the op's order: see [`scalar`], and those of `settings`.
    pub scalars: Vec<String>,
    /// The keys of `[optim]` that only some optimizers have, and this one has.
    pub settings: Vec<Setting>,
    /// What it keeps of each param, in the order of the op's operands.
    pub state: Vec<StateTensor>,
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
            Bounds::Fraction => (0.0..1.0).contains(&number),
            Bounds::Flag => number == 0.0 || number == 1.0,
        }
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Bounds::Positive => "above 0",
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
    /// Its dtype; [`DType::REDUCE`] is resolved by [`OptimizerSpec::of_run`].
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

    /// Elements of a param at whose multiples its elements begin at a multiple of 64 bytes.
    fn granule(&self) -> u64 {
        let block = match self.extent {
            Extent::PerElement => 1,
            Extent::PerBlock(block) => block,
        };
        let each = self.dtype.bytes().max(1);
        block * least_common_multiple(each, ALIGNED) / each
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

    /// The optimizer of a run: `value` gives the scalars of its settings, and `resolve` the run's
    /// dtypes. State that the settings leave unused is left out.
    pub fn of_run(
        mut self,
        value: &dyn Fn(&str) -> f64,
        resolve: &dyn Fn(DType) -> DType,
    ) -> OptimizerSpec {
        self.state.retain(|tensor| {
            let mut with = tensor.kept_with.iter();
            with.all(|scalar| value(scalar) != 0.0)
        });
        for tensor in &mut self.state {
            tensor.dtype = resolve(tensor.dtype);
        }
        self
    }

    /// Bytes of the state of `elements` of a trainable run.
    pub fn state_bytes(&self, elements: u64) -> u64 {
        let state = self.state.iter();
        state.map(|tensor| tensor.bytes(elements)).sum()
    }

    /// Elements at whose multiples params begin and runs are cut: a multiple of 64 and of every
    /// block, where each state tensor has a multiple of 64 bytes.
    pub fn granule(&self) -> u64 {
        let tensors = self.state.iter().map(StateTensor::granule);
        tensors.fold(STEP, least_common_multiple)
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
mod tests {
    use super::*;

    /// AdamW with moments of 8 bits and a scale for each block of `block` elements.
    fn blockwise(block: u64) -> OptimizerSpec {
        let codes = |name: &str| StateTensor {
            dtype: DType::U8,
            ..StateTensor::per_element(name)
        };
        let scales = |name: &str| StateTensor {
            extent: Extent::PerBlock(block),
            ..StateTensor::per_element(name)
        };
        OptimizerSpec {
            state: vec![
                codes("first_moment"),
                scales("first_absmax"),
                codes("second_moment"),
                scales("second_absmax"),
            ],
            ..OptimizerSpec::default()
        }
        .of_run(&|_| 0.0, &|dtype| match dtype {
            DType::REDUCE => DType::F32,
            concrete => concrete,
        })
    }

    #[test]
    fn adamw_keeps_two_numbers_of_each_element() {
        let adamw = OptimizerSpec::named("adamw").expect("shipped");
        let adamw = adamw.of_run(&|_| 0.5, &|_| DType::F32);
        let names: Vec<&str> = adamw.state.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["first_moment", "second_moment"]);
        assert_eq!((adamw.state_bytes(640), adamw.granule()), (640 * 8, 64));
    }

    #[test]
    fn blocks_are_shared_by_no_params_and_no_ranks() {
        let spec = blockwise(256);
        // 16 scales are 64 bytes.
        assert_eq!((spec.granule(), blockwise(100).granule()), (4096, 1600));
        assert_eq!(spec.state_bytes(4096), 2 * (4096 + 16 * 4));
        let scales = &spec.state[1];
        assert_eq!(scales.range(&(256..600)), 1..3);
        assert_eq!((scales.shape(&[3, 100]), scales.elements(0)), (vec![2], 0));
        assert_eq!(spec.state[0].shape(&[3, 100]), [3, 100]);
    }

    #[test]
    fn state_without_its_scalar_is_not_kept() {
        let mut spec = blockwise(64);
        spec.state[0].kept_with = Some("momentum".to_owned());
        let kept = |momentum| {
            let spec = spec.clone().of_run(&|_| momentum, &|dtype| dtype);
            spec.state.len()
        };
        assert_eq!((kept(0.9), kept(0.0)), (4, 3));
    }

    #[test]
    fn every_scalar_is_the_steps_or_a_settings() {
        let own = [
            scalar::LEARNING_RATE,
            scalar::WEIGHT_DECAY,
            scalar::STEP,
            scalar::FACTOR,
        ];
        for spec in OptimizerSpec::shipped() {
            let settings = spec.settings.iter().flat_map(|setting| &setting.scalars);
            let known: Vec<&str> = own
                .into_iter()
                .chain(settings.map(String::as_str))
                .collect();
            for name in &spec.scalars {
                assert!(known.contains(&name.as_str()), "{}: `{name}`", spec.name);
            }
        }
    }
}
