//! `rope` and `rope_backward`.

use espalier_host_device::{Asked, Made};
use espalier_interface::Result;
use espalier_kernels::rope::{self as kernel, Direction};

use super::{Op, Setting};
use crate::dispatch::compute;

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

/// Version 2 of the same: two values by the same angles.
pub const FUSED: &[Op] = OPS;

fn prepare(asked: &Asked<'_>, direction: Direction) -> Result<Made> {
    let head = asked.attributes().count("head_dim")?;
    let scaling = asked.attributes().number("scaling")?;
    let inv_freq = asked.attributes().numbers("inv_freq")?;
    let inv_freq: Vec<f32> = inv_freq.into_iter().map(|f| f as f32).collect();
    if inv_freq.len() > kernel::MAX_ROTARY / 2 {
        let (found, most) = (inv_freq.len(), kernel::MAX_ROTARY / 2);
        return Err(asked.unsupported(format!("{found} frequencies, expected at most {most}")));
    }
    let is_pair = asked.request.outputs.len() == 2;
    compute!(asked, asked.input(0).dtype, E => {
        Ok(Made::new(move |call| {
            let shape = (head, &inv_freq[..]);
            if is_pair {
                let (x, positions) = ([call.input::<E>(0), call.input(1)], call.integers(2));
                let y = [call.output(0), call.output(1)];
                kernel::rope_pair(call.services, x, positions, shape, scaling, direction, y);
            } else {
                let (x, positions) = (call.input::<E>(0), call.integers(1));
                let y = call.output(0);
                kernel::rope(call.services, x, positions, shape, scaling, direction, y);
            }
            Ok(())
        }))
    })
}
