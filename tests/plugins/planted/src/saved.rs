//! The quantizer's own form in checkpoints.

use espalier_interface::format::Format;
use espalier_interface::saved_form::{
    SavedContent, SavedDescription, SavedForm, SavedObject, SavedTensor,
};
use espalier_interface::{DType, Options, PluginError, Result};
use serde_json::{Map, Value as Json, json};

use crate::bug::Bug;
use crate::quantizer::Planted;

/// The name of the tensor that holds the options.
const STATE: &str = "weight.state";

/// A tensor for each segment, and one with the options, including the offset.
pub fn form(planted: &Planted, format: &Format) -> SavedForm {
    let tensor = |name: String, dtype, shape, content| SavedTensor {
        name,
        dtype,
        shape,
        content,
        also_stored_as: Vec::new(),
    };
    let mut tensors = Vec::new();
    let mut state = SavedObject::default();
    state
        .fields
        .insert("block_size".into(), json!(planted.block_size()));
    let nested = json!(planted.double_quant);
    state.fields.insert("double_quant".into(), nested);
    for (index, segment) in format.segments.iter().enumerate() {
        if segment.name == "offset" {
            if planted.bug != Some(Bug::DropsSegment) {
                state.scalars.push(("offset".into(), index));
            }
            continue;
        }
        let name = format!("weight.{}", segment.name);
        let content = SavedContent::Segment(index);
        tensors.push(tensor(name, segment.dtype, vec![segment.len], content));
    }
    let content = SavedContent::Json(state);
    tensors.push(tensor(STATE.into(), DType::U8, vec![], content));
    SavedForm { tensors }
}

/// The `quantization_config`.
pub fn config(planted: &Planted) -> Json {
    json!({ "quant_method": "planted", "kind": planted.name })
}

/// The options of a saved weight.
pub fn options(saved: &SavedDescription) -> Result<Options> {
    let state = saved.objects.get(STATE);
    let state = state.ok_or_else(|| PluginError::invalid(format!("no tensor `{STATE}`")))?;
    let mut options = Map::new();
    for name in ["block_size", "double_quant"] {
        options.insert(name.into(), state[name].clone());
    }
    Ok(Options(options))
}
