//! `dropout`.

use espalier_interface::graph::Dim;
use espalier_interface::random::{self, Purpose};
use espalier_interface::{DType, Result};
use espalier_kernels::dropout::{self as kernel, Mask};

use super::{Made, Op, Setting};
use crate::dispatch::compute;
use crate::request::Asked;

pub const OPS: &[Op] = &[Op {
    name: "dropout",
    prepare,
}];

fn prepare(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    asked.check([3, 0, 1], &["p"])?;
    let (x, probability) = (asked.input(0), asked.attributes().number("p")?);
    asked.width(x, "x")?;
    asked.expect(asked.input(1), "sequences", &[Dim::Tokens], DType::I32)?;
    asked.expect(asked.input(2), "positions", &[Dim::Tokens], DType::I32)?;
    asked.expect_like(x, &[(asked.output(0), "the output")])?;
    if !(0.0..1.0).contains(&probability) {
        return Err(asked.invalid(format!("p is {probability}, expected 0 <= p < 1")));
    }
    compute!(asked, x.dtype, E => {
        let run = Made::new(move |call| {
            let &[low, high, step, site] = call.scalars else { unreachable!("counted") };
            let seed = seed(low, high);
            let key = random::key(seed, Purpose::DROPOUT, step as u64);
            let mask = Mask { key, site: site as u32, probability };
            let (x, sequences, positions) =
                (call.input::<E>(0), call.integers(1), call.integers(2));
            kernel::dropout(call.services, x, positions, sequences, mask, call.output(0));
            Ok(())
        });
        Ok(run.with_scalars(4))
    })
}

/// A seed from its halves, each a whole number below 2^32.
pub fn seed(low: f64, high: f64) -> u64 {
    low as u64 | (high as u64) << 32
}
