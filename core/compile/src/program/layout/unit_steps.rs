//! A unit's calls -> launches, with places in working memory for the values that only it uses.

use std::collections::HashMap;

use espalier_interface::graph::{Dim, ValueId};
use espalier_interface::op::{self, InEvaluation};
use espalier_interface::{KernelRequest, Operand, ParamOperand, PluginError, Result};

use crate::arena::{Lifetime, pack};
use crate::grad::Target;
use crate::params::{Dtypes, Param};
use crate::program::draft::{Call, Draft};
use crate::program::value_location::ValueLocation;
use crate::program::{KernelCall, Limits, OperandPlace, Scalar};
use crate::splice::SITE_SCALAR;

/// What the steps of a unit are made of.
pub(super) struct UnitSteps<'a> {
    pub draft: &'a Draft,
    pub params: &'a [Param],
    pub dtypes: Dtypes,
    /// The run's limits, with the tokens of one launch of this unit.
    pub limits: Limits,
    /// Values that have a place already.
    pub fixed: &'a HashMap<ValueId, ValueLocation>,
    /// First byte of the arena's working memory.
    pub work_begin: u64,
}

/// The steps of a sequence of calls.
pub(super) struct PlacedSteps {
    pub steps: Vec<KernelCall>,
    /// Bytes of working memory that they need.
    pub work_bytes: u64,
    /// The place of each value.
    pub places: HashMap<ValueId, ValueLocation>,
}

impl UnitSteps<'_> {
    /// The steps of `calls`, of which the first `forward` are those of the forward pass: then the
    /// unit's outputs are read, and the backward pass may write over them.
    ///
    /// # Errors
    /// `INVALID` for a value whose size is no linear function of the micro-batch; `UNSUPPORTED` for
    /// an op that takes a scalar which a step does not have.
    pub fn of(&self, calls: &[Call<'_>], forward: usize) -> Result<PlacedSteps> {
        let mut lives = self.lives(calls);
        let homes = self.homes(calls, forward, &mut lives)?;
        let mut order: Vec<ValueId> = lives.keys().copied().collect();
        order.sort_unstable();
        let mut lifetimes = Vec::with_capacity(order.len());
        for value in &order {
            let extent = self.draft.extent(*value, self.dtypes)?;
            let bytes = extent.bytes(self.limits.max_tokens, self.limits.max_sequences);
            let (first, last) = lives[value];
            lifetimes.push(Lifetime { bytes, first, last });
        }
        let (offsets, work_bytes) = pack(&lifetimes);
        let mut places = self.fixed.clone();
        for (&value, offset) in order.iter().zip(offsets) {
            let extent = self.draft.extent(value, self.dtypes)?;
            places.insert(
                value,
                ValueLocation::in_arena(self.work_begin + offset, extent),
            );
        }
        for (value, home) in homes {
            places.insert(value, places[&home]);
        }
        let steps = calls.iter().map(|call| self.step(call, &places));
        Ok(PlacedSteps {
            steps: steps.collect::<Result<_>>()?,
            work_bytes,
            places,
        })
    }

    /// For each value without a place, the first and the last of `calls` that uses it.
    fn lives(&self, calls: &[Call<'_>]) -> HashMap<ValueId, (usize, usize)> {
        let mut lives: HashMap<ValueId, (usize, usize)> = HashMap::new();
        for (at, call) in calls.iter().enumerate() {
            let made = call.outputs.iter().filter_map(|target| match target {
                Target::Value(value) => Some(value),
                Target::Gradient(_) => None,
            });
            for &value in call.inputs.iter().chain(made) {
                if !self.fixed.contains_key(&value) {
                    lives.entry(value).or_insert((at, at)).1 = at;
                }
            }
        }
        lives
    }

    /// For each value that takes the memory of another, that other: the output of an op that may
    /// write over an input which nothing reads later. Their `lives` become one.
    fn homes(
        &self,
        calls: &[Call<'_>],
        forward: usize,
        lives: &mut HashMap<ValueId, (usize, usize)>,
    ) -> Result<Vec<(ValueId, ValueId)>> {
        let mut homes: HashMap<ValueId, ValueId> = HashMap::new();
        for (at, call) in calls.iter().enumerate() {
            let definition = op::definition(call.op, call.version);
            let index = definition.and_then(|op| op.in_place);
            let input = index.and_then(|index| call.inputs.get(index));
            let (Some(&input), Some(&Target::Value(output))) = (input, call.outputs.first()) else {
                continue;
            };
            let home = homes.get(&input).copied().unwrap_or(input);
            let (Some(&(first, last)), Some(&life)) = (lives.get(&home), lives.get(&output)) else {
                continue;
            };
            let once = call.inputs.iter().filter(|one| **one == input).count() == 1;
            let mut outputs = self.draft.unit.graph.outputs.iter();
            let is_wanted = at < forward && outputs.any(|wanted| wanted.value == input);
            let extent = |value| self.draft.extent(value, self.dtypes);
            if last == at && life.0 == at && once && !is_wanted && extent(input)? == extent(output)?
            {
                lives.insert(home, (first, life.1));
                lives.remove(&output);
                homes.insert(output, home);
            }
        }
        Ok(homes.into_iter().collect())
    }

    fn step(
        &self,
        call: &Call<'_>,
        places: &HashMap<ValueId, ValueLocation>,
    ) -> Result<KernelCall> {
        let inputs = call
            .inputs
            .iter()
            .map(|value| OperandPlace::Value(places[value]));
        let bound = |&local: &usize| OperandPlace::Param(self.draft.unit.params[local]);
        let outputs = call.outputs.iter().map(|target| match target {
            Target::Value(value) => OperandPlace::Value(places[value]),
            Target::Gradient(local) => OperandPlace::Gradient(self.draft.unit.params[*local]),
        });
        let definition = op::definition(call.op, call.version);
        Ok(KernelCall {
            request: self.request(call),
            operands: inputs
                .chain(call.params.iter().map(bound))
                .chain(outputs)
                .collect(),
            scalars: match definition {
                Some(definition) => scalars(definition, call.dropout)?,
                None => Vec::new(),
            },
            in_evaluation: definition.map_or(InEvaluation::Same, |op| op.in_evaluation),
            site: call.site.cloned(),
        })
    }

    /// The kernel that the backend prepares for a call.
    fn request(&self, call: &Call<'_>) -> KernelRequest {
        let unit = &self.draft.unit;
        let operand = |value: ValueId| Operand {
            shape: unit.graph.values[value].shape.clone(),
            dtype: self.draft.dtype(value, self.dtypes),
        };
        let gradient = |local: usize| Operand {
            shape: unit.graph.params[local]
                .shape
                .iter()
                .map(|&n| Dim::Fixed(n))
                .collect(),
            dtype: self.dtypes.gradients,
        };
        let bound = |&local: &usize| {
            let param = &self.params[unit.params[local]];
            ParamOperand {
                shape: param.shape.clone(),
                layout: param.layout.clone(),
            }
        };
        let outputs = call.outputs.iter().map(|&target| match target {
            Target::Value(value) => operand(value),
            Target::Gradient(local) => gradient(local),
        });
        KernelRequest::new(call.op)
            .version(call.version)
            .attributes(call.attributes.clone())
            .inputs(call.inputs.iter().map(|&value| operand(value)).collect())
            .params(call.params.iter().map(bound).collect())
            .outputs(outputs.collect())
            .limits(self.limits.max_tokens, self.limits.max_sequences)
    }
}

/// The scalars of a launch of an op, each by its name; `dropout` is the number of its dropout.
fn scalars(definition: &op::OpDefinition, dropout: Option<u64>) -> Result<Vec<Scalar>> {
    let scalar = |name: &&str| match (*name, dropout) {
        ("seed_low", _) => Ok(Scalar::SeedLow),
        ("seed_high", _) => Ok(Scalar::SeedHigh),
        ("step", _) => Ok(Scalar::Step),
        (SITE_SCALAR, Some(number)) => Ok(Scalar::Site(number)),
        ("factor", _) => Ok(Scalar::LossFactor),
        (other, _) => Err(PluginError::unsupported(format!(
            "op `{}` takes the scalar `{other}`, which a pass of a model does not have",
            definition.name
        ))),
    };
    definition.scalars.iter().map(scalar).collect()
}

#[cfg(test)]
mod tests;
