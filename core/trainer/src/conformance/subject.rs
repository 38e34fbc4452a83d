//! A component of the registry as the kit's subject: created and called through the boundary, as in
//! a run.

use espalier_conformance::{Subject, Threads};
use espalier_interface::{
    Adapter, Backend, Collective, Family, PluginError, Quantizer, Result, Services, Sharding,
};
use espalier_registry::{Created, Registry, RegistryError};

macro_rules! subject_of {
    ($($function:ident $create:ident $role:ident)*) => {$(
        /// The component called `name`.
        ///
        /// # Panics
        /// Where there is none.
        pub fn $function<'a>(registry: &'a Registry, name: &str) -> Subject<'a, dyn $role> {
            let component = registry.component(name).expect("it was looked up before");
            let name = name.to_owned();
            Subject::new(component, move |options, threads| {
                plain(registry.$create(&name, &options.0, services(threads)))
            })
        }
    )*};
}

subject_of! {
    quantizer create_quantizer Quantizer
    adapter create_adapter Adapter
    family create_family Family
    sharding create_sharding Sharding
    backend create_backend Backend
    collective create_collective Collective
}

/// Services that live as long as the process, since plugins can keep a reference.
fn services(threads: Threads) -> &'static dyn Services {
    Box::leak(Box::new(threads))
}

/// The created component, or the error that a plugin's own test would see.
fn plain<T: ?Sized>(created: Created<T>) -> Result<Box<T>> {
    created
        .map(|(instance, _)| instance)
        .map_err(|error| match error {
            RegistryError::Plugin { source, .. } => source,
            other => PluginError::invalid(other.to_string()),
        })
}
