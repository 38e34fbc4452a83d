//! The output directory of a training run -> the config keys for another command on the run.

mod places;

use std::path::Path;

use espalier_interface::Role;
use espalier_system::failure::UsageError;
use espalier_system::files::{self, Damage, FileKind};
use serde_json::{Map, Value};

use crate::Error;
use crate::calibration::ROWS_FILE;
use crate::checkpoint::{CheckpointError, completed_config};
use crate::export::ExportRecord;

pub(crate) use places::WORKING_DIRECTORY;

use places::Places;

/// Sections that determine the weights; the others only affect training. The settings of an adapter
/// are in its own files.
const SECTIONS: [&str; 3] = ["quantizer", "backend", "sites"];
/// Keys of `[model]` that determine the weights.
const MODEL_KEYS: [&str; 5] = ["path", "compute", "params", "keep_f32", "train_only"];
/// Keys of `[run]` that determine what a model computes with.
const RUN_KEYS: [&str; 2] = ["backend", "plugin_dirs"];
/// Keys of `[data]` that choose and order the rows of training. The others say how rows are read.
const ROW_CHOICE: [&str; 6] = [
    "files",
    "eval_files",
    "eval_split",
    "split_seed",
    "shuffle",
    "cache_dir",
];
/// Roles that place and transfer the bytes of training: they have no part in another command.
const LAYOUT: [Role; 2] = [Role::SHARDING, Role::COLLECTIVE];
/// Sections of a comparison, which have no effect on one of its runs.
const COMPARISON: [&str; 2] = ["compare", "arms"];

/// The keys of the run's trained model: what `generate` and `merge` read.
///
/// # Errors
/// A directory without a `run.json`, or of a run that has saved nothing yet; files whose size
/// changed.
pub fn of_model(directory: &Path) -> Result<Map<String, Value>, Error> {
    Recorded::open(directory)?.model()
}

/// The keys of the run's trained model and of how it reads rows, with its held-out files as the
/// rows: what `eval` reads.
///
/// # Errors
/// As [`of_model`].
pub fn of_rows(directory: &Path) -> Result<Map<String, Value>, Error> {
    let recorded = Recorded::open(directory)?;
    let mut keys = recorded.model()?;
    let mut data = recorded.table("data");
    let held_out: Value = data
        .get("eval_files")
        .into_iter()
        .flat_map(list)
        .cloned()
        .collect();
    data.retain(|name, _| !ROW_CHOICE.contains(&name.as_str()));
    data.extend(recorded.calibration());
    if list(&held_out).next().is_some() {
        data.insert("files".to_owned(), held_out);
    }
    keys.insert("data".to_owned(), Value::Object(data));
    Ok(keys)
}

/// All keys of the run, to continue it: what `train --resume DIR` reads. Swaps on record are no
/// part of them.
///
/// # Errors
/// A directory without a `run.json`.
pub fn of_run(directory: &Path) -> Result<Map<String, Value>, Error> {
    let run = files::read_object(&directory.join("run.json"), FileKind::Record)?;
    let recorded = Recorded::before_swaps(directory, run);
    let Value::Object(mut keys) = without_nulls(&recorded.config) else {
        return Ok(Map::new());
    };
    keys.retain(|section, _| !COMPARISON.contains(&section.as_str()));
    Ok(keys)
}

/// A run's record.
struct Recorded<'a> {
    directory: &'a Path,
    /// The content of `run.json`.
    run: Value,
    /// Its config, with files and folders as they are found from here.
    config: Value,
}

impl<'a> Recorded<'a> {
    /// The record in `directory`, with the components and options after the run's swaps.
    fn open(directory: &'a Path) -> Result<Self, Error> {
        let run = files::read_object(&directory.join("run.json"), FileKind::Record)?;
        let mut recorded = Recorded::before_swaps(directory, run);
        let swaps: Vec<Value> = list(&recorded.run["swaps"]).cloned().collect();
        let Some(last) = swaps.last() else {
            return Ok(recorded);
        };
        // All of each section that a swap can change, at the end of the run.
        let config = &mut recorded.config;
        for (section, values) in last["config"].as_object().into_iter().flatten() {
            match section.as_str() {
                "run" => config["run"]["backend"] = values["backend"].clone(),
                _ => config[section.as_str()] = values.clone(),
            }
        }
        if last["plugins"].is_array() {
            recorded.run["plugins"] = last["plugins"].clone();
        }
        let own = &recorded.config["run"]["plugin_dirs"];
        let of_swaps = swaps
            .iter()
            .rev()
            .flat_map(|swap| list(&swap["request"]["plugin_dirs"]));
        let folders: Vec<Value> = of_swaps.chain(list(own)).cloned().collect();
        recorded.config["run"]["plugin_dirs"] = Value::from(folders);
        Ok(recorded)
    }

    fn before_swaps(directory: &'a Path, run: Value) -> Self {
        let places = Places::of(&run);
        let mut config = completed_config(&run);
        places.find_in(&mut config);
        Recorded {
            directory,
            run,
            config,
        }
    }

    /// The keys that determine the weights.
    fn model(&self) -> Result<Map<String, Value>, Error> {
        let mut keys = Map::new();
        for name in SECTIONS {
            if let Some(value) = self.config.get(name).filter(|value| !value.is_null()) {
                keys.insert(name.to_owned(), value.clone());
            }
        }
        keys.insert("plugins".to_owned(), self.plugins());
        let mut model = self.table("model");
        let init = model.get("init").cloned();
        model.retain(|name, _| MODEL_KEYS.contains(&name.as_str()));
        let mut run = self.table("run");
        let seed = run.get("seed").cloned();
        run.retain(|name, _| RUN_KEYS.contains(&name.as_str()));
        match self.saved()? {
            (name @ "adapter", path) => {
                model.insert(name.to_owned(), path);
                // A random base follows from the run's seed.
                if let Some(init) = init.filter(|init| init == "random") {
                    model.insert("init".to_owned(), init);
                    run.extend(seed.map(|seed| ("seed".to_owned(), seed)));
                }
            }
            (_, path) => drop(model.insert("path".to_owned(), path)),
        }
        keys.insert("model".to_owned(), Value::Object(model));
        keys.insert("run".to_owned(), Value::Object(run));
        let mut data = self.calibration();
        if let Some(template) = self.table("data").remove("chat_template") {
            data.insert("chat_template".to_owned(), template);
        }
        if !data.is_empty() {
            keys.insert("data".to_owned(), Value::Object(data));
        }
        Ok(keys)
    }

    /// The keys by which the run's base is calibrated again; none where it was not.
    fn calibration(&self) -> Map<String, Value> {
        let mut keys = Map::new();
        let Some(rows) = self.run["calibration"]["rows"].as_u64() else {
            return keys;
        };
        let file = self.directory.join(ROWS_FILE).display().to_string();
        keys.insert("calibration_files".to_owned(), Value::from(vec![file]));
        keys.insert("calibration_rows".to_owned(), Value::from(rows));
        // Longer rows would be cut.
        let longest = self.table("data").remove("max_seq_len");
        keys.extend(longest.map(|longest| ("max_seq_len".to_owned(), longest)));
        keys
    }

    /// The exported directory: `adapter` or `model`, and its path.
    fn saved(&self) -> Result<(&'static str, Value), Error> {
        let directory = self.directory;
        let kept = ExportRecord::of(&self.run);
        if let ExportRecord::These(exported) = &kept
            && let Err(Damage { file, problem }) = exported.look(directory)
        {
            return Err(Error::Resume(CheckpointError::Exported {
                directory: directory.join(&exported.directory),
                file,
                problem,
                remedy: "write it again with `host train --resume DIR`, or name a model with --model",
            }));
        }
        let saved = ["adapter", "model"].into_iter().find_map(|name| {
            let path = directory.join(name);
            let there = kept != ExportRecord::NotYet && path.is_dir();
            there.then(|| (name, Value::from(path.display().to_string())))
        });
        saved.ok_or_else(|| {
            Error::Usage(UsageError {
                message: format!(
                    "{}: expected `adapter/` or `model/`, found neither: the run is not finished",
                    directory.display()
                ),
                next_step: "finish it with `host train --resume DIR`, or name a model with --model"
                    .to_owned(),
            })
        })
    }

    /// The names of the components, except those of [`LAYOUT`].
    fn plugins(&self) -> Value {
        let of_layout: Vec<&Value> = list(&self.run["plugins"])
            .filter(|one| LAYOUT.iter().any(|role| one["role"] == role.0))
            .map(|one| &one["component"])
            .collect();
        list(&self.config["plugins"])
            .filter(|name| !of_layout.contains(name))
            .cloned()
            .collect()
    }

    /// The values of a section, without those that are unset.
    fn table(&self, section: &str) -> Map<String, Value> {
        match without_nulls(&self.config[section]) {
            Value::Object(table) => table,
            _ => Map::new(),
        }
    }
}

/// The items of a list; none of any other value.
fn list(value: &Value) -> impl DoubleEndedIterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A tree of tables without the keys that are unset.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(table) => {
            let set = table.iter().filter(|(_, value)| !value.is_null());
            set.map(|(key, value)| (key.clone(), without_nulls(value)))
                .collect()
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests;
