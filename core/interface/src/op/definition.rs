//! An op as data: its operands, attributes and scalars by name, the types of its outputs, its cost.

mod call;
mod cost;

use std::ops::RangeInclusive;

use crate::graph::ValueType;
use crate::{OpId, PluginError, Result};

pub use call::{OpCall, OperandType, ParamType};
pub(in crate::op) use call::{fixed, gradient_dtype, per_token, reduced, rows};
pub use cost::{OpFlops, OpTraffic, operand_traffic};

/// The definition of an op: all that host and backends have to agree on but its arithmetic.
#[derive(Debug)]
pub struct OpDefinition {
    /// Name.
    pub name: &'static str,
    /// Version.
    pub version: u32,
    /// Names of the values read, in order.
    pub inputs: &'static [&'static str],
    /// Names of those that follow them where they are there.
    pub optional_inputs: &'static [&'static str],
    /// Params read, in order; the optional ones come last.
    pub params: &'static [ParamDefinition],
    /// Values written, in order; the optional ones come last.
    pub outputs: &'static [OutputDefinition],
    /// Attributes.
    pub attributes: &'static [AttributeDefinition],
    /// Names of the numbers given at launch, in order.
    pub scalars: &'static [&'static str],
    /// Checks inputs, params and attributes, and gives the types of the outputs. What they leave
    /// open, such as the dtype of a cast, it takes from the outputs as stated.
    pub infer: fn(&OpCall<'_>) -> Result<Vec<ValueType>>,
    /// Floating-point operations of its matrix products.
    pub flops: fn(&OpCall<'_>) -> OpFlops,
    /// Bytes that a launch reads and writes.
    pub traffic: fn(&OpCall<'_>) -> OpTraffic,
    /// Whether its outputs are saved under selective recompute, because they are costly to compute
    /// again.
    pub kept_by_selective_recompute: bool,
    /// Whether its outputs are computed again under every recompute where a layer's own weights are
    /// trained, because its gradient reads the same inputs and one pass over them is short beside
    /// the products of such a layer.
    pub recomputed_in_full_training: bool,
    /// What it does where nothing is trained.
    pub in_evaluation: InEvaluation,
    /// Whether it is a primitive, of which other ops are made where a backend lacks them.
    pub primitive: bool,
    /// Whether it stands for calls of several ops. The core makes it of them where a backend lists
    /// it; it stands in no graph of a plugin.
    pub fused: bool,
    /// Index of the input whose memory the first output may take, whatever the backend.
    pub in_place: Option<usize>,
}

/// What an op does where a model is evaluated and not trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InEvaluation {
    /// The same as in training.
    Same,
    /// Its first output is its first input.
    Copies,
}

/// Whether a part of an op may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It has to be there.
    Needed,
    /// It may be left out.
    Optional,
}

/// A param of an op.
#[derive(Clone, Copy, Debug)]
pub struct ParamDefinition {
    /// Name.
    pub name: &'static str,
    /// Its allowed layouts in memory.
    pub storage: Storage,
    /// Whether it may be left out.
    pub presence: Presence,
}

/// The layouts in memory that a param may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// Dense only.
    Dense,
    /// Dense or packed in any format.
    AnyFormat,
}

/// An output of an op.
#[derive(Clone, Copy, Debug)]
pub struct OutputDefinition {
    /// Name.
    pub name: &'static str,
    /// How a launch changes it.
    pub writing: Writing,
    /// Whether it may be left out.
    pub presence: Presence,
}

/// How a launch changes an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writing {
    /// It is written whole; what it held before does not matter.
    Whole,
    /// The result is added to it, in the reduce dtype or bf16: the gradient of a param.
    Accumulated,
    /// It is read and changed.
    Updated,
}

/// An attribute of an op.
#[derive(Clone, Copy, Debug)]
pub struct AttributeDefinition {
    /// Name.
    pub name: &'static str,
    /// Type of its value.
    pub kind: AttributeKind,
    /// Whether it may be left out or null.
    pub presence: Presence,
}

/// The type of an attribute's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributeKind {
    /// `true` or `false`; an absent one is false.
    Flag,
    /// A natural number of at least 1.
    Count,
    /// A number.
    Number,
    /// A list of numbers.
    Numbers,
    /// A text.
    Text,
}

impl OpDefinition {
    /// Version 1 of the op `name`, without operands, attributes and scalars.
    pub const fn new(name: &'static str, infer: fn(&OpCall<'_>) -> Result<Vec<ValueType>>) -> Self {
        OpDefinition {
            name,
            version: 1,
            inputs: &[],
            optional_inputs: &[],
            params: &[],
            outputs: &[],
            attributes: &[],
            scalars: &[],
            infer,
            flops: |_| OpFlops::NONE,
            traffic: operand_traffic,
            kept_by_selective_recompute: false,
            recomputed_in_full_training: false,
            in_evaluation: InEvaluation::Same,
            primitive: false,
            fused: false,
            in_place: None,
        }
    }

    /// Version `version` of the fused op `name`, without operands, attributes and scalars.
    pub const fn fused(
        name: &'static str,
        version: u32,
        infer: fn(&OpCall<'_>) -> Result<Vec<ValueType>>,
    ) -> Self {
        OpDefinition {
            version,
            fused: true,
            ..OpDefinition::new(name, infer)
        }
    }

    /// Version 1 of the primitive `name`, without operands, attributes and scalars.
    pub const fn primitive(
        name: &'static str,
        infer: fn(&OpCall<'_>) -> Result<Vec<ValueType>>,
    ) -> Self {
        OpDefinition {
            primitive: true,
            ..OpDefinition::new(name, infer)
        }
    }

    /// Its name and version.
    pub fn id(&self) -> OpId {
        OpId {
            name: self.name.to_owned(),
            version: self.version,
        }
    }

    /// The name of input `index`.
    pub fn input_name(&self, index: usize) -> &'static str {
        let mut names = self.inputs.iter().chain(self.optional_inputs);
        names.nth(index).copied().unwrap_or("?")
    }

    /// Index of the scalar `name` among those of a launch.
    pub fn scalar(&self, name: &str) -> Option<usize> {
        self.scalars.iter().position(|known| *known == name)
    }

    /// The scalars of a launch in the op's order, each as `value` gives it by name.
    ///
    /// # Errors
    /// `UNSUPPORTED`, naming the scalar for which `value` has nothing.
    pub fn scalars_by(&self, value: impl Fn(&str) -> Option<f64>) -> Result<Vec<f64>> {
        let numbers = self.scalars.iter().map(|name| {
            value(name).ok_or_else(|| {
                PluginError::unsupported(format!(
                    "op `{}` takes the scalar `{name}` at launch, for which there is no value here",
                    self.name
                ))
            })
        });
        numbers.collect()
    }

    /// How many inputs, params and outputs a use of it may have.
    pub fn operands(&self) -> [RangeInclusive<usize>; 3] {
        let needed = |of: &mut dyn Iterator<Item = Presence>| {
            of.filter(|presence| *presence == Presence::Needed).count()
        };
        let params = needed(&mut self.params.iter().map(|param| param.presence));
        let outputs = needed(&mut self.outputs.iter().map(|output| output.presence));
        [
            self.inputs.len()..=self.inputs.len() + self.optional_inputs.len(),
            params..=self.params.len(),
            outputs..=self.outputs.len(),
        ]
    }

    /// True where a launch adds to an output or changes one: such an op is in no graph.
    pub fn changes_its_outputs(&self) -> bool {
        let mut outputs = self.outputs.iter();
        outputs.any(|output| output.writing != Writing::Whole)
    }
}

impl OutputDefinition {
    /// The same output, which may be left out.
    pub const fn optional(self) -> Self {
        OutputDefinition {
            presence: Presence::Optional,
            ..self
        }
    }
}

impl ParamDefinition {
    /// The same param, which may be left out.
    pub const fn optional(self) -> Self {
        ParamDefinition {
            presence: Presence::Optional,
            ..self
        }
    }
}

/// A dense param.
pub const fn dense(name: &'static str) -> ParamDefinition {
    ParamDefinition {
        name,
        storage: Storage::Dense,
        presence: Presence::Needed,
    }
}

/// A param in any format.
pub const fn in_any_format(name: &'static str) -> ParamDefinition {
    ParamDefinition {
        name,
        storage: Storage::AnyFormat,
        presence: Presence::Needed,
    }
}

/// An output that is written whole.
pub const fn written(name: &'static str) -> OutputDefinition {
    OutputDefinition {
        name,
        writing: Writing::Whole,
        presence: Presence::Needed,
    }
}

/// An output that the result is added to.
pub const fn accumulated(name: &'static str) -> OutputDefinition {
    OutputDefinition {
        name,
        writing: Writing::Accumulated,
        presence: Presence::Needed,
    }
}

/// An output that is read and changed.
pub const fn updated(name: &'static str) -> OutputDefinition {
    OutputDefinition {
        name,
        writing: Writing::Updated,
        presence: Presence::Needed,
    }
}

/// An attribute that has to be set.
pub const fn needed(name: &'static str, kind: AttributeKind) -> AttributeDefinition {
    AttributeDefinition {
        name,
        kind,
        presence: Presence::Needed,
    }
}

/// An attribute that may be left out or null.
pub const fn optional(name: &'static str, kind: AttributeKind) -> AttributeDefinition {
    AttributeDefinition {
        name,
        kind,
        presence: Presence::Optional,
    }
}
