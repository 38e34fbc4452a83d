//! Runs on the golden packed checkpoints, and their results on the golden rows.

use std::path::Path;

use espalier_data::MicroBatch;
use espalier_tests::{Golden, Rig, micro_batch};

/// The config values of a run on a golden packed checkpoint, and `more`.
pub fn keys<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut keys = vec![
        ("model.compute", "\"f32\""),
        ("data.max_seq_len", "16"),
        ("data.micro_batch", "2"),
    ];
    keys.extend(more);
    keys
}

/// A run with these keys.
pub fn rig(model: &Path, more: &[(&str, &str)]) -> Rig {
    Rig::new(model, &keys(more))
}

/// The golden rows.
pub fn batch() -> MicroBatch {
    let rows = Golden::open("packed/logits.safetensors").rows("tokens");
    micro_batch(&rows, &rows)
}

/// The bits of all logits.
pub fn bits(rig: &Rig) -> Vec<u64> {
    let logits = rig.logits(&batch());
    logits.into_iter().map(f64::to_bits).collect()
}
