//! `zero`, `cast` and `init`, on flat runs of elements.

use espalier_host_device::{Asked, InitDraw, Made};
use espalier_interface::Result;
use espalier_interface::random::{self, Purpose};
use espalier_kernels::{cast as cast_kernel, fill};

use super::{Op, Setting};
use crate::dispatch::stored;

pub const OPS: &[Op] = &[
    Op {
        name: "zero",
        prepare: zero,
    },
    Op {
        name: "cast",
        prepare: cast,
    },
    Op {
        name: "init",
        prepare: init,
    },
];

fn zero(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    if asked.output(0).dtype.bytes() == 0 {
        return Err(asked.bad_dtype(asked.output(0).dtype, "one with a size"));
    }
    Ok(Made::new(|call| {
        fill::zero_bytes(call.services, call.output_bytes(0));
        Ok(())
    }))
}

fn cast(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    stored!(asked, asked.input(0).dtype, A => stored!(asked, asked.output(0).dtype, B => {
        Ok(Made::new(|call| {
            cast_kernel::cast::<A, B>(call.services, call.input(0), call.output(0));
            Ok(())
        }))
    }))
}

fn init(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let draw = InitDraw::of(asked)?;
    let places = asked.scalars(["seed_low", "seed_high", "param"])?;
    stored!(asked, asked.output(0).dtype, E => {
        Ok(Made::new(move |call| {
            let [low, high, param] = call.scalars_at(places);
            let key = random::key(random::seed([low, high]), Purpose::INIT, 0);
            let (services, stream, y) = (call.services, param as u32, call.output::<E>(0));
            match draw {
                InitDraw::Constant(value) => fill::constant(services, value, y),
                InitDraw::Uniform(bound) => fill::uniform(services, key, stream, [-bound, bound], y),
                InitDraw::Normal(std) => fill::normal(services, key, stream, [0.0, std], y),
            }
            Ok(())
        }))
    })
}
