//! A weight -> its tensors and config in compressed-tensors' checkpoints, and whether such a saved
//! weight is of this quantizer.

use espalier_interface::saved_form::{
    SavedContent, SavedDescription, SavedForm, SavedModel, SavedTensor,
};
use espalier_interface::{DType, Options, PluginError, Result};
use serde_json::{Map, Value as Json, json};

use crate::quantizer::{ScaledFloat, Scales};

/// The `quant_method` of transformers.
pub const METHOD: &str = "compressed-tensors";

/// The tensors of a weight `[N, M]`.
///
/// # Errors
/// `INVALID` for rows that are not whole blocks.
///
/// # Source
/// compressed-tensors 0.20.0 `compressors/nvfp4/base.py` and `compressors/mxfp4/base.py`.
pub fn form(quantizer: &ScaledFloat, shape: [u64; 2]) -> Result<SavedForm> {
    let segments = quantizer.format(shape)?.segments;
    let [rows, cols] = shape;
    let tensor = |index: usize, name: &str, dtype: DType, shape: Vec<u64>| SavedTensor {
        name: name.to_owned(),
        dtype,
        shape,
        content: SavedContent::Segment(index),
        also_stored_as: Vec::new(),
    };
    let blocks = vec![rows, cols / quantizer.block_size()];
    let scale = match quantizer.scales {
        Scales::E8M0 => DType::U8,
        Scales::E4M3 => DType::F8_E4M3,
    };
    let mut tensors = vec![
        tensor(0, "weight_packed", DType::U8, vec![rows, cols / 2]),
        tensor(1, "weight_scale", scale, blocks),
    ];
    if let Some(global) = segments.get(2) {
        tensors.push(tensor(2, "weight_global_scale", global.dtype, vec![1]));
    }
    Ok(SavedForm { tensors })
}

/// The format's name in compressed-tensors.
fn format_name(quantizer: &ScaledFloat) -> String {
    format!("{}-pack-quantized", quantizer.name())
}

/// The scheme of the weights, without keys that have their defaults.
fn weights(quantizer: &ScaledFloat) -> Json {
    let (strategy, scale) = match quantizer.scales {
        Scales::E8M0 => ("group", "torch.uint8"),
        Scales::E4M3 => ("tensor_group", "torch.float8_e4m3fn"),
    };
    json!({
        "num_bits": 4,
        "type": "float",
        "symmetric": true,
        "strategy": strategy,
        "group_size": quantizer.block_size(),
        "dynamic": false,
        "scale_dtype": scale,
        "zp_dtype": scale,
    })
}

/// The `quantization_config` of such a model.
///
/// # Source
/// compressed-tensors 0.20.0 `quantization/quant_config.py`, `QuantizationConfig`; presets
/// `MXFP4A16` and `NVFP4A16` of `quantization/quant_scheme.py`.
pub fn config(quantizer: &ScaledFloat, model: &SavedModel) -> Json {
    let format = format_name(quantizer);
    json!({
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": weights(quantizer),
                "input_activations": null,
                "output_activations": null,
                "format": format,
            },
        },
        "format": format,
        "global_compression_ratio": null,
        "ignore": model.dense_modules,
        "kv_cache_scheme": null,
        "quant_method": METHOD,
        "quantization_status": "compressed",
    })
}

/// No options: the quantizer has none. Groups of the config differ in their targets, never in how
/// weights are packed.
///
/// # Errors
/// `UNSUPPORTED` for weights of another format.
pub fn options(quantizer: &ScaledFloat, saved: &SavedDescription) -> Result<Options> {
    let (config, name) = (&saved.config, quantizer.name());
    let unsupported = |what: String| Err(PluginError::unsupported(what));
    let method = config.get("quant_method").unwrap_or(&Json::Null);
    if *method != METHOD {
        return unsupported(format!(
            "`quant_method` of its quantization_config is {method}, `{name}` reads \"{METHOD}\""
        ));
    }
    let groups = config.get("config_groups").and_then(Json::as_object);
    let groups = groups.filter(|groups| !groups.is_empty());
    let Some(groups) = groups else {
        return unsupported("its quantization_config has no `config_groups`".to_owned());
    };
    let expected = weights(quantizer);
    for (group, scheme) in groups {
        for key in ["num_bits", "type", "symmetric", "group_size"] {
            let found = scheme.get("weights").and_then(|weights| weights.get(key));
            // Older files leave out what has its default.
            let found = found.unwrap_or(match key {
                "symmetric" => &Json::Bool(true),
                _ => &Json::Null,
            });
            if *found != expected[key] {
                return unsupported(format!(
                    "`config_groups.{group}.weights.{key}` of its quantization_config is {found}, \
                     `{name}` reads {}",
                    expected[key]
                ));
            }
        }
    }
    Ok(Options(Map::new()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use espalier_interface::{ErrorCode, Serial};

    use super::*;

    fn quantizers() -> [ScaledFloat; 2] {
        [Scales::E8M0, Scales::E4M3].map(|scales| ScaledFloat {
            scales,
            services: Arc::new(Serial),
        })
    }

    fn saved(quantizer: &ScaledFloat) -> SavedDescription {
        let model = SavedModel {
            dtype: DType::BF16,
            dense_modules: vec!["lm_head".to_owned()],
            configs: Default::default(),
        };
        SavedDescription {
            config: config(quantizer, &model),
            ..SavedDescription::default()
        }
    }

    #[test]
    fn each_reads_its_own_config_alone() {
        let [mx, nv] = quantizers();
        for (own, other) in [(&mx, &nv), (&nv, &mx)] {
            assert_eq!(
                options(own, &saved(own)).expect("its own"),
                Options::default()
            );
            let error = options(own, &saved(other)).expect_err("the other's");
            assert_eq!(error.code, ErrorCode::UNSUPPORTED);
            assert!(error.message.contains("weights.group_size"), "{error}");
        }
        for (key, value) in [
            ("quant_method", json!("gptq")),
            ("config_groups", json!({})),
            ("config_groups", json!({"group_0": {"weights": null}})),
        ] {
            let mut changed = saved(&mx);
            changed.config[key] = value;
            let error = options(&mx, &changed).expect_err(key);
            assert!(error.message.contains(key), "{error}");
        }
    }

    #[test]
    fn the_form_holds_every_segment_once() {
        for quantizer in quantizers() {
            let format = quantizer.format([6, 96]).expect("whole blocks");
            format.validate().expect("it fits itself");
            let form = form(&quantizer, [6, 96]).expect("a form");
            form.validate(&format).expect("it fits");
            let error = quantizer.format([6, 40]).expect_err("a part of a block");
            assert!(error.message.contains("rows of 40"), "{error}");
        }
    }
}
