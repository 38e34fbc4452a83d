//! The output directory of a training run -> the config keys for generation with its model.

use std::path::Path;

use espalier_system::failure::UsageError;
use espalier_system::files::{self, Damage, FileKind};
use serde_json::{Map, Value};

use crate::Error;
use crate::checkpoint::{CheckpointError, completed_config};
use crate::export::ExportRecord;

/// Sections that determine the weights; the others only affect training. The settings of an adapter
/// are in its own files.
const SECTIONS: [&str; 5] = ["plugins", "family", "quantizer", "backend", "sites"];
/// Keys of `[model]` that determine the weights.
const MODEL_KEYS: [&str; 5] = ["path", "compute", "params", "keep_f32", "train_only"];

/// The config keys of the run in `directory` by its `run.json`, with its saved adapter, or its
/// saved model after full fine-tuning.
///
/// # Errors
/// A directory without a `run.json`, or of a run that has saved nothing yet; files whose size
/// changed.
pub fn recorded(directory: &Path) -> Result<Map<String, Value>, Error> {
    let run = files::read_object(&directory.join("run.json"), FileKind::Record)?;
    let mut config = completed_config(&run);
    let swaps = run.get("swaps").and_then(Value::as_array);
    if let Some(last) = swaps.and_then(|swaps| swaps.last()) {
        // All of each section that a swap can change, at the end of the run.
        for (section, values) in last["config"].as_object().into_iter().flatten() {
            match section.as_str() {
                "run" => config["run"]["backend"] = values["backend"].clone(),
                _ => config[section.as_str()] = values.clone(),
            }
        }
    }
    let mut keys = Map::new();
    for name in SECTIONS {
        if let Some(value) = config.get(name).filter(|value| !value.is_null()) {
            keys.insert(name.to_owned(), value.clone());
        }
    }
    let mut model = Map::new();
    for name in MODEL_KEYS {
        if let Some(value) = config["model"].get(name).filter(|value| !value.is_null()) {
            model.insert(name.to_owned(), value.clone());
        }
    }
    let kept = ExportRecord::of(&run);
    if let ExportRecord::These(exported) = &kept
        && let Err(Damage { file, problem }) = exported.look(directory)
    {
        return Err(Error::Resume(CheckpointError::Exported {
            directory: directory.join(&exported.directory),
            file,
            problem,
            remedy: "write it again with `host train --resume`, or name a model with --model",
        }));
    }
    let saved = |name: &str| {
        let path = directory.join(name);
        (kept != ExportRecord::NotYet && path.is_dir())
            .then(|| Value::from(path.display().to_string()))
    };
    match (saved("adapter"), saved("model")) {
        (Some(adapter), _) => model.insert("adapter".to_owned(), adapter),
        (None, Some(path)) => model.insert("path".to_owned(), path),
        (None, None) => {
            return Err(Error::Usage(UsageError {
                message: format!(
                    "{}: expected `adapter/` or `model/`, found neither: the run is not finished",
                    directory.display()
                ),
                next_step: "finish it with `host train --resume`, or name a model with --model"
                    .to_owned(),
            }));
        }
    };
    keys.insert("model".to_owned(), Value::Object(model));
    if let Some(template) = config["data"].get("chat_template").filter(|v| !v.is_null()) {
        let data = Map::from_iter([("chat_template".to_owned(), template.clone())]);
        keys.insert("data".to_owned(), Value::Object(data));
    }
    Ok(keys)
}
