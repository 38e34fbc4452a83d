//! A model, an adapter -> the logits of the golden evaluation rows, for `cargo xtask peers` to
//! compare with the peer's.
//!
//! Usage: `cargo run --release -p espalier-tests --example logits -- MODEL ADAPTER|none
//! OUT.safetensors [QUANTIZER]`

use std::collections::HashMap;
use std::path::Path;

use espalier_tests::{Golden, Rig, micro_batch};
use safetensors::Dtype;
use safetensors::tensor::TensorView;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [model, adapter, out, quantizer @ ..] = words.as_slice() else {
        panic!("usage: logits MODEL ADAPTER|none OUT.safetensors [QUANTIZER]");
    };
    let rows = Golden::open("llama/data.safetensors").rows("eval_tokens");
    let mut plugins = quantizer.to_vec();
    let saved = format!("{adapter:?}");
    let mut keys = vec![
        ("model.compute", "\"f32\""),
        ("data.max_seq_len", "48"),
        ("data.micro_batch", "2"),
    ];
    if adapter == "none" {
        // A fresh LoRA changes nothing, and allows a packed model to be loaded as for training.
        plugins.push("lora".to_owned());
    } else {
        keys.push(("model.adapter", &saved));
    }
    let plugins = format!("{plugins:?}");
    keys.push(("plugins", &plugins));
    let logits = Rig::new(Path::new(model), &keys).logits(&micro_batch(&rows, &rows));
    let tokens: Vec<u8> = rows
        .iter()
        .flatten()
        .flat_map(|&token| i64::from(token).to_le_bytes())
        .collect();
    let values: Vec<u8> = logits
        .iter()
        .flat_map(|&x| (x as f32).to_le_bytes())
        .collect();
    let (count, length) = (rows.len(), rows[0].len());
    let shape = vec![count, length, logits.len() / count / length];
    let view = |dtype, shape, bytes| TensorView::new(dtype, shape, bytes).expect("it fits");
    let tensors = HashMap::from([
        ("tokens", view(Dtype::I64, vec![count, length], &tokens)),
        ("logits", view(Dtype::F32, shape, &values)),
    ]);
    safetensors::serialize_to_file(tensors, None, Path::new(out)).expect("a file");
}
