//! Model, quantizer and adapter.

use serde_json::Value;

use crate::ImportError;
use crate::imported::Making;
use crate::source::Source;

/// Takes their keys over.
///
/// # Errors
/// A value of the wrong kind; no model.
pub fn set(source: &mut Source, making: &mut Making) -> Result<(), ImportError> {
    let (_, model) = source
        .text("base_model")?
        .ok_or(ImportError::Missing("base_model"))?;
    making.set("model.path", model);
    let adapter = adapter(source, making)?;
    quantizer(source, making)?;
    computing(source, making, adapter.as_deref())?;
    if let Some(name) = &adapter {
        making.plugin(name);
        options(source, making, name)?;
    } else {
        unused(source, making);
    }
    if let Some((_, path)) = source.text("lora_model_dir")? {
        making.set("model.adapter", path);
    }
    Ok(())
}

/// The adapter's name here; none where the whole model is trained.
fn adapter(source: &mut Source, making: &mut Making) -> Result<Option<String>, ImportError> {
    let dora = source.flag("peft_use_dora")?.is_some_and(|(_, dora)| dora);
    let Some((key, adapter)) = source.text("adapter")? else {
        return Ok(None);
    };
    match adapter.as_str() {
        "lora" | "qlora" if dora => Ok(Some("dora".to_owned())),
        "lora" | "qlora" => Ok(Some("lora".to_owned())),
        "ia3" => Ok(Some("ia3".to_owned())),
        other => {
            making.lacks(
                key,
                format!("there is no adapter `{other}`; the whole model is trained"),
            );
            Ok(None)
        }
    }
}

fn quantizer(source: &mut Source, making: &mut Making) -> Result<(), ImportError> {
    let four = source.flag("load_in_4bit")?.is_some_and(|(_, set)| set);
    if four {
        making.plugin("nf4");
    }
    if let Some((key, true)) = source.flag("load_in_8bit")? {
        making.plugin("int8");
        making.differs(
            key,
            "there it is LLM.int8(), whose activations are 8-bit too; here `int8` packs weights in blocks of 4096",
        );
    }
    Ok(())
}

/// Number types, and what is computed again.
fn computing(
    source: &mut Source,
    making: &mut Making,
    adapter: Option<&str>,
) -> Result<(), ImportError> {
    if let Some((_, true)) = source.flag("gradient_checkpointing")? {
        making.set("model.recompute", "layer");
    }
    let single = source.flag("fp32")?.is_some_and(|(_, set)| set);
    let half = source.flag("bf16")?;
    if single || matches!(half, Some((_, false))) {
        making.set("model.compute", "f32");
    } else if adapter.is_none() {
        // Such a model is loaded in bf16, and trained so.
        making.set("model.params", "bf16");
    }
    if let Some((key, true)) = source.flag("fp16")? {
        making.lacks(key, "there is no f16; bf16 has its size");
    }
    Ok(())
}

fn options(source: &mut Source, making: &mut Making, name: &str) -> Result<(), ImportError> {
    let of = |option: &str| format!("adapter.{name}.{option}");
    let is_lora = name != "ia3";
    if let Some((key, rank)) = source.whole("lora_r")? {
        if is_lora {
            making.set(&of("rank"), rank as i64);
        } else {
            making.needless(key, "`ia3` has no rank");
        }
    }
    for (key, option) in [("lora_alpha", "alpha"), ("lora_dropout", "dropout")] {
        match source.number(key)? {
            Some((_, value)) if is_lora => making.set(&of(option), value),
            Some((key, _)) => making.needless(key, "`ia3` has none"),
            None => {}
        }
    }
    if let Some((_, rslora)) = source.flag("peft_use_rslora")? {
        making.set(&of("rslora"), rslora);
    }
    if let Some((_, ratio)) = source.number("loraplus_lr_ratio")? {
        making.set(&of("learning_rate_ratio"), ratio);
    }
    if let Some((_, true)) = source.flag("lora_target_linear")? {
        making.set(&of("targets"), "all-linear");
    }
    if let Some((key, targets)) = source.take("lora_target_modules") {
        match names(&targets) {
            Some(targets) => making.set(&of("targets"), targets),
            None if targets == "all-linear" => making.set(&of("targets"), "all-linear"),
            None => making.lacks(key, "a regular expression; name the modules in a list"),
        }
    }
    for key in ["lora_modules_to_save", "modules_to_save"] {
        if let Some((key, modules)) = source.take(key) {
            match names(&modules) {
                Some(modules) => making.set(&of("modules_to_save"), modules),
                None => making.lacks(key, "expected a list of modules"),
            }
        }
    }
    if let Some((key, peft)) = source.take("peft") {
        let why = if peft.get("loftq_config").is_some() {
            "LoftQ begins with `host split --set adapter.lora.init=loftq`, which writes a base and an adapter"
        } else {
            "set these options of PEFT by those of the adapter: `host config adapter`"
        };
        making.lacks(key, why);
    }
    Ok(())
}

/// Options of an adapter, where the whole model is trained.
fn unused(source: &mut Source, making: &mut Making) {
    for key in [
        "lora_r",
        "lora_alpha",
        "lora_dropout",
        "lora_target_linear",
        "lora_target_modules",
        "lora_modules_to_save",
        "modules_to_save",
        "peft_use_rslora",
        "loraplus_lr_ratio",
        "peft",
    ] {
        if let Some((key, _)) = source.take(key) {
            making.needless(key, "there is no adapter");
        }
    }
}

/// A list of texts.
pub fn names(value: &Value) -> Option<toml::Value> {
    let names = value.as_array()?.iter();
    let names: Option<Vec<toml::Value>> = names
        .map(|name| name.as_str().map(|name| name.into()))
        .collect();
    names.map(toml::Value::Array)
}
