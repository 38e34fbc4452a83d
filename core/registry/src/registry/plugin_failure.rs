//! A call of a plugin that failed.

use std::path::PathBuf;

use espalier_interface::{ErrorCode, PluginError};
use espalier_system::failure::{ExitClass, Failure};
use espalier_system::memory::OutOfMemory;

use super::PluginIdentity;

/// The next step for the user where a run's numbers are not finite.
pub const NOT_FINITE_NEXT_STEP: &str =
    "lower optim.learning_rate, raise the warm-up, or try model.compute = \"f32\"";

/// Calls in which a plugin finds out that a driver or a library is missing.
pub(super) const BEFORE_A_RUN: [&str; 4] = ["create", "devices", "open", "prepare"];

/// A plugin failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("plugin `{plugin}` failed in {callback}{}", in_file(.file))]
pub struct PluginFailure {
    /// The component's name.
    pub plugin: String,
    /// The call that failed: `encode`, `launch`.
    pub callback: String,
    /// The library; none where the plugin is linked into the host.
    pub file: Option<PathBuf>,
    /// The plugin's error.
    pub source: PluginError,
}

impl PluginFailure {
    /// The failure of the call `callback` of `plugin`, whose library is not known yet.
    pub fn new(plugin: &str, callback: &str, source: PluginError) -> Self {
        PluginFailure {
            plugin: plugin.to_owned(),
            callback: callback.to_owned(),
            file: None,
            source,
        }
    }

    /// The same failure, naming the component that plays `role` where only the role was known.
    pub fn naming(mut self, role: &str, identity: &PluginIdentity) -> Self {
        if self.plugin == role {
            self.plugin.clone_from(&identity.component);
            self.file.clone_from(&identity.file);
        }
        self
    }
}

impl Failure for PluginFailure {
    /// A plugin's own code decides what kind of failure it is.
    fn exit_class(&self) -> ExitClass {
        match self.source.code {
            ErrorCode::NOT_FINITE => ExitClass::Numbers,
            ErrorCode::OUT_OF_MEMORY => ExitClass::Resources,
            _ => ExitClass::Plugin,
        }
    }

    fn next_step(&self) -> String {
        let plugin = &self.plugin;
        match self.source.code {
            ErrorCode::INVALID => format!("see `host plugins inspect {plugin}`"),
            // A key or a value of config.json.
            ErrorCode::UNSUPPORTED if self.callback == "describe" => {
                "change what the message names, or choose another plugin".to_owned()
            }
            ErrorCode::UNSUPPORTED => "choose another plugin or another option".to_owned(),
            ErrorCode::OUT_OF_MEMORY => OutOfMemory::NEXT_STEP.to_owned(),
            // The weight comes from the model: nothing was trained yet.
            ErrorCode::NOT_FINITE if self.callback == "encode" => {
                "check that weight in the model's files, or keep it dense by [[sites]] with quantizer = \"none\"".to_owned()
            }
            ErrorCode::NOT_FINITE => NOT_FINITE_NEXT_STEP.to_owned(),
            // A driver or a library that it needs is missing, or fails.
            ErrorCode::DEVICE if BEFORE_A_RUN.contains(&self.callback.as_str()) => format!(
                "install what its message names, or report it to the author of `{plugin}`, with \
                 this message"
            ),
            ErrorCode::DEVICE => format!(
                "a training run continues from its last checkpoint with --resume; where it fails \
                 again, report it to the author of `{plugin}`, with this message"
            ),
            _ => format!("report it to the author of `{plugin}`, with this message"),
        }
    }
}

fn in_file(file: &Option<PathBuf>) -> String {
    match file {
        Some(path) => format!(" ({})", path.display()),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: ErrorCode) -> PluginFailure {
        PluginFailure {
            file: Some("/plugins/libnf4.so".into()),
            ..PluginFailure::new("nf4", "encode", PluginError::new(code, "not finite"))
        }
    }

    #[test]
    fn a_family_that_does_not_know_a_key_asks_to_change_it() {
        let source = PluginError::unsupported("config.json: `rope_parametgrs` is {}");
        let next = PluginFailure::new("llama", "describe", source).next_step();
        assert_eq!(
            next,
            "change what the message names, or choose another plugin"
        );
    }

    #[test]
    fn a_failing_device_says_what_to_install_or_to_resume() {
        let step = |callback: &str| {
            let source = PluginError::new(ErrorCode::DEVICE, "no driver");
            PluginFailure::new("cuda", callback, source).next_step()
        };
        assert!(step("open").starts_with("install what its message names"));
        assert!(step("query").contains("--resume"));
    }

    #[test]
    fn a_plugins_own_code_decides_what_kind_of_failure_it_is() {
        assert_eq!(failure(ErrorCode::PANIC).exit_class().code(), 5);
        assert_eq!(failure(ErrorCode::INVALID).exit_class().code(), 5);
        assert_eq!(failure(ErrorCode::NOT_FINITE).exit_class().code(), 7);
        assert_eq!(failure(ErrorCode::OUT_OF_MEMORY).exit_class().code(), 8);
        let shown = failure(ErrorCode::PANIC).to_string();
        assert_eq!(shown, "plugin `nf4` failed in encode (/plugins/libnf4.so)");
    }
}
