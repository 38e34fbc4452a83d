//! A component that was made for a run, and where it came from.

use std::sync::Arc;

use espalier_config::Section;
use espalier_interface::{PluginError, Quantizer, Role, Services, Sharding};

use crate::Error;
use crate::registry::{PluginFailure, PluginIdentity, Registry, RegistryError};

/// A component that was made, and where it came from.
pub struct Chosen<T: ?Sized> {
    /// The component.
    pub plugin: Arc<T>,
    /// Its plugin, version and file.
    pub identity: PluginIdentity,
    /// A quantizer's options, with the defaults of those that nobody gave. Empty for other roles.
    pub options: Section,
}

impl<T: ?Sized> Clone for Chosen<T> {
    fn clone(&self) -> Self {
        Chosen {
            plugin: Arc::clone(&self.plugin),
            identity: self.identity.clone(),
            options: self.options.clone(),
        }
    }
}

impl<T: ?Sized> Chosen<T> {
    /// The result of the registry.
    pub(crate) fn of((plugin, identity): (Box<T>, PluginIdentity)) -> Self {
        Chosen {
            plugin: Arc::from(plugin),
            identity,
            options: Section::new(),
        }
    }

    /// The error for a call to this component that failed.
    pub fn failed(&self, callback: &str, source: PluginError) -> Error {
        Error::Plugin(PluginFailure {
            plugin: self.identity.component.clone(),
            callback: callback.to_owned(),
            file: self.identity.file.clone(),
            source,
        })
    }
}

impl Chosen<dyn Quantizer> {
    /// The quantizer `name` with the options that the user or a checkpoint gives.
    ///
    /// # Errors
    /// As [`Registry::create_quantizer`].
    pub fn quantizer(
        registry: &Registry,
        name: &str,
        options: &Section,
        services: &'static dyn Services,
    ) -> Result<Self, RegistryError> {
        let made = registry.create_quantizer(name, options, services)?;
        Ok(Chosen {
            options: registry.all_options(Role::QUANTIZER, name, options)?,
            ..Chosen::of(made)
        })
    }
}

impl Chosen<dyn Sharding> {
    /// The sharding strategy `name` with these options.
    ///
    /// # Errors
    /// As [`Registry::create_sharding`].
    pub fn sharding(
        registry: &Registry,
        name: &str,
        options: &Section,
        services: &'static dyn Services,
    ) -> Result<Self, RegistryError> {
        let made = registry.create_sharding(name, options, services)?;
        Ok(Chosen::of(made))
    }
}
