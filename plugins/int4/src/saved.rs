//! A weight -> its tensors and config in the files of GPTQ and AWQ, and the options of such a saved
//! weight.

use espalier_interface::saved_form::{
    SavedAxis, SavedContent, SavedCounting, SavedDescription, SavedForm, SavedModel, SavedOrder,
    SavedTensor,
};
use espalier_interface::{DType, Options, PluginError, Result};
use serde_json::{Map, Value as Json, json};

use crate::files::{Files, PER_WORD};
use crate::grid::Symmetry;
use crate::grouping::LARGEST_GROUP;
use crate::number::Number;
use crate::quantizer::Int4Quantizer;

/// The first GPTQModel that takes one from whole words of zero points, as its `meta` names it. It
/// loads asymmetric files of its first format only where they name such a version.
const WORDS_SINCE: (&str, [u64; 2]) = ("gptqmodel:0.9.0", [0, 9]);

/// The `quant_method`s that are read and written, for the host.
pub const METHODS: &str = "gptq,awq";

/// The tensors of a weight `[N, M]`.
///
/// # Errors
/// `UNSUPPORTED` for options and shapes for which the files have no place; those of the format.
///
/// # Source
/// AutoGPTQ 0.7.1 `nn_modules/qlinear/qlinear_cuda_old.py`; GPTQModel 7.7.0
/// `nn_modules/qlinear/torch.py` and `utils/model.py`, `convert_gptq_v2_to_v1_format`; AutoAWQ
/// 0.2.9 `modules/linear/gemm.py`, `WQLinear_GEMM.from_linear`.
pub fn form(quantizer: &Int4Quantizer, shape: [u64; 2]) -> Result<SavedForm> {
    let (files, name) = (quantizer.files, quantizer.files.name());
    let unsupported = |what: String| Err(PluginError::unsupported(what));
    let spec = quantizer.grid;
    if spec.bits != 4 {
        return unsupported(format!(
            "files of {name} with {} bits are not written: set bits = 4",
            spec.bits
        ));
    }
    let format = quantizer.format(shape)?;
    let [rows, cols] = shape;
    if !rows.is_multiple_of(PER_WORD) || !cols.is_multiple_of(PER_WORD) {
        return unsupported(format!(
            "{name} packs eight codes of rows and columns into a word, and a weight has the shape {shape:?}"
        ));
    }
    let groups = format.segments[1].len / rows;
    let tensor = |name: &str, dtype: DType, shape: Vec<u64>, content: SavedContent| SavedTensor {
        name: name.to_owned(),
        dtype,
        shape,
        content,
        also_stored_as: Vec::new(),
    };
    let order = |segment: usize, bits: u64, axes: Vec<SavedAxis>| {
        SavedContent::Order(SavedOrder {
            segment,
            bits: bits as u32,
            axes,
            added: 0,
            taken_from_words: 0,
        })
    };
    let (words, codes) = match files {
        Files::Awq => (
            vec![cols, rows / PER_WORD],
            order(0, 4, files.words_of_rows(rows, cols)),
        ),
        Files::Gptq | Files::GptqModel | Files::GptqV2 => {
            let words = cols / PER_WORD;
            let axes = vec![SavedAxis::new(words, 1), SavedAxis::new(rows, words)];
            (vec![words, rows], order(0, 32, axes))
        }
    };
    let zeros = match spec.symmetry {
        Symmetry::Asymmetric => SavedContent::Order(SavedOrder {
            segment: 2,
            bits: 4,
            axes: files.words_of_rows(rows, groups),
            added: files.added(),
            taken_from_words: files.taken_from_words(),
        }),
        Symmetry::Symmetric if files == Files::Awq => {
            return unsupported("AWQ's files have zero points: set symmetric = false".to_owned());
        }
        Symmetry::Symmetric => {
            let zero = (spec.between(-1.0, 1.0).zero as u8).wrapping_add(files.added()) & 15;
            let word = u32::from_le_bytes([zero << 4 | zero; 4]);
            SavedContent::Counting(SavedCounting {
                first: word.wrapping_sub(files.taken_from_words()) as i32,
                repeat: u64::MAX,
            })
        }
    };
    let number = spec.number.dtype();
    let scales = vec![SavedAxis::new(groups, 1), SavedAxis::new(rows, groups)];
    let scales = order(1, 8 * number.bytes(), scales);
    let mut tensors = vec![
        tensor("qweight", DType::I32, words, codes),
        tensor("qzeros", DType::I32, vec![groups, rows / PER_WORD], zeros),
        tensor("scales", number, vec![groups, rows], scales),
    ];
    if files != Files::Awq {
        let repeat = cols / groups;
        let counting = SavedContent::Counting(SavedCounting { first: 0, repeat });
        tensors.push(tensor("g_idx", DType::I32, vec![cols], counting));
    }
    Ok(SavedForm { tensors })
}

/// The `quantization_config` of such a model.
///
/// # Errors
/// `UNSUPPORTED` where weights have several options, for which the files have no place.
///
/// # Source
/// transformers 5.23.0 `utils/quantization_config.py`, `GPTQConfig` and `AwqConfig`; `dynamic`, by
/// which modules stay dense, and `meta` are GPTQModel's.
pub fn config(quantizer: &Int4Quantizer, model: &SavedModel) -> Result<Json> {
    let (files, name) = (quantizer.files, quantizer.files.name());
    if !model.configs.is_empty() {
        return Err(PluginError::unsupported(format!(
            "a checkpoint of {name} has one group size and one kind of zero points: give all packed weights the same options"
        )));
    }
    let group_size = match quantizer.group_size {
        LARGEST_GROUP => json!(-1),
        size => json!(size),
    };
    if files == Files::Awq {
        return Ok(json!({
            "bits": 4,
            "group_size": group_size,
            "modules_to_not_convert": model.dense_modules,
            "quant_method": "awq",
            "version": "gemm",
            "zero_point": true,
        }));
    }
    let dense = model.dense_modules.iter().filter(|name| *name != "lm_head");
    let dense = dense.map(|name| (format!("-:^{}$", name.replace('.', "\\.")), json!({})));
    let dense: Map<String, Json> = dense.collect();
    let mut config = json!({
        "bits": 4,
        "checkpoint_format": if files == Files::GptqV2 { "gptq_v2" } else { "gptq" },
        "desc_act": false,
        "group_size": group_size,
        "lm_head": !model.dense_modules.iter().any(|name| name == "lm_head"),
        "quant_method": "gptq",
        "sym": quantizer.grid.symmetry == Symmetry::Symmetric,
    });
    if !dense.is_empty() {
        config["dynamic"] = Json::Object(dense);
    }
    if files == Files::GptqModel {
        config["meta"] = json!({"quantizer": [WORDS_SINCE.0]});
    }
    Ok(config)
}

/// The options of a saved weight.
///
/// # Errors
/// `UNSUPPORTED` for weights that are packed in another way.
pub fn options(saved: &SavedDescription) -> Result<Options> {
    let config = &saved.config;
    let files = files_of(config)?;
    let bits = config.get("bits").or_else(|| config.get("w_bit"));
    if bits != Some(&json!(4)) {
        return unsupported("bits", bits, "4");
    }
    let size = config
        .get("group_size")
        .or_else(|| config.get("q_group_size"));
    let size = match size.and_then(Json::as_i64) {
        Some(-1) => LARGEST_GROUP,
        Some(size) if size > 0 => size as u64,
        _ => return unsupported("group_size", size, "a number above 0, or -1 for whole rows"),
    };
    let symmetric = match (files, config.get("sym")) {
        (Files::Awq, _) | (_, None) => false,
        (_, Some(Json::Bool(symmetric))) => *symmetric,
        (_, other) => return unsupported("sym", other, "true or false"),
    };
    let stored = saved.stored.get("scales").map(|scales| scales.dtype);
    let stored = stored.unwrap_or(Number::F16.dtype());
    let number = [Number::F16, Number::BF16, Number::F32]
        .into_iter()
        .find(|number| number.dtype() == stored);
    let Some(number) = number else {
        return Err(PluginError::unsupported(format!(
            "its scales are of {stored}, expected f16, bf16 or f32"
        )));
    };
    let mut options = Map::new();
    for (name, value) in [
        ("bits", json!(4)),
        ("group_size", json!(size)),
        ("symmetric", json!(symmetric)),
        ("scale_dtype", json!(number.dtype().name())),
        ("files", json!(files.name())),
    ] {
        options.insert(name.to_owned(), value);
    }
    Ok(Options(options))
}

/// Whose files a config describes.
fn files_of(config: &Json) -> Result<Files> {
    let field = |key: &str| config.get(key).filter(|value| !value.is_null());
    match field("quant_method").and_then(Json::as_str) {
        Some("awq") => {
            let version = field("version").and_then(Json::as_str).unwrap_or("gemm");
            if !version.eq_ignore_ascii_case("gemm") {
                return unsupported("version", field("version"), "\"gemm\"");
            }
            match field("zero_point") {
                None | Some(Json::Bool(true)) => Ok(Files::Awq),
                other => unsupported("zero_point", other, "true"),
            }
        }
        Some("gptq") => gptq_files_of(config),
        _ => unsupported("quant_method", field("quant_method"), "\"gptq\" or \"awq\""),
    }
}

/// Which of GPTQ's files a config describes.
fn gptq_files_of(config: &Json) -> Result<Files> {
    let field = |key: &str| config.get(key).filter(|value| !value.is_null());
    let is_set = |value: Option<&Json>| value == Some(&Json::Bool(true));
    // GPTQModel has it in `meta`.
    let in_meta = config.pointer("/meta/static_groups");
    if is_set(field("desc_act")) && !is_set(field("static_groups")) && !is_set(in_meta) {
        return unsupported(
            "desc_act",
            field("desc_act"),
            "false, or `static_groups` beside it: groups of columns in the order of activations \
             (`g_idx`) have no place in this format; quantize with desc_act = false",
        );
    }
    if let Some(rotation) = field("rotation") {
        return unsupported("rotation", Some(rotation), "weights that are not rotated");
    }
    // GPTQModel's name for it; it writes both.
    let format = field("checkpoint_format").or(field("format"));
    match format.map_or(Some("gptq"), Json::as_str) {
        Some("gptq") if takes_from_words(config) => Ok(Files::GptqModel),
        Some("gptq") => Ok(Files::Gptq),
        Some("gptq_v2") => Ok(Files::GptqV2),
        _ => unsupported("checkpoint_format", format, "\"gptq\" or \"gptq_v2\""),
    }
}

/// Whether the `meta` of a config names a GPTQModel that takes one from whole words of zero points.
fn takes_from_words(config: &Json) -> bool {
    let quantizers = match config.pointer("/meta/quantizer") {
        Some(Json::Array(names)) => names.as_slice(),
        Some(name) => std::slice::from_ref(name),
        None => &[],
    };
    let named = quantizers.iter().filter_map(Json::as_str);
    let found = named
        .filter_map(|name| name.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("gptqmodel"));
    let Some((_, version)) = found else {
        return false;
    };
    let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(0));
    let version = [0; 2].map(|zero: u64| numbers.next().unwrap_or(zero));
    version >= WORDS_SINCE.1
}

fn unsupported<T>(key: &str, found: Option<&Json>, expected: &str) -> Result<T> {
    Err(PluginError::unsupported(format!(
        "`{key}` of its quantization_config is {}, `int4` reads {expected}",
        found.unwrap_or(&Json::Null)
    )))
}

#[cfg(test)]
mod tests;
