//! A well-known model's name -> its published `config.json`, so that a plan needs no download.

use std::path::PathBuf;

use espalier_config::nearest;
use espalier_system::failure::UsageError;
use espalier_system::files::ModelDirectory;

use crate::Error;

macro_rules! presets {
    ($($name:literal),* $(,)?) => {
        /// Names and configs. The shapes are those of the models' own `config.json` files.
        const PRESETS: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../../../configs/models/", $name, ".json")))),*
        ];
    };
}

presets![
    "llama2-7b",
    "llama2-13b",
    "llama2-70b",
    "llama3-8b",
    "llama3-70b",
    "llama3.1-405b",
    "llama3.2-1b",
    "llama3.2-3b",
    "tinyllama-1.1b",
    "mistral-7b",
    "qwen2.5-0.5b",
    "qwen2.5-7b",
    "qwen2.5-14b",
    "qwen3-8b",
    "gemma2-2b",
    "gemma2-9b",
    "gemma3-1b",
    "phi3-mini-4k",
    "phi4",
    "starcoder2-3b",
];

/// The names of all presets.
pub fn names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|(name, _)| *name)
}

/// The model called `name`, as a directory without files.
///
/// # Errors
/// [`Error::Usage`], with the nearest name and all names, for an unknown name.
pub fn model(name: &str) -> Result<ModelDirectory, Error> {
    let Some((_, config)) = PRESETS.iter().find(|(known, _)| *known == name) else {
        let all = names().collect::<Vec<_>>().join(", ");
        return Err(Error::Usage(UsageError {
            message: format!("no preset is called `{name}`; there are {all}"),
            next_step: match nearest(name, names()) {
                Some(meant) => format!("write --preset {meant}"),
                None => "choose one of them, or name a folder with a config.json: --model DIR"
                    .to_owned(),
            },
        }));
    };
    let config = serde_json::from_str(config).expect("a test reads every preset");
    let path = PathBuf::from(format!("preset {name}"));
    Ok(ModelDirectory::without_files(path, config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_a_config() {
        for name in names() {
            let model = model(name).expect("a preset");
            assert!(model.config()["model_type"].is_string(), "{name}");
        }
    }

    #[test]
    fn a_slip_is_answered_with_the_nearest_name() {
        let error = model("lama3-8b").expect_err("a slip").to_string();
        assert!(error.contains("`lama3-8b`"), "{error}");
        assert!(error.contains("llama2-70b"), "{error}");
    }
}
