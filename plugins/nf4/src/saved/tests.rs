//! The saved form of 4-bit weights, and options read from checkpoints.

use std::sync::Arc;

use espalier_interface::{ErrorCode, Quantizer, Serial};

use super::*;
use crate::codebook;
use crate::four_bit::FourBit;

fn nf4(absmax: AbsmaxStore) -> FourBitQuantizer {
    FourBitQuantizer {
        name: "nf4",
        encoder: FourBit {
            codebook: &codebook::NF4,
            block_size: 64,
        },
        absmax,
        services: Arc::new(Serial),
    }
}

#[test]
fn the_form_holds_every_segment_once() {
    for absmax in [AbsmaxStore::Plain, AbsmaxStore::Nested] {
        let quantizer = nf4(absmax);
        for shape in [[64, 96], [5, 37], [1, 1]] {
            let format = quantizer.format(shape).expect("it has elements");
            let form = quantizer.saved_form(shape, DType::BF16).expect("a form");
            form.validate(&format).expect("it fits");
        }
    }
}

#[test]
fn options_are_read_from_saved_weights_and_other_weights_refused() {
    let quantizer = nf4(AbsmaxStore::Plain);
    let model = SavedModel {
        dtype: DType::F32,
        dense_modules: vec!["lm_head".to_owned()],
        configs: Default::default(),
    };
    let mut saved = SavedDescription {
        config: quantizer.quantization_config(&model).expect("a config"),
        ..SavedDescription::default()
    };
    let lacking = quantizer.options_from_saved(&saved).expect_err("no state");
    assert!(
        lacking.message.contains("`blocksize`, found null"),
        "{lacking}"
    );
    let state = json!({"quant_type": "nf4", "blocksize": 128, "nested_blocksize": 256});
    saved.objects.insert(state_name(&quantizer), state);
    let options = quantizer.options_from_saved(&saved).expect("its own");
    assert_eq!(
        Json::Object(options.0),
        json!({"block_size": 128, "double_quant": true})
    );
    for (key, value) in [
        ("bnb_4bit_quant_type", json!("fp4")),
        ("load_in_4bit", json!(false)),
        ("quant_method", json!("hqq")),
    ] {
        let mut other = saved.clone();
        other.config[key] = value;
        let error = quantizer.options_from_saved(&other).expect_err(key);
        assert_eq!(error.code, ErrorCode::UNSUPPORTED);
        assert!(error.message.contains(&format!("`{key}`")), "{error}");
    }
}
