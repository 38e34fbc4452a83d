//! The errors between a component's name and a call of it, with the user's next step.

use espalier_config::{OptionError, nearest};
use espalier_interface::{ErrorCode, PluginError, Role};
use espalier_system::failure::{ExitClass, Failure};

use super::PluginIdentity;
use super::plugin_failure::BEFORE_A_RUN;
use crate::library::LibraryError;

/// A failure of the registry or of a plugin.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// No component has this name.
    #[error(
        "unknown {role} `{name}`{}; known: {}{}",
        meant(.name, .known), list(.known), failed(.broken)
    )]
    UnknownComponent {
        /// The name given.
        name: String,
        /// The expected role, or `plugin` for any.
        role: &'static str,
        /// Names that exist for the role.
        known: Vec<String>,
        /// Libraries that could have had it.
        broken: Vec<LibraryError>,
        /// The folders that were searched.
        searched: Vec<String>,
    },
    /// The component has another role.
    #[error("`{name}` is a component of role {found}, expected one of role {expected}")]
    WrongRole {
        /// The component.
        name: String,
        /// The expected role.
        expected: Role,
        /// Its own.
        found: String,
    },
    /// Two components for one role.
    #[error("`{first}` and `{second}` are both of role {role}, expected at most one")]
    TwoOfRole {
        /// The role.
        role: Role,
        /// The one named first.
        first: String,
        /// The other.
        second: String,
    },
    /// No family reads this model, no adapter this adapter's files, no quantizer these weights.
    #[error("no {role} reads {key} `{value}`; known: {}{}", list(.known), failed(.broken))]
    NoReader {
        /// Family, adapter or quantizer.
        role: Role,
        /// `model_type`, `peft_type` or `quant_method`.
        key: &'static str,
        /// Its value.
        value: String,
        /// The values that are known, each with the component that reads it.
        known: Vec<String>,
        /// Libraries that could have had it.
        broken: Vec<LibraryError>,
    },
    /// The library that has the component cannot be used.
    #[error("plugin library {0}")]
    Library(LibraryError),
    /// The config pins a plugin's library, and only the linked plugin is found.
    #[error(
        "run.plugin_hashes pins plugin `{plugin}` to the library of sha256 {expected}, found only the \
         plugin that is linked into this program, which has no file to compare"
    )]
    PinnedNotFound {
        /// The plugin.
        plugin: String,
        /// The pinned hash.
        expected: String,
        /// The folders that were searched.
        searched: Vec<String>,
    },
    /// An option is not one of the component's, or not of its kind.
    #[error(transparent)]
    Option(Box<OptionError>),
    /// A plugin's call failed.
    #[error("plugin `{}`{} failed in {callback}: {source}", identity.component, at(identity))]
    Plugin {
        /// The plugin.
        identity: Box<PluginIdentity>,
        /// The call, such as `create` or `describe`.
        callback: String,
        /// Its error.
        source: PluginError,
    },
}

impl PluginIdentity {
    /// The error of this plugin's `callback`, such as `describe` or `encode`.
    pub fn failed(&self, callback: &str, source: PluginError) -> RegistryError {
        RegistryError::Plugin {
            identity: Box::new(self.clone()),
            callback: callback.to_owned(),
            source,
        }
    }
}

impl From<OptionError> for RegistryError {
    fn from(error: OptionError) -> Self {
        RegistryError::Option(Box::new(error))
    }
}

impl Failure for RegistryError {
    /// Usage for options and names that conflict. Numbers and resources follow the plugin's error
    /// code.
    fn exit_class(&self) -> ExitClass {
        match self {
            RegistryError::Option(_) | RegistryError::TwoOfRole { .. } => ExitClass::Usage,
            RegistryError::Plugin {
                source, callback, ..
            } => match (source.code, callback.as_str()) {
                (ErrorCode::NOT_FINITE, _) => ExitClass::Numbers,
                (ErrorCode::OUT_OF_MEMORY, _) => ExitClass::Resources,
                // A plugin refuses options in `create`, beyond the ranges that it declares.
                (ErrorCode::INVALID, "create") => ExitClass::Usage,
                _ => ExitClass::Plugin,
            },
            _ => ExitClass::Plugin,
        }
    }

    fn next_step(&self) -> String {
        match self {
            RegistryError::UnknownComponent {
                name,
                known,
                searched,
                ..
            } => match nearest_of(name, known) {
                Some(nearest) => format!("write `{nearest}`, or see `host plugins list`"),
                None => format!(
                    "see `host plugins list`, or name its folder with --plugin-dir; searched: {}",
                    searched.join(", ")
                ),
            },
            RegistryError::WrongRole { .. } => "see `host plugins list`".to_owned(),
            RegistryError::TwoOfRole { first, second, .. } => {
                format!("leave out `{first}` or `{second}`")
            }
            RegistryError::NoReader { role, .. } => {
                format!("name the folder of a plugin whose {role} reads it with --plugin-dir")
            }
            RegistryError::Library(error) => error.next_step(),
            RegistryError::PinnedNotFound {
                plugin, searched, ..
            } => format!(
                "name the folder of the pinned library with --plugin-dir, or remove \
                 run.plugin_hashes.{plugin}; searched: {}",
                searched.join(", ")
            ),
            RegistryError::Option(error) => error.next_step(),
            RegistryError::Plugin {
                identity,
                source,
                callback,
            } => match source.code {
                ErrorCode::INVALID => format!("see `host plugins inspect {}`", identity.component),
                // A driver or a library that it needs is missing, or fails.
                ErrorCode::DEVICE if BEFORE_A_RUN.contains(&callback.as_str()) => format!(
                    "install what its message names, or report it to the author of `{}`, with this \
                     line",
                    identity.plugin
                ),
                ErrorCode::UNSUPPORTED => "choose another plugin or another option".to_owned(),
                _ => format!(
                    "report it to the author of `{}`, with this line",
                    identity.plugin
                ),
            },
        }
    }
}

fn nearest_of<'a>(name: &str, known: &'a [String]) -> Option<&'a str> {
    nearest(name, known.iter().map(String::as_str))
}

fn meant(name: &str, known: &[String]) -> String {
    let meant = nearest_of(name, known);
    meant.map_or(String::new(), |meant| format!(", the nearest is `{meant}`"))
}

fn list(names: &[String]) -> String {
    match names {
        [] => "none".to_owned(),
        _ => names.join(", "),
    }
}

fn failed(broken: &[LibraryError]) -> String {
    let reasons: Vec<String> = broken.iter().map(LibraryError::to_string).collect();
    match reasons.as_slice() {
        [] => String::new(),
        _ => format!("; not usable: {}", reasons.join("; ")),
    }
}

fn at(identity: &PluginIdentity) -> String {
    let file = identity.file.as_ref();
    file.map_or(String::new(), |file| format!(" ({})", file.display()))
}
