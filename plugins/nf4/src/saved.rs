//! A 4-bit weight -> its tensors and config in bitsandbytes' serialization, and the options of such
//! a saved weight.

use espalier_interface::dynamic_map::SIGNED;
use espalier_interface::saved_form::{
    SavedContent, SavedDescription, SavedForm, SavedModel, SavedObject, SavedTensor,
};
use espalier_interface::{DType, Options, PluginError, Result};
use serde_json::{Map, Value as Json, json};

use crate::four_bit_quantizer::{AbsmaxStore, FourBitQuantizer};
use crate::nested::NESTED_BLOCK_SIZE;

/// The dtypes of `bnb_4bit_quant_storage` beside `uint8`: the same bytes under another name.
const STORAGE: [DType; 5] = [DType::BF16, DType::F16, DType::F32, DType::F64, DType::I8];

/// The tensors of a weight `[N, M]` that was stored as `dtype`.
///
/// # Errors
/// `INVALID` for a shape without elements.
///
/// # Source
/// bitsandbytes 0.50.2 `functional.py`, `QuantState.as_dict(packed=True)`; `nn/modules.py`,
/// `Linear4bit`.
pub fn form(quantizer: &FourBitQuantizer, shape: [u64; 2], dtype: DType) -> Result<SavedForm> {
    let format = quantizer.format(shape)?;
    let segment = |index: usize, name: &str| {
        let spec = &format.segments[index];
        let content = SavedContent::Segment(index);
        tensor(name, spec.dtype, vec![spec.len], content)
    };
    let mut codes = segment(0, "weight");
    codes.shape.push(1);
    codes.also_stored_as = STORAGE.to_vec();
    let map = quantizer.encoder.codebook.values.to_vec();
    let mut tensors = vec![
        codes,
        segment(1, "weight.absmax"),
        values("weight.quant_map", map),
    ];
    let mut state = SavedObject {
        free: vec!["dtype".to_owned()],
        ..SavedObject::default()
    };
    for (name, value) in [
        ("quant_type", json!(quantizer.name)),
        ("blocksize", json!(quantizer.encoder.block_size)),
        ("dtype", json!(torch_name(dtype))),
        ("shape", json!(shape)),
    ] {
        state.fields.insert(name.to_owned(), value);
    }
    if quantizer.absmax == AbsmaxStore::Nested {
        tensors.push(segment(2, "weight.nested_absmax"));
        tensors.push(values("weight.nested_quant_map", SIGNED.values.to_vec()));
        for (name, value) in [
            ("nested_blocksize", json!(NESTED_BLOCK_SIZE)),
            ("nested_dtype", json!("float32")),
            ("nested_offset", Json::Null),
        ] {
            state.fields.insert(name.to_owned(), value);
        }
        state.scalars.push(("nested_offset".to_owned(), 3));
    }
    let content = SavedContent::Json(state);
    tensors.push(tensor(&state_name(quantizer), DType::U8, vec![], content));
    Ok(SavedForm { tensors })
}

/// The `quantization_config` that transformers writes for such a model.
///
/// # Source
/// transformers 5.23.0 `utils/quantization_config.py`, `BitsAndBytesConfig.to_dict`.
pub fn config(quantizer: &FourBitQuantizer, model: &SavedModel) -> Json {
    json!({
        "_load_in_4bit": true,
        "_load_in_8bit": false,
        "bnb_4bit_compute_dtype": torch_name(model.dtype),
        "bnb_4bit_quant_storage": "uint8",
        "bnb_4bit_quant_type": quantizer.name,
        "bnb_4bit_use_double_quant": quantizer.absmax == AbsmaxStore::Nested,
        "llm_int8_enable_fp32_cpu_offload": false,
        "llm_int8_has_fp16_weight": false,
        "llm_int8_skip_modules": model.dense_modules,
        "llm_int8_threshold": 6.0,
        "load_in_4bit": true,
        "load_in_8bit": false,
        "quant_method": "bitsandbytes",
    })
}

/// The options of a saved weight.
///
/// # Errors
/// `UNSUPPORTED` for weights of another quantizer, `INVALID` for a state that bitsandbytes does not
/// write.
pub fn options(quantizer: &FourBitQuantizer, saved: &SavedDescription) -> Result<Options> {
    let config = &saved.config;
    let expect = |key: &str, expected: Json| match config.get(key) {
        Some(found) if *found == expected => Ok(()),
        found => Err(PluginError::unsupported(format!(
            "`{key}` of its quantization_config is {}, `{}` reads {expected}",
            found.unwrap_or(&Json::Null),
            quantizer.name
        ))),
    };
    expect("quant_method", json!("bitsandbytes"))?;
    expect("load_in_4bit", json!(true))?;
    expect("bnb_4bit_quant_type", json!(quantizer.name))?;
    let name = state_name(quantizer);
    let field = |key: &str| saved.objects.get(&name).and_then(|state| state.get(key));
    let Some(block_size) = field("blocksize").and_then(Json::as_u64) else {
        return Err(PluginError::invalid(format!(
            "`{name}`: expected a whole number `blocksize`, found {}",
            field("blocksize").unwrap_or(&Json::Null)
        )));
    };
    let mut options = Map::new();
    options.insert("block_size".to_owned(), json!(block_size));
    let nested = field("nested_blocksize").is_some();
    options.insert("double_quant".to_owned(), json!(nested));
    Ok(Options(options))
}

fn state_name(quantizer: &FourBitQuantizer) -> String {
    format!("weight.quant_state.bitsandbytes__{}", quantizer.name)
}

fn tensor(name: &str, dtype: DType, shape: Vec<u64>, content: SavedContent) -> SavedTensor {
    SavedTensor {
        name: name.to_owned(),
        dtype,
        shape,
        content,
        also_stored_as: Vec::new(),
    }
}

fn values(name: &str, values: Vec<f32>) -> SavedTensor {
    let shape = vec![values.len() as u64];
    tensor(name, DType::F32, shape, SavedContent::Values(values))
}

/// The name of `dtype` in torch; a weight of a dtype that torch does not pack is treated as f32.
fn torch_name(dtype: DType) -> &'static str {
    match dtype {
        DType::BF16 => "bfloat16",
        DType::F16 => "float16",
        _ => "float32",
    }
}

#[cfg(test)]
mod tests;
