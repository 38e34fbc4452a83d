//! `dropout`.

use espalier_host_device::{Asked, Made};
use espalier_interface::Result;
use espalier_interface::random::{self, Purpose};
use espalier_kernels::dropout::{self as kernel, Mask};

use super::{Op, Setting};
use crate::dispatch::compute;

pub const OPS: &[Op] = &[Op {
    name: "dropout",
    prepare,
}];

fn prepare(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let probability = asked.attributes().number("p")?;
    let places = asked.scalars(["seed_low", "seed_high", "step", "site"])?;
    compute!(asked, asked.input(0).dtype, E => {
        Ok(Made::new(move |call| {
            let [low, high, step, site] = call.scalars_at(places);
            let key = random::key(random::seed([low, high]), Purpose::DROPOUT, step as u64);
            let mask = Mask { key, site: site as u32, probability };
            let (x, sequences, positions) =
                (call.input::<E>(0), call.integers(1), call.integers(2));
            kernel::dropout(call.services, x, positions, sequences, mask, call.output(0));
            Ok(())
        }))
    })
}
