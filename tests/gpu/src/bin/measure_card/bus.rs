//! What the bus carries between the host's memory and the card's.

use anyhow::Result;
use espalier_interface::{Backend, MemoryKind, Stream};
use serde_json::json;

use crate::op_launch::{Repeats, Taken, times};
use crate::rows::Rows;
use crate::setting::{Setting, told};

/// Measures the part.
///
/// # Errors
/// Where a call of the backend fails.
pub fn measure(setting: &Setting, rows: &mut Rows) -> Result<()> {
    let [up, down] = bytes_per_sec(setting)?;
    rows.add(&json!({"bus": "host to card", "bytes_per_sec": up}))?;
    rows.add(&json!({"bus": "card to host", "bytes_per_sec": down}))
}

/// Bytes a second from pinned memory to the card, and back.
///
/// # Errors
/// Where a call of the backend fails.
pub fn bytes_per_sec(setting: &Setting) -> Result<[f64; 2]> {
    let (repeats, bytes) = if setting.is_small {
        (Repeats::SMALL, 1 << 20)
    } else {
        (Repeats::CARD, 1 << 30)
    };
    let backend = setting.backend()?;
    let device = backend.open(0).map_err(told)?;
    let device = device.as_ref();
    let host = Taken::of(device, bytes, MemoryKind::PINNED)?;
    let card = Taken::of(device, bytes, MemoryKind::DEVICE)?;
    let [host, card] = [host.part(0, bytes), card.part(0, bytes)];
    let rate = |from, to| -> Result<f64> {
        let copy = || device.copy(from, to, Stream(0)).map_err(told);
        Ok(bytes as f64 / times(device, repeats, copy)?)
    };
    Ok([rate(host, card)?, rate(card, host)?])
}
