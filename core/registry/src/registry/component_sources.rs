//! The components of a run -> where each came from, other components of its name, and unusable
//! libraries.

use std::fmt;
use std::path::PathBuf;

use espalier_system::notice;
use serde::Serialize;

use super::listing::location;
use super::{PluginIdentity, Registry};

/// Where the components of a run came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ComponentSources {
    /// One for each component that is used.
    pub used: Vec<ComponentSource>,
    /// Libraries in searched folders that cannot be used and that this run does not need.
    pub unusable: Vec<Unusable>,
}

/// Where a component that is used came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ComponentSource {
    /// The component's name.
    pub component: String,
    /// Its role, by name.
    pub role: String,
    /// The library, or `linked`.
    pub from: String,
    /// Why the library's folder is searched; none for a linked plugin.
    pub folder: Option<String>,
    /// Whether a config file names the folder.
    #[serde(skip)]
    pub by_config_file: bool,
    /// Where other components of the name were found, in the order of the search.
    pub also_found: Vec<String>,
}

/// A library that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unusable {
    /// The file.
    pub file: PathBuf,
    /// Why.
    pub reason: String,
}

impl fmt::Display for ComponentSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ComponentSource {
            component, from, ..
        } = self;
        write!(f, "{component} {from}")?;
        if let Some(folder) = &self.folder {
            write!(f, " ({folder})")?;
        }
        match self.also_found.as_slice() {
            [] => Ok(()),
            others => write!(f, "; not used: {}", others.join(", ")),
        }
    }
}

impl Registry {
    /// Where the components `used` came from.
    pub fn places<'a>(
        &self,
        used: impl IntoIterator<Item = &'a PluginIdentity>,
    ) -> ComponentSources {
        let unusable = self.broken().into_iter().map(|error| Unusable {
            file: error.path,
            reason: error.fault.to_string(),
        });
        ComponentSources {
            used: used.into_iter().map(|one| self.place(one)).collect(),
            unusable: unusable.collect(),
        }
    }

    fn place(&self, used: &PluginIdentity) -> ComponentSource {
        let having = self
            .plugins
            .iter()
            .filter(|plugin| plugin.has(&used.component));
        let (mut first, mut others) = (None, Vec::new());
        for plugin in having {
            if first.is_none() && plugin.file() == used.file {
                first = Some(plugin)
            } else {
                others.push(plugin.location())
            }
        }
        let dir = first.and_then(|plugin| plugin.dir.as_ref());
        ComponentSource {
            component: used.component.clone(),
            role: used.role.clone(),
            from: location(used.file.as_deref()),
            folder: dir.map(|dir| dir.reason.clone()),
            by_config_file: dir.is_some_and(|dir| dir.by_config_file),
            also_found: others,
        }
    }
}

impl ComponentSources {
    /// Reports, once per process, which of several components of a name is used, and which
    /// libraries cannot be used. Also what comes from a folder that a config file or
    /// the record of a run names.
    pub fn tell(&self) {
        for place in &self.used {
            let (component, from) = (&place.component, &place.from);
            if !place.also_found.is_empty() {
                let others = place.also_found.join(", ");
                notice::once(&format!(
                    "`{component}` is found {} times: the one from {from} is used; not used: {others}",
                    place.also_found.len() + 1,
                ));
            }
            if let (true, Some(folder)) = (place.by_config_file, &place.folder) {
                notice::once(&format!(
                    "`{component}` is the library {from}, from a folder that a config file or the \
                     record of a run names ({folder})"
                ));
            }
        }
        for Unusable { file, reason } in &self.unusable {
            let file = file.display();
            notice::once(&format!("plugin library {file} is left out: {reason}"));
        }
    }
}
