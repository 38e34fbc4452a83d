//! A program -> the floating-point operations of a step, for the speed of light.

use espalier_interface::graph::Dim;
use espalier_interface::{KernelRequest, Operand};

use crate::data::MicroBatch;
use crate::program::{Program, Step};

/// Operations of matrix products, a multiply and an add being two. What is computed again is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flops {
    /// For each token, whatever stands beside it.
    pub per_token: u64,
    /// For each pair of a token and one it may attend to.
    pub per_pair: u64,
}

impl Flops {
    /// The operations of a training step's passes.
    pub fn of(program: &Program) -> Self {
        let mut flops = Flops::default();
        for unit in &program.units {
            let once = unit.backward.iter().skip(unit.recomputed);
            for step in unit.forward.iter().chain(once) {
                flops.add(step);
            }
        }
        flops
    }

    fn add(&mut self, step: &Step) {
        let request = &step.request;
        let weight = |request: &KernelRequest| request.params[0].shape.iter().product::<u64>();
        match request.op.as_str() {
            "linear" | "linear_input_backward" => self.per_token += 2 * weight(request),
            "linear_weight_backward" => {
                self.per_token += 2 * width(&request.inputs[0]) * width(&request.inputs[1]);
            }
            // Two products forward, four backward; the scores that the backward pass makes again are not counted.
            "attention" => self.per_pair += 4 * width(&request.inputs[0]),
            "attention_backward" => self.per_pair += 8 * width(&request.inputs[1]),
            _ => {}
        }
    }

    /// Operations for a micro-batch.
    pub fn micro_batch(&self, micro: &MicroBatch) -> u64 {
        let pairs: u64 = micro
            .cu_seqlens
            .windows(2)
            .map(|ends| {
                let length = (ends[1] - ends[0]) as u64;
                length * (length + 1) / 2
            })
            .sum();
        self.per_token * micro.tokens.len() as u64 + self.per_pair * pairs
    }
}

/// The fixed extents of an operand multiplied.
fn width(operand: &Operand) -> u64 {
    let fixed = operand
        .shape
        .iter()
        .map(|dim| if let Dim::Fixed(n) = dim { *n } else { 1 });
    fixed.product()
}
