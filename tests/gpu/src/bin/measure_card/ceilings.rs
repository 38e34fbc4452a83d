//! What the card reaches: a copy within its memory, and a product of large bf16 matrices, by the
//! backend and by torch where it is there.

use anyhow::Result;
use espalier_interface::Backend;
use serde_json::{Value as Json, json};

use crate::op_launch::{Repeats, copied_per_sec, time};
use crate::op_shapes::square;
use crate::peer;
use crate::rows::Rows;
use crate::setting::{Setting, told};

/// Measures the part.
///
/// # Errors
/// Where a call of the backend fails.
pub fn measure(setting: &Setting, rows: &mut Rows) -> Result<()> {
    let (repeats, bytes, extent) = if setting.is_small {
        (Repeats::SMALL, 1 << 20, 64)
    } else {
        (Repeats::CARD, 4 << 30, 8192)
    };
    let backend = setting.backend()?;
    let device = backend.open(0).map_err(told)?;
    let copied = copied_per_sec(device.as_ref(), bytes, repeats)?;
    rows.add(&json!({"copy": "backend", "bytes": bytes, "bytes_per_sec": copied}))?;
    let timed = time(device.as_ref(), &square(extent), repeats)?;
    let timed = timed.map_err(anyhow::Error::msg)?;
    rows.add(&json!({
        "product": "backend",
        "extent": extent,
        "secs": timed.secs,
        "flops_per_sec": timed.flops as f64 / timed.secs,
    }))?;
    drop(device);
    let arguments = [
        "ceilings".to_owned(),
        "--extent".to_owned(),
        extent.to_string(),
    ];
    match peer::lines(setting, &arguments) {
        Ok(lines) => lines.iter().try_for_each(|line: &Json| rows.add(line)),
        Err(error) => rows.add(&json!({"peer": "torch", "why": format!("{error:#}")})),
    }
}
