//! The search path -> the components that were found, linked or in libraries, and their instances
//! by name.

mod component_sources;
mod create;
mod error;
mod identity;
mod listing;
mod plugin_failure;
mod probe;
mod roles;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use espalier_interface::Role;
use espalier_interface::abi::call_site::{CallSite, OPENING};
use espalier_interface::abi::descriptor::{ComponentDescriptor, Descriptor};

use crate::library::{LibraryError, LibraryFile, Root};
use crate::probe::Tried;
use crate::search_path::{SearchDir, SearchPath};

pub use component_sources::{ComponentSource, ComponentSources, Unusable};
pub use create::Created;
pub use error::RegistryError;
pub use identity::PluginIdentity;
pub use listing::{Listing, Probe, Status};
pub use plugin_failure::{NOT_FINITE_NEXT_STEP, PluginFailure};

/// Every plugin that was found, in the order of the search path; linked ones come last.
pub struct Registry {
    search: SearchPath,
    plugins: Vec<Plugin>,
    /// Roots of the opened plugins, by index into `plugins`.
    opened: Mutex<HashMap<usize, Root>>,
}

/// A plugin as it was found.
struct Plugin {
    source: PluginSource,
    /// The folder of its library; none for a linked plugin.
    dir: Option<SearchDir>,
    /// The library's file name without `lib`, `espalier_` and `.so`, with `-` for `_`; empty for a
    /// linked plugin.
    called: String,
    /// Its descriptor; none where it cannot be read.
    descriptor: Option<Descriptor>,
    /// The outcome of probing its components; none where it was not probed.
    tried: Option<Vec<Tried>>,
}

enum PluginSource {
    Linked(Root),
    Library(Box<LibraryFile>),
}

/// A component that can be made, and its plugin.
#[derive(Clone, Copy)]
struct Found<'a> {
    plugin: usize,
    descriptor: &'a Descriptor,
    component: &'a ComponentDescriptor,
}

impl Plugin {
    fn fault(&self) -> Option<LibraryError> {
        match &self.source {
            PluginSource::Linked(_) => None,
            PluginSource::Library(file) => file.fault.clone().map(|fault| LibraryError {
                path: file.path.clone(),
                fault,
            }),
        }
    }
}

impl Registry {
    /// Inspects the files `*.so` of the path's folders, sorted by name in each folder, and then the
    /// linked plugins. No library is opened. A broken one is listed by [`Registry::list`] with its
    /// reason.
    pub fn discover(search: &SearchPath) -> Self {
        let mut plugins = Vec::new();
        for found in search.libraries() {
            let mut file = LibraryFile::inspect(&found.path, search.world_writable);
            file.hold_to(&search.pins);
            if let Some(fault) = &file.fault {
                tracing::debug!("{}: {fault}", file.path.display());
            }
            plugins.push(Plugin {
                descriptor: file.descriptor.clone(),
                dir: found.dir.cloned(),
                called: called(&found.path),
                source: PluginSource::Library(Box::new(file)),
                tried: None,
            });
        }
        probe::recall(search.prober.as_ref(), &mut plugins);
        if search.linked {
            plugins.extend(linked());
        }
        Registry {
            search: search.clone(),
            plugins,
            opened: Mutex::new(HashMap::new()),
        }
    }

    /// The plugin of one library that is open.
    pub fn of_opened(file: LibraryFile, root: Root) -> Self {
        let search: [(&str, PathBuf); 0] = [];
        Registry {
            search: SearchPath::new(search).without_linked(),
            plugins: vec![Plugin {
                descriptor: file.descriptor.clone(),
                dir: None,
                called: called(&file.path),
                source: PluginSource::Library(Box::new(file)),
                tried: None,
            }],
            opened: Mutex::new(HashMap::from([(0, root)])),
        }
    }

    /// The search path.
    pub fn search(&self) -> &SearchPath {
        &self.search
    }

    /// Libraries that cannot be used, and why.
    pub fn broken(&self) -> Vec<LibraryError> {
        self.plugins.iter().filter_map(Plugin::fault).collect()
    }

    /// The first component called `name`, of any role.
    ///
    /// # Errors
    /// `UnknownComponent`, with the names that exist for `role` or for every role. `Library` where
    /// the first plugin that has it is broken, or where an unreadable library before it has that
    /// plugin's name.
    fn find(&self, role: Option<Role>, name: &str) -> Result<Found<'_>, RegistryError> {
        for (plugin, found) in self.plugins.iter().enumerate() {
            let Some(descriptor) = &found.descriptor else {
                continue;
            };
            let component = descriptor.components.iter().find(|one| one.name == name);
            let Some(component) = component else {
                continue;
            };
            let unreadable = self.unreadable_before(plugin, component);
            if let Some(error) = unreadable.unwrap_or(found).fault() {
                return Err(RegistryError::Library(error));
            }
            if let Some(role) = role.filter(|role| component.role != role.0) {
                return Err(RegistryError::WrongRole {
                    name: name.to_owned(),
                    expected: role,
                    found: component.role.clone(),
                });
            }
            self.check_linked(found, descriptor)?;
            return Ok(Found {
                plugin,
                descriptor,
                component,
            });
        }
        Err(RegistryError::UnknownComponent {
            name: name.to_owned(),
            role: role.map_or("plugin", |role| role.0),
            known: self.names(role),
            broken: self.broken(),
            searched: self.search.shown(),
        })
    }

    /// Refuses a linked plugin where the config pins a library of it: other code would run.
    fn check_linked(&self, plugin: &Plugin, descriptor: &Descriptor) -> Result<(), RegistryError> {
        match (&plugin.source, self.search.pins.get(&descriptor.name)) {
            (PluginSource::Linked(_), Some(expected)) => Err(RegistryError::PinnedNotFound {
                plugin: descriptor.name.clone(),
                expected: expected.clone(),
                searched: self.search.shown(),
            }),
            _ => Ok(()),
        }
    }

    /// An unreadable library before plugin number `plugin` with the same plugin name by its file
    /// name. Its components are unknown, so it may shadow this plugin, which has `component`.
    fn unreadable_before(&self, plugin: usize, component: &ComponentDescriptor) -> Option<&Plugin> {
        let descriptor = self.plugins[plugin].descriptor.as_ref()?;
        let (role, names) = (&component.role, [&descriptor.name, &component.name]);
        let is_meant = |called: &str| {
            let bare = called.strip_prefix(role.as_str());
            let bare = bare.and_then(|rest| rest.strip_prefix('-'));
            names
                .iter()
                .any(|name| called == *name || bare == Some(name.as_str()))
        };
        let mut ahead = self.plugins[..plugin].iter();
        ahead.find(|one| one.descriptor.is_none() && is_meant(&one.called))
    }

    /// Names of usable components of `role`, or of all roles, each once, in order.
    fn names(&self, role: Option<Role>) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for component in self.usable() {
            let wanted = role.is_none_or(|role| component.role == role.0);
            if wanted && !names.contains(&component.name) {
                names.push(component.name.clone());
            }
        }
        names
    }

    /// Components of plugins without a fault; a name may occur twice.
    fn usable(&self) -> impl Iterator<Item = &ComponentDescriptor> {
        let sound = self
            .plugins
            .iter()
            .filter(|plugin| plugin.fault().is_none());
        let described = sound.filter_map(|plugin| plugin.descriptor.as_ref());
        described.flat_map(|descriptor| &descriptor.components)
    }

    /// The root of plugin number `plugin`, opened on first use.
    fn root(&self, plugin: usize) -> Result<Root, LibraryError> {
        let file = match &self.plugins[plugin].source {
            PluginSource::Linked(root) => return Ok(*root),
            PluginSource::Library(file) => file,
        };
        let mut opened = self.opened.lock().expect("nothing panics while it is held");
        if let Some(root) = opened.get(&plugin) {
            return Ok(*root);
        }
        self.try_elsewhere(plugin, file)?;
        let name = file.descriptor.as_ref().map_or("", |one| &one.name);
        let site = CallSite::limited(name, Some(&file.path), self.search.limits);
        let inside = site.enter(OPENING);
        let root = file.open()?;
        drop(inside);
        opened.insert(plugin, root);
        Ok(root)
    }
}

/// The name of the plugin that a library's file name gives: `nf4` of `libespalier_nf4.so` and of
/// `libnf4.so`.
fn called(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let stem = stem.strip_prefix("lib").unwrap_or(&stem).replace('_', "-");
    stem.strip_prefix("espalier-").unwrap_or(&stem).to_owned()
}

/// The plugins linked into this program, sorted by name, since the linker's order is not defined.
fn linked() -> Vec<Plugin> {
    let mut found: Vec<(Descriptor, Root)> = Vec::new();
    for root in espalier_interface::linked() {
        let read = Root::linked(root).and_then(|root| Ok((root.descriptor()?, root)));
        match read {
            Ok(plugin) => found.push(plugin),
            Err(fault) => tracing::error!("a linked plugin cannot be used: {fault}"),
        }
    }
    found.sort_by(|a, b| a.0.name.cmp(&b.0.name));
    let plugins = found.into_iter().map(|(descriptor, root)| Plugin {
        source: PluginSource::Linked(root),
        dir: None,
        called: String::new(),
        descriptor: Some(descriptor),
        tried: None,
    });
    plugins.collect()
}
