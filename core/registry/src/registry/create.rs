//! A component's name and options -> an instance of its role's trait, and the identity of its
//! plugin.

use espalier_config::check_options;
use espalier_interface::abi::call_site::{CallSite, Limit};
use espalier_interface::abi::{
    AdapterProxy, BackendProxy, CollectiveProxy, FamilyProxy, InstanceHandle, QuantizerProxy,
    ShardingProxy,
};
use espalier_interface::{
    Adapter, Backend, Collective, Family, Quantizer, Role, Services, Sharding,
};
use serde_json::{Map, Value as Json};

use super::{Found, PluginIdentity, Registry, RegistryError};
use crate::library::{LibraryError, LibraryFault, Root};

/// An instance, and which plugin made it.
pub type Created<T> = Result<(Box<T>, PluginIdentity), RegistryError>;

/// A component's options as the user wrote them.
type Given = Map<String, Json>;

/// An instance's handle, before it is wrapped in its role's proxy.
struct Made {
    handle: InstanceHandle,
    root: Root,
    identity: PluginIdentity,
}

impl Registry {
    /// The model family `name`.
    ///
    /// # Errors
    /// [`RegistryError::UnknownComponent`] and [`RegistryError::WrongRole`] for the name,
    /// [`RegistryError::Option`] for options. [`RegistryError::Library`] for a library that cannot
    /// be opened, [`RegistryError::Plugin`] for the component's own error.
    pub fn create_family(
        &self,
        name: &str,
        options: &Given,
        services: &'static dyn Services,
    ) -> Created<dyn Family> {
        let made = self.make(Role::FAMILY, name, options, services)?;
        Ok((Box::new(FamilyProxy(made.handle)), made.identity))
    }

    /// The adapter `name`.
    ///
    /// # Errors
    /// As [`Registry::create_family`].
    pub fn create_adapter(
        &self,
        name: &str,
        options: &Given,
        services: &'static dyn Services,
    ) -> Created<dyn Adapter> {
        let made = self.make(Role::ADAPTER, name, options, services)?;
        let table = made
            .root
            .initialise()
            .map_err(|fault| blame(&made.identity, fault))?;
        let adapter = AdapterProxy::new(made.handle, table);
        Ok((Box::new(adapter), made.identity))
    }

    /// The sharding strategy `name`.
    ///
    /// # Errors
    /// As [`Registry::create_family`].
    pub fn create_sharding(
        &self,
        name: &str,
        options: &Given,
        services: &'static dyn Services,
    ) -> Created<dyn Sharding> {
        let made = self.make(Role::SHARDING, name, options, services)?;
        Ok((Box::new(ShardingProxy(made.handle)), made.identity))
    }

    /// The quantizer `name`.
    ///
    /// # Errors
    /// As [`Registry::create_family`].
    pub fn create_quantizer(
        &self,
        name: &str,
        options: &Given,
        services: &'static dyn Services,
    ) -> Created<dyn Quantizer> {
        let made = self.make(Role::QUANTIZER, name, options, services)?;
        let table = made
            .root
            .quantizer()
            .map_err(|fault| blame(&made.identity, fault))?;
        let calibrated = made
            .root
            .calibrated_quantizer()
            .map_err(|fault| blame(&made.identity, fault))?;
        let quantizer = QuantizerProxy::new(made.handle, table, calibrated);
        Ok((Box::new(quantizer), made.identity))
    }

    /// The backend `name`. It must outlive the devices it opens.
    ///
    /// # Errors
    /// As [`Registry::create_family`].
    pub fn create_backend(
        &self,
        name: &str,
        options: &Given,
        services: &'static dyn Services,
    ) -> Created<dyn Backend> {
        let made = self.make(Role::BACKEND, name, options, services)?;
        let root = &made.root;
        let optional = || Ok((root.host_memory()?, root.completion()?, root.native()?));
        let tables = root.backend().and_then(|table| Ok((table, optional()?)));
        let (table, (host_memory, completion, native)) =
            tables.map_err(|fault| blame(&made.identity, fault))?;
        let backend = BackendProxy::new(made.handle, table)
            .lent_by(host_memory)
            .completed_by(completion)
            .named_by(native);
        Ok((Box::new(backend), made.identity))
    }

    /// The collective `name`. It must outlive the groups that are joined by it.
    ///
    /// # Errors
    /// As [`Registry::create_family`].
    pub fn create_collective(
        &self,
        name: &str,
        options: &Given,
        services: &'static dyn Services,
    ) -> Created<dyn Collective> {
        let made = self.make(Role::COLLECTIVE, name, options, services)?;
        let table = made
            .root
            .collective()
            .map_err(|fault| blame(&made.identity, fault))?;
        let collective = CollectiveProxy::new(made.handle, table);
        Ok((Box::new(collective), made.identity))
    }

    /// All options of the component `name`: the `given` ones, and the defaults of the others.
    ///
    /// # Errors
    /// [`RegistryError::UnknownComponent`], [`RegistryError::WrongRole`] and
    /// [`RegistryError::Option`].
    pub fn all_options(
        &self,
        role: Role,
        name: &str,
        given: &Given,
    ) -> Result<Given, RegistryError> {
        let found = self.find(Some(role), name)?;
        Ok(check_options(found.component, given)?.0)
    }

    /// An instance of the component `name` whose methods are not called.
    ///
    /// # Errors
    /// As [`Registry::create_family`].
    pub fn instance(
        &self,
        role: Role,
        name: &str,
        options: &Given,
        services: &'static dyn Services,
    ) -> Result<InstanceHandle, RegistryError> {
        let made = self.make(role, name, options, services)?;
        let table = match role {
            Role::QUANTIZER => made.root.quantizer().map(drop),
            Role::BACKEND => made.root.backend().map(drop),
            Role::COLLECTIVE => made.root.collective().map(drop),
            _ => Ok(()),
        };
        table.map_err(|fault| blame(&made.identity, fault))?;
        Ok(made.handle)
    }

    pub(super) fn identity(&self, found: &Found<'_>) -> PluginIdentity {
        let plugin = &self.plugins[found.plugin];
        PluginIdentity {
            component: found.component.name.clone(),
            role: found.component.role.clone(),
            plugin: found.descriptor.name.clone(),
            version: found.descriptor.version.clone(),
            abi: found.descriptor.abi,
            sha256: plugin.sha256(),
            file: plugin.file(),
        }
    }

    fn make(
        &self,
        role: Role,
        name: &str,
        given: &Given,
        services: &'static dyn Services,
    ) -> Result<Made, RegistryError> {
        let found = self.find(Some(role), name)?;
        let identity = self.identity(&found);
        let options = check_options(found.component, given)?;
        let root = self.root(found.plugin).map_err(RegistryError::Library)?;
        let (table, context) = (root.component(), root.context());
        let mut limits = self.search.limits;
        if role == Role::COLLECTIVE {
            // The watch of the ranks handles a collective call that waits.
            limits.call = Limit::OfOthers;
        }
        let site = CallSite::limited(name, identity.file.as_deref(), limits);
        let handle = InstanceHandle::create(table, context, site, &options, services)
            .map_err(|error| identity.failed("create", error))?;
        Ok(Made {
            handle,
            root,
            identity,
        })
    }
}

/// A fault of a plugin's tables as an error that names its library.
fn blame(identity: &PluginIdentity, fault: LibraryFault) -> RegistryError {
    let path = identity.file.clone().unwrap_or_else(|| "linked".into());
    RegistryError::Library(LibraryError { path, fault })
}
