//! A library or a component's name -> the components to check, and the config that finds them
//! before all others.

use std::os::unix::fs::symlink;
use std::path::Path;

use espalier_config::{Sources, resolve};
use espalier_registry::library::{LibraryError, LibraryFile};
use espalier_registry::{RegistryError, SearchPath};
use espalier_system::failure::UsageError;
use tempfile::TempDir;

use crate::Error;

/// The components to check, and their sources.
pub struct Target {
    /// The components' names.
    pub components: Vec<String>,
    /// The config, with the library's folder in front of the others.
    pub sources: Sources,
    /// A folder with the library alone, so that no other library of its own folder is found before
    /// it.
    _folder: Option<TempDir>,
}

impl Target {
    /// `library` is a file, or the name of a component in `sources`. All components of a file are
    /// checked, or the `requested` ones.
    ///
    /// # Errors
    /// A library that cannot be read or loaded; a component that it does not contain.
    pub fn find(library: &str, requested: &[String], sources: Sources) -> Result<Self, Error> {
        let path = Path::new(library);
        if path.is_file() || library.contains('/') || library.ends_with(".so") {
            return Target::library(path, requested, sources);
        }
        Ok(Target {
            components: vec![library.to_owned()],
            sources,
            _folder: None,
        })
    }

    fn library(path: &Path, requested: &[String], sources: Sources) -> Result<Self, Error> {
        let resolved = resolve(&sources)?;
        let world_writable = SearchPath::of(&resolved).world_writable;
        let file = LibraryFile::inspect(path, world_writable);
        if let Some(fault) = file.fault {
            let path = file.path;
            return Err(RegistryError::Library(LibraryError { path, fault }).into());
        }
        let folder = linked(&file.path)?;
        let mut dirs = vec![folder.path().to_owned()];
        dirs.extend(resolved.config().run.plugin_dirs.iter().cloned());
        let dirs: Vec<String> = dirs
            .iter()
            .map(|dir| dir.to_string_lossy().into_owned())
            .collect();
        let described = file.descriptor.expect("without a fault there is one");
        let components = described.components.into_iter();
        let names = components.map(|component| component.name).collect();
        Ok(Target {
            components: requested_components(names, requested)?,
            sources: sources.flag("check", "run.plugin_dirs", dirs),
            _folder: Some(folder),
        })
    }
}

/// A new folder with only a link to `library`.
fn linked(library: &Path) -> Result<TempDir, Error> {
    let made = tempfile::tempdir().and_then(|folder| {
        symlink(library, folder.path().join("checked.so"))?;
        Ok(folder)
    });
    made.map_err(|error| {
        Error::Usage(UsageError {
            message: format!("no temporary folder can be made: {error}"),
            next_step: "name a folder that can be written in TMPDIR".to_owned(),
        })
    })
}

/// The requested components of a library; all of them where none is requested.
fn requested_components(all: Vec<String>, requested: &[String]) -> Result<Vec<String>, Error> {
    if let Some(unknown) = requested.iter().find(|name| !all.contains(name)) {
        return Err(Error::Usage(UsageError {
            message: format!("--component {unknown}: the library has {}", all.join(", ")),
            next_step: "name one of these, or leave --component out".to_owned(),
        }));
    }
    match requested {
        [] => Ok(all),
        requested => Ok(requested.to_vec()),
    }
}
