//! `rope` and `rope_backward`.

use espalier_interface::graph::Dim;
use espalier_interface::{DType, Result};
use espalier_kernels::rope::{self as kernel, Direction};

use super::{Made, Op, Setting};
use crate::dispatch::compute;
use crate::request::Asked;

pub const OPS: &[Op] = &[
    Op {
        name: "rope",
        prepare: |asked, _| prepare(asked, Direction::Forward),
    },
    Op {
        name: "rope_backward",
        prepare: |asked, _: &Setting<'_>| prepare(asked, Direction::Backward),
    },
];

fn prepare(asked: &Asked<'_>, direction: Direction) -> Result<Made> {
    asked.check([2, 0, 1], &["head_dim", "inv_freq", "scaling"])?;
    let x = asked.input(0);
    let width = asked.width(x, "x")?;
    asked.expect(asked.input(1), "positions", &[Dim::Tokens], DType::I32)?;
    asked.expect_like(x, &[(asked.output(0), "the output")])?;
    let head = asked.attributes().count("head_dim")?;
    let scaling = asked.attributes().number("scaling")?;
    let inv_freq = asked.attributes().numbers("inv_freq")?;
    let inv_freq: Vec<f32> = inv_freq.into_iter().map(|f| f as f32).collect();
    if head == 0 || !width.is_multiple_of(head) {
        return Err(asked.invalid(format!("heads of {head} in rows of {width}")));
    }
    if 2 * inv_freq.len() > head.min(kernel::MAX_ROTARY) {
        let most = head.min(kernel::MAX_ROTARY) / 2;
        let found = inv_freq.len();
        return Err(asked.invalid(format!("{found} frequencies, expected at most {most}")));
    }
    compute!(asked, x.dtype, E => {
        Ok(Made::new(move |call| {
            let (x, positions) = (call.input::<E>(0), call.integers(1));
            let shape = (head, &inv_freq[..]);
            kernel::rope(call.services, x, positions, shape, scaling, direction, call.output(0));
            Ok(())
        }))
    })
}
