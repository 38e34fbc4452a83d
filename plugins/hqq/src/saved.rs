//! A weight -> its tensors and config as hqq and transformers save them, and the options of such a
//! saved weight.

use std::collections::BTreeMap;

use espalier_interface::saved_form::{
    SavedConstant, SavedContent, SavedDescription, SavedForm, SavedModel, SavedTensor,
};
use espalier_interface::{DType, Options, PluginError, Result};
use serde_json::{Map, Value as Json, json};

use crate::grouping::Axis;
use crate::meta::MetaStore;
use crate::profile::Profile;
use crate::quantizer::{HqqQuantizer, Zeros};

/// The `quant_method` of transformers.
pub const METHOD: &str = "hqq";
/// The key of the solver's profile in `quantization_config`; the peers ignore it.
const PROFILE: &str = "solver_profile";

/// The tensors of a weight `[N, M]`.
///
/// # Errors
/// `UNSUPPORTED` for quantized scales or zeros; those of [`Quantizer::format`].
///
/// # Source
/// hqq 0.2.8 `core/quantize.py`, `HQQLinear.state_dict`; `core/utils.py`, `encode_safetensor_type`.
pub fn form(quantizer: &HqqQuantizer, shape: [u64; 2]) -> Result<SavedForm> {
    let dtype = plain(quantizer)?;
    let format = quantizer.format(shape)?;
    let groups = format.segments[1].len;
    let (cols, numbers) = match quantizer.axis {
        Axis::Consecutive => (quantizer.group_size, vec![groups, 1]),
        Axis::Strided => (groups, vec![1, groups]),
    };
    let segment = |index: usize, name: &str, shape: Vec<u64>, also: &[DType]| SavedTensor {
        name: name.to_owned(),
        dtype: format.segments[index].dtype,
        shape,
        content: SavedContent::Segment(index),
        also_stored_as: also.to_vec(),
    };
    let words = format.segments[0].len;
    // `view_as_float`: the same bytes under the name of a compute dtype.
    let floats = [DType::F32, DType::BF16, DType::F16];
    let mut tensors = vec![
        segment(0, "W_q", vec![words / cols, cols], &floats),
        segment(1, "scale", numbers.clone(), &[]),
        segment(2, "zero", numbers, &[]),
    ];
    let arguments = arguments(quantizer);
    let number = |name: &str| arguments[name].clone();
    for (name, dtype, value) in [
        ("nbits", DType::I32, number("nbits")),
        ("group_size", DType::I32, number("group_size")),
        ("shape", DType::I64, json!(shape)),
        ("axis", DType::I32, number("axis")),
        ("packing", DType::U8, json!(packing(quantizer.bits))),
        (
            "unpack_view_dtype",
            DType::U8,
            torch_name(format.segments[0].dtype),
        ),
        ("view_as_float", DType::U8, json!(0)),
        ("quant_scale", DType::U8, json!(0)),
        ("quant_zero", DType::U8, json!(0)),
        ("compute_dtype", DType::U8, torch_name(dtype)),
        ("offload_meta", DType::U8, json!(0)),
        ("encoded_state_dict", DType::U8, json!(1)),
        ("stores_quant_config", DType::U8, json!(1)),
        ("channel_wise", DType::U8, json!(1)),
        ("optimize", DType::U8, flag(&arguments["optimize"])),
        ("round_zero", DType::U8, flag(&arguments["round_zero"])),
    ] {
        let constant = SavedConstant {
            value,
            free: FREE.contains(&name),
        };
        tensors.push(SavedTensor {
            name: name.to_owned(),
            dtype,
            shape: constant.shape(),
            content: SavedContent::Constant(constant),
            also_stored_as: Vec::new(),
        });
    }
    Ok(SavedForm { tensors })
}

/// The dtype of scales and zeros.
fn plain(quantizer: &HqqQuantizer) -> Result<DType> {
    match quantizer.meta {
        MetaStore::Plain(dtype) => Ok(dtype),
        _ => Err(PluginError::unsupported(
            "hqq's state has no place for quantized scales and zeros; set meta = \"f32\", \"f16\" or \"bf16\"",
        )),
    }
}

/// Arguments that do not change the bytes: how they are viewed, computed with, and produced.
const FREE: [&str; 3] = ["view_as_float", "compute_dtype", "round_zero"];

/// The `quantization_config` that transformers writes for such a model, and the solver's profile.
///
/// Where options differ, the arguments are listed by tag, as in `HqqConfig(dynamic_config=...)`. A
/// tag has no layer number; where layers differ, its arguments are those of the first. Loaders use
/// the tensors beside each weight.
///
/// # Source
/// transformers 4.57.3 `utils/quantization_config.py`, `HqqConfig.to_dict`; `integrations/hqq.py`,
/// `name_to_linear_tag`.
///
/// # Errors
/// As [`form`]'s.
pub fn config(quantizer: &HqqQuantizer, model: &SavedModel) -> Result<Json> {
    plain(quantizer)?;
    let mut config = json!({
        "quant_config": {
            "weight_quant_params": arguments(quantizer),
            "scale_quant_params": null,
            "zero_quant_params": null,
            "offload_meta": false,
        },
        "quant_method": METHOD,
        "skip_modules": model.dense_modules,
        PROFILE: quantizer.profile.name(),
    });
    if model.configs.is_empty() {
        return Ok(config);
    }
    let mut by_tag = BTreeMap::new();
    for (module, own) in &model.configs {
        by_tag
            .entry(tag(module))
            .or_insert_with(|| own["quant_config"].clone());
    }
    config["quant_config"] = json!(by_tag);
    // One name for all weights, or none at all.
    if model
        .configs
        .values()
        .any(|own| own[PROFILE] != config[PROFILE])
    {
        config[PROFILE] = Json::Null;
    }
    Ok(config)
}

/// The options of a saved weight.
///
/// # Errors
/// `UNSUPPORTED` for weights of another quantizer, `INVALID` for a state that hqq does not write.
pub fn options(saved: &SavedDescription) -> Result<Options> {
    match saved.config.get("quant_method") {
        Some(method) if method == METHOD => {}
        found => {
            let found = found.unwrap_or(&Json::Null);
            return Err(PluginError::unsupported(format!(
                "`quant_method` of its quantization_config is {found}, `hqq` reads \"{METHOD}\""
            )));
        }
    }
    let mut options = Map::new();
    for (name, option) in [
        ("nbits", "bits"),
        ("group_size", "group_size"),
        ("axis", "axis"),
    ] {
        let found = saved.objects.get(name);
        let Some(number) = found.filter(|found| found.is_u64()) else {
            return Err(unexpected(name, "a whole number", found));
        };
        options.insert(option.to_owned(), number.clone());
    }
    let optimize = match saved.objects.get("optimize") {
        Some(found) if *found == 0 || *found == 1 => *found == 1,
        found => return Err(unexpected("optimize", "0 or 1", found)),
    };
    options.insert("optimize".to_owned(), json!(optimize));
    options.insert("meta".to_owned(), json!(meta(saved)?));
    if let Some(Json::String(profile)) = saved.config.get(PROFILE) {
        Profile::named(profile)?;
        options.insert("profile".to_owned(), json!(profile));
    }
    Ok(Options(options))
}

/// How scales and zeros are stored: hqq gives both its compute dtype.
fn meta(saved: &SavedDescription) -> Result<String> {
    let dtype = |name: &str| saved.stored.get(name).map(|stored| stored.dtype);
    match [dtype("scale"), dtype("zero")] {
        [Some(scale), Some(zero)] if scale == zero => Ok(scale.name()),
        [scale, zero] => {
            let name = |dtype: Option<DType>| dtype.map_or("missing".to_owned(), DType::name);
            Err(PluginError::invalid(format!(
                "`scale` is {}, `zero` is {}; expected f32, f16 or bf16 for both",
                name(scale),
                name(zero)
            )))
        }
    }
}

fn unexpected(name: &str, expected: &str, found: Option<&Json>) -> PluginError {
    let found = found.unwrap_or(&Json::Null);
    PluginError::invalid(format!("`{name}`: expected {expected}, found {found}"))
}

/// `weight_quant_params`: the arguments of hqq's `Quantizer.quantize`.
fn arguments(quantizer: &HqqQuantizer) -> Json {
    json!({
        "nbits": quantizer.bits,
        "channel_wise": true,
        "group_size": quantizer.group_size,
        "optimize": quantizer.zeros == Zeros::Solved,
        "round_zero": quantizer.bits == 4,
        "axis": match quantizer.axis {
            Axis::Strided => 0,
            Axis::Consecutive => 1,
        },
        "view_as_float": false,
    })
}

fn flag(value: &Json) -> Json {
    json!(i32::from(*value == true))
}

/// The name of a packing in `Quantizer.bit_to_packing`.
fn packing(bits: u32) -> &'static str {
    match bits {
        1 => "1bit_u8",
        2 => "2bit_u8",
        3 => "3bit_32",
        4 => "4bit_u8",
        _ => "8bit_u8",
    }
}

fn torch_name(dtype: DType) -> Json {
    json!(match dtype {
        DType::BF16 => "torch.bfloat16",
        DType::F16 => "torch.float16",
        DType::I32 => "torch.int32",
        DType::U8 => "torch.uint8",
        _ => "torch.float32",
    })
}

/// A module's name without layers and their numbers: `self_attn.q_proj`.
fn tag(module: &str) -> String {
    let is_kept = |part: &&str| !["model", "layers"].contains(part) && part.parse::<u64>().is_err();
    module
        .split('.')
        .filter(is_kept)
        .collect::<Vec<_>>()
        .join(".")
}

#[cfg(test)]
mod tests;
