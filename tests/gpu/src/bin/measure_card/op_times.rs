//! The time of each op of an 8B model's step, and of decoding a weight of it in every kind of
//! format, with the bytes and operations that each needs at least.

use anyhow::{Result, ensure};
use espalier_interface::Backend;
use espalier_tests_gpu::{quantizers, step_formats};
use serde_json::json;

use crate::op_launch::{Repeats, time};
use crate::op_shapes::{Shaped, Sizes, values};
use crate::rows::Rows;
use crate::setting::{Setting, told};

/// `gate` and `up` of Llama 3 8B.
const DECODED: [u64; 2] = [14_336, 4096];

/// A weight that a model of a card decodes in a moment.
const SMALL_DECODED: [u64; 2] = [128, 192];

/// Measures the ops of a step.
///
/// # Errors
/// Where an op fails; the others are still measured.
pub fn of_step(setting: &Setting, rows: &mut Rows) -> Result<()> {
    let sizes = if setting.is_small {
        Sizes::SMALL
    } else {
        Sizes::LLAMA_8B
    };
    measure(setting, rows, sizes.ops().map_err(told)?)
}

/// Measures the decoders of the shipped quantizers' formats, and of what others may describe.
///
/// # Errors
/// Where a decoder fails; the others are still measured.
pub fn of_decoders(setting: &Setting, rows: &mut Rows) -> Result<()> {
    let shape = if setting.is_small {
        SMALL_DECODED
    } else {
        DECODED
    };
    let mut decoders = Vec::new();
    for (name, quantizer) in quantizers() {
        let format = quantizer.format(shape).map_err(told)?;
        decoders.push(values(name, shape, format));
    }
    for (name, format) in step_formats(shape) {
        decoders.push(values(name, shape, format));
    }
    measure(setting, rows, decoders)
}

fn measure(setting: &Setting, rows: &mut Rows, ops: Vec<Shaped>) -> Result<()> {
    let repeats = if setting.is_small {
        Repeats::SMALL
    } else {
        Repeats::CARD
    };
    let backend = setting.backend()?;
    let device = backend.open(0).map_err(told)?;
    let mut failed = Vec::new();
    for shaped in ops {
        let name = &shaped.name;
        let row = match time(device.as_ref(), &shaped, repeats) {
            Ok(Ok(timed)) => json!({
                "op": name,
                "secs": timed.secs,
                "bytes": timed.bytes,
                "flops": timed.flops,
                "tokens": shaped.tokens,
            }),
            Ok(Err(why)) => json!({"op": name, "not_offered": why}),
            Err(error) => {
                failed.push(name.clone());
                json!({"op": name, "failed": format!("{error:#}")})
            }
        };
        rows.add(&row)?;
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join("; "));
    Ok(())
}
