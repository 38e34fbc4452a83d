//! The registry -> what `host plugins list` and `inspect` show.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use espalier_interface::abi::descriptor::{ComponentDescriptor, OptionDescriptor};
use serde::Serialize;

use super::{Plugin, PluginSource, Registry, RegistryError};
use crate::probe::Tried;

/// A component, or a library whose components are unknown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Listing {
    /// The component's name; the file's where the library cannot be read.
    pub component: String,
    /// Its role, by name; empty where the library cannot be read.
    pub role: String,
    /// One line on it.
    pub doc: String,
    /// The plugin's name; empty where the library cannot be read.
    pub plugin: String,
    /// The plugin's version.
    pub version: String,
    /// Major and minor version of the interface it was built with.
    pub abi: Option<[u32; 2]>,
    /// The library; unset for a linked plugin.
    pub file: Option<PathBuf>,
    /// Hash of the library's bytes, hexadecimal.
    pub sha256: Option<String>,
    /// Options it takes.
    pub options: Vec<OptionDescriptor>,
    /// The capabilities that it declares.
    pub capabilities: BTreeMap<String, String>,
    /// Whether it can be chosen.
    pub status: Status,
    /// The outcome of probing it.
    pub probe: Probe,
}

/// The outcome of probing a component in a separate process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Probe {
    /// It is linked into this program and not probed.
    Linked,
    /// It was not probed.
    None,
    /// It was made and destroyed.
    Passed,
    /// It could not be made, or its library could not be opened.
    Failed {
        /// Why.
        reason: String,
    },
}

impl Probe {
    /// The outcome in a word.
    pub fn word(&self) -> &'static str {
        match self {
            Probe::Linked => "linked",
            Probe::None => "none",
            Probe::Passed => "passed",
            Probe::Failed { .. } => "failed",
        }
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Probe::Failed { reason } => write!(f, "failed: {reason}"),
            other => f.write_str(other.word()),
        }
    }
}

/// Whether a component can be chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It can, by its name.
    Available,
    /// It cannot: a component found earlier has its name.
    Shadowed {
        /// The earlier component's file, or `linked`.
        by: String,
    },
    /// Its library cannot be used.
    Broken {
        /// Why.
        reason: String,
    },
}

impl Listing {
    /// The library, or `linked`.
    pub fn location(&self) -> String {
        location(self.file.as_deref())
    }
}

/// A library, or `linked` where there is none.
pub(super) fn location(file: Option<&Path>) -> String {
    file.map_or("linked".to_owned(), |file| file.display().to_string())
}

impl Registry {
    /// All components and broken libraries, in the order of the search.
    pub fn list(&self) -> Vec<Listing> {
        let mut listings: Vec<Listing> = Vec::new();
        for (index, plugin) in self.plugins.iter().enumerate() {
            let Some(descriptor) = &plugin.descriptor else {
                listings.push(plugin.unreadable());
                continue;
            };
            for component in &descriptor.components {
                let mut listing = plugin.listing(component);
                // A broken library still claims its names: choosing one is an error.
                let earlier = listings
                    .iter()
                    .find(|one| !one.role.is_empty() && one.component == component.name);
                let earlier = earlier.map(Listing::location).or_else(|| {
                    let unreadable = self.unreadable_before(index, component)?;
                    Some(unreadable.location())
                });
                if let (Status::Available, Some(by)) = (&listing.status, earlier) {
                    listing.status = Status::Shadowed { by };
                }
                listings.push(listing);
            }
        }
        listings
    }

    /// The component called `name`, as [`Registry::list`] shows it.
    ///
    /// # Errors
    /// `UnknownComponent`, or `Library` where the first plugin that has it is broken.
    pub fn inspect(&self, name: &str) -> Result<Listing, RegistryError> {
        let found = self.find(None, name)?;
        Ok(self.plugins[found.plugin].listing(found.component))
    }

    /// The descriptor of the component called `name`.
    ///
    /// # Errors
    /// As [`Registry::inspect`].
    pub fn component(&self, name: &str) -> Result<ComponentDescriptor, RegistryError> {
        self.find(None, name).map(|found| found.component.clone())
    }
}

impl Plugin {
    pub(super) fn sha256(&self) -> Option<String> {
        match &self.source {
            PluginSource::Library(file) if !file.sha256.is_empty() => Some(file.sha256.clone()),
            _ => None,
        }
    }

    pub(super) fn file(&self) -> Option<PathBuf> {
        match &self.source {
            PluginSource::Linked(_) => None,
            PluginSource::Library(file) => Some(file.path.clone()),
        }
    }

    pub(super) fn location(&self) -> String {
        location(self.file().as_deref())
    }

    fn status(&self) -> Status {
        match self.fault() {
            None => Status::Available,
            Some(error) => Status::Broken {
                reason: error.fault.to_string(),
            },
        }
    }

    fn probe(&self, component: &str) -> Probe {
        let tried = match (&self.source, &self.tried) {
            (PluginSource::Linked(_), _) => return Probe::Linked,
            (PluginSource::Library(_), None) => return Probe::None,
            (PluginSource::Library(_), Some(tried)) => tried,
        };
        match tried.iter().find(|tried| tried.component == component) {
            None => Probe::None,
            Some(Tried { failure: None, .. }) => Probe::Passed,
            Some(Tried {
                failure: Some(failure),
                ..
            }) => Probe::Failed {
                reason: failure.to_string(),
            },
        }
    }

    fn listing(&self, component: &ComponentDescriptor) -> Listing {
        let descriptor = self.descriptor.as_ref().expect("it holds this component");
        Listing {
            component: component.name.clone(),
            role: component.role.clone(),
            doc: component.doc.clone(),
            plugin: descriptor.name.clone(),
            version: descriptor.version.clone(),
            abi: Some(descriptor.abi),
            file: self.file(),
            sha256: self.sha256(),
            options: component.options.clone(),
            capabilities: component.capabilities.clone(),
            status: self.status(),
            probe: self.probe(&component.name),
        }
    }

    fn unreadable(&self) -> Listing {
        let file = self.file().unwrap_or_default();
        let name = file.file_name().unwrap_or_default();
        Listing {
            component: name.to_string_lossy().into_owned(),
            role: String::new(),
            doc: String::new(),
            plugin: String::new(),
            version: String::new(),
            abi: None,
            file: Some(file),
            sha256: self.sha256(),
            options: Vec::new(),
            capabilities: BTreeMap::new(),
            status: self.status(),
            probe: Probe::None,
        }
    }
}
