//! A weight with factors of its columns -> its tensors and config in checkpoints of our own, and
//! the options of such a saved weight.
//!
//! Files of GPTQ and AWQ have no place for factors. AWQ itself folds them into the norm or linear
//! before, which all weights that read the same value then share; ours are those of one weight.

use espalier_interface::saved_form::{
    SavedContent, SavedDescription, SavedForm, SavedModel, SavedTensor,
};
use espalier_interface::{Options, PluginError, Result};
use serde_json::{Map, Value as Json, json};

use crate::awq_quantizer::AwqQuantizer;
use crate::grid::Symmetry;
use crate::number::Number;

/// The `quant_method` that is read and written, for the host.
pub const METHOD: &str = "espalier_awq";

/// The segments of a weight `[N, M]`, a tensor each, under their names.
///
/// # Errors
/// `UNSUPPORTED` where another's files are asked for; those of the format.
pub fn form(quantizer: &AwqQuantizer, shape: [u64; 2]) -> Result<SavedForm> {
    if let Some(files) = quantizer.others_files {
        let name = files.name();
        return Err(PluginError::unsupported(format!(
            "files of {name} have no place for the factor of a column, and `awq` gives each weight \
             factors of its own: set quantizer.awq.files = \"own\", or write {name}'s files with \
             `gptq` or `int4-clip`, or dense weights with --decoded"
        )));
    }
    let segments = quantizer.format(shape)?.segments.into_iter().enumerate();
    let tensors = segments.map(|(index, segment)| SavedTensor {
        shape: if segment.len.is_multiple_of(shape[0]) && segment.name != "factors" {
            vec![shape[0], segment.len / shape[0]]
        } else {
            vec![segment.len]
        },
        name: segment.name,
        dtype: segment.dtype,
        content: SavedContent::Segment(index),
        also_stored_as: Vec::new(),
    });
    Ok(SavedForm {
        tensors: tensors.collect(),
    })
}

/// The `quantization_config` of such a model.
///
/// # Errors
/// `UNSUPPORTED` where weights have several options.
pub fn config(quantizer: &AwqQuantizer, model: &SavedModel) -> Result<Json> {
    if !model.configs.is_empty() {
        return Err(PluginError::unsupported(
            "a checkpoint of awq has one set of options: give all packed weights the same options",
        ));
    }
    let grid = quantizer.nearest.grid;
    Ok(json!({
        "bits": grid.bits,
        "group_size": quantizer.nearest.group_size,
        "modules_to_not_convert": model.dense_modules,
        "quant_method": METHOD,
        "scale_dtype": grid.number.dtype().name(),
        "symmetric": grid.symmetry == Symmetry::Symmetric,
    }))
}

/// The options of a saved weight.
///
/// # Errors
/// `UNSUPPORTED` for weights that are packed in another way.
pub fn options(saved: &SavedDescription) -> Result<Options> {
    let config = &saved.config;
    let check = |key: &str, expected: &str, fits: fn(&Json) -> bool| {
        let found = config.get(key).unwrap_or(&Json::Null);
        if fits(found) {
            return Ok((key.to_owned(), found.clone()));
        }
        Err(PluginError::unsupported(format!(
            "`{key}` of its quantization_config is {found}, `awq` reads {expected}"
        )))
    };
    check("quant_method", "\"espalier_awq\"", |method| {
        *method == METHOD
    })?;
    let is_count = |found: &Json| found.as_u64().is_some_and(|count| count > 0);
    let is_number = |found: &Json| found.as_str().and_then(Number::named).is_some();
    let mut options: Map<String, Json> = [
        check("bits", "4, 3 or 2", |bits| {
            bits.as_u64().is_some_and(|bits| (2..=4).contains(&bits))
        })?,
        check("group_size", "a number above 0", is_count)?,
        check("symmetric", "true or false", Json::is_boolean)?,
        check("scale_dtype", "\"f16\", \"bf16\" or \"f32\"", is_number)?,
    ]
    .into_iter()
    .collect();
    options.insert("files".to_owned(), json!("own"));
    Ok(Options(options))
}

#[cfg(test)]
mod tests;
