//! A kernel request -> whether it fits its op's definition, and the cost of a launch.

use super::definition;
use super::definition::{OpCall, OpDefinition, OpFlops, OpTraffic, operand_traffic};
use crate::graph::Dim;
use crate::role::KernelRequest;
use crate::{PluginError, Result};

/// An op of which nothing is known but its operands.
static UNKNOWN: OpDefinition = OpDefinition::new("", |call| {
    Ok(call
        .outputs
        .iter()
        .map(|output| output.to_value())
        .collect())
});

impl KernelRequest {
    /// The request as its op's definition sees it; none for an op that the interface does not know.
    pub fn call(&self) -> Option<OpCall<'_>> {
        let definition = definition(&self.op, self.version)?;
        Some(OpCall::of_request(definition, self))
    }

    /// Checks the request against its op's definition: names and numbers of operands, attributes,
    /// shapes and dtypes. The boundary calls it before a backend's `prepare`, which need not check
    /// again. An op that the interface does not know is left to the backend.
    ///
    /// # Errors
    /// `INVALID`, naming the op, the operand or attribute, what was expected and what was found.
    pub fn validate(&self) -> Result<()> {
        let operands = self.inputs.iter().chain(&self.outputs);
        let fixed = operands.map(|operand| {
            let extents = operand.shape.iter().map(|dim| match dim {
                Dim::Fixed(extent) => *extent,
                Dim::Tokens | Dim::Boundaries => 1,
            });
            product(extents)
        });
        let params = self.params.iter();
        let params = params.map(|param| product(param.shape.iter().copied()));
        if fixed.chain(params).any(|elements| elements.is_none()) {
            return Err(PluginError::invalid(format!(
                "op `{}`: an operand has more elements than can be counted",
                self.op
            )));
        }
        self.call().map_or(Ok(()), |call| call.check())
    }

    /// Floating-point operations of the kernel's matrix products; none for an op that the interface
    /// does not know.
    pub fn flops(&self) -> OpFlops {
        let call = self.call();
        call.map_or(OpFlops::NONE, |call| (call.definition.flops)(&call))
    }

    /// Bytes that a launch reads and writes besides multiplying.
    pub fn traffic(&self) -> OpTraffic {
        match self.call() {
            Some(call) => (call.definition.traffic)(&call),
            None => operand_traffic(&OpCall::of_request(&UNKNOWN, self)),
        }
    }
}

fn product(mut extents: impl Iterator<Item = u64>) -> Option<u64> {
    extents.try_fold(1u64, |n, extent| n.checked_mul(extent))
}

#[cfg(test)]
mod tests;
