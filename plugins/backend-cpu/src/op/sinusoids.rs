//! `sinusoids` and `swap_halves`.

use espalier_host_device::{Asked, Made};
use espalier_interface::Result;
use espalier_kernels::sinusoids::{self as kernel, Wave};

use super::{Op, Setting};
use crate::dispatch::compute;

pub const OPS: &[Op] = &[
    Op {
        name: "sinusoids",
        prepare: sinusoids,
    },
    Op {
        name: "swap_halves",
        prepare: swap_halves,
    },
];

fn sinusoids(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let attributes = asked.attributes();
    let floats = |name: &str| -> Result<Vec<f32>> {
        let numbers = attributes.numbers(name)?;
        Ok(numbers.into_iter().map(|number| number as f32).collect())
    };
    let (inv_freq, amplitude) = (floats("inv_freq")?, floats("amplitude")?);
    let wave = match attributes.text("function") {
        Some("cos") => Wave::Cosine,
        Some("sin") => Wave::Sine,
        other => return Err(asked.unsupported(format!("function {other:?}"))),
    };
    compute!(asked, asked.output(0).dtype, E => {
        Ok(Made::new(move |call| {
            let waves = (&inv_freq[..], &amplitude[..]);
            let (positions, y) = (call.integers(0), call.output::<E>(0));
            kernel::sinusoids(call.services, positions, waves, wave, y);
            Ok(())
        }))
    })
}

fn swap_halves(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let attributes = asked.attributes();
    let heads = [attributes.count("head_dim")?, attributes.count("half")?];
    compute!(asked, asked.input(0).dtype, E => {
        Ok(Made::new(move |call| {
            kernel::swap_halves::<E>(call.services, call.input(0), heads, call.output(0));
            Ok(())
        }))
    })
}
