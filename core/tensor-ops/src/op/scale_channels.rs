//! `scale_channels` and `scale_by`, and their gradients.

use espalier_interface::Result;

use super::rows::{Part, rows};
use super::{Kernel, Op};
use crate::launch::Launch;
use crate::{Memory, Tensors};

pub fn ops<L: Tensors>() -> Vec<Op<L>> {
    vec![
        Op::new("scale_channels", |_, _| {
            Ok(rows(|part: Part<'_, '_, L>| {
                let weight = row(part.launch, part.launch.param(0))?;
                part.write(&part.launch.library.mul(&part.float(0)?, &weight)?, 0)
            }))
        }),
        Op::new("scale_by", |_, _| {
            Ok(rows(|part: Part<'_, '_, L>| {
                let factors = row(part.launch, part.launch.input(1))?;
                part.write(&part.launch.library.mul(&part.float(0)?, &factors)?, 0)
            }))
        }),
        Op::new("scale_channels_weight_backward", |_, _| {
            Ok(Kernel::new(|launch: &Launch<'_, L>| {
                let sum = sum_of_products(launch)?;
                super::linear::accumulate(launch, &sum, launch.output(0))
            }))
        }),
        Op::new("scale_by_backward", |_, _| {
            Ok(Kernel::new(|launch: &Launch<'_, L>| {
                let sum = sum_of_products(launch)?;
                let memory = launch.output(0);
                let sum = launch.library.reshape(&sum, memory.shape())?;
                launch.write(&sum, memory)
            }))
        }),
    ]
}

/// The numbers at `memory` as a row, `[1, N]`.
pub fn row<L: Tensors>(launch: &Launch<'_, L>, memory: &Memory) -> Result<L::Tensor> {
    launch.float(&memory.reshaped(&[1, memory.elements()]))
}

/// `sum_t dy_tn x_tn`, `[1, N]`.
fn sum_of_products<L: Tensors>(launch: &Launch<'_, L>) -> Result<L::Tensor> {
    let (library, [dy, x]) = (launch.library, [0, 1].map(|index| launch.input(index)));
    let sums = launch.gathered(launch.tokens, dy.shape()[1], |begin, len| {
        let [dy, x] = [dy, x].map(|memory| launch.float(&memory.narrowed(0, begin, len)));
        library.sum(&library.mul(&dy?, &x?)?, 0)
    })?;
    library.sum(&sums, 0)
}
