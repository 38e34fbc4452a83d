//! The time of each op of an 8B model's step, with the bytes and operations that it needs at least.

use anyhow::{Result, ensure};
use espalier_interface::Backend;
use serde_json::json;

use crate::op_launch::{Repeats, time};
use crate::op_shapes::Sizes;
use crate::rows::Rows;
use crate::setting::{Setting, told};

/// Measures the part.
///
/// # Errors
/// Where an op fails; the others are still measured.
pub fn measure(setting: &Setting, rows: &mut Rows) -> Result<()> {
    let (sizes, repeats) = if setting.is_small {
        (Sizes::SMALL, Repeats::SMALL)
    } else {
        (Sizes::LLAMA_8B, Repeats::CARD)
    };
    let backend = setting.backend()?;
    let device = backend.open(0).map_err(told)?;
    let mut failed = Vec::new();
    for shaped in sizes.ops().map_err(told)? {
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
