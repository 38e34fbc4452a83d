//! A component under test: its declaration, and how to make it with given options and services.

use std::sync::Arc;

use espalier_interface::abi::descriptor::{ComponentDescriptor, OptionDescriptor};
use espalier_interface::{
    Adapter, Backend, Collective, Component, Family, Instance, Options, PluginError, Quantizer,
    Result, Services, Sharding,
};
use serde_json::{Map, Value as Json};

use crate::option_sets::{OptionSet, option_sets};
use crate::threads::Threads;

type Make<'a, T> = Box<dyn Fn(&Options, Threads) -> Result<Box<T>> + Sync + 'a>;

/// A component under test; `T` is the trait of its role.
pub struct Subject<'a, T: ?Sized> {
    /// Its declaration.
    pub component: ComponentDescriptor,
    given: Map<String, Json>,
    make: Make<'a, T>,
}

impl<'a, T: ?Sized> Subject<'a, T> {
    /// A component that `make` makes from options and services.
    pub fn new(
        component: ComponentDescriptor,
        make: impl Fn(&Options, Threads) -> Result<Box<T>> + Sync + 'a,
    ) -> Self {
        Subject {
            component,
            given: Map::new(),
            make: Box::new(make),
        }
    }

    /// The same component with other defaults; an option that is given is not varied.
    #[must_use]
    pub fn given(mut self, options: Map<String, Json>) -> Self {
        self.given = options;
        self
    }

    /// Makes an instance.
    ///
    /// # Errors
    /// The error that the component reports.
    pub fn make(&self, options: &Options, threads: Threads) -> Result<Box<T>> {
        (self.make)(options, threads)
    }

    /// The option sets to test, the defaults first.
    pub fn option_sets(&self) -> Vec<OptionSet> {
        option_sets(&self.component, &self.given)
    }
}

/// Makes `component` and takes the trait of its role out of the instance.
fn from_component<T: ?Sized + 'static>(
    component: &Component,
    take: fn(Instance) -> Option<Box<T>>,
) -> Subject<'static, T> {
    let (create, role) = (component.create, component.role);
    Subject::new(described(component), move |options, threads| {
        let services: Arc<dyn Services> = Arc::new(threads);
        let instance = create(options, services)?;
        take(instance)
            .ok_or_else(|| PluginError::invalid(format!("`create` made no {role}, as declared")))
    })
}

macro_rules! subject_of {
    ($($function:ident $variant:ident $role:ident)*) => {$(
        impl Subject<'static, dyn $role> {
            /// The component as its author declares it.
            pub fn $function(component: &Component) -> Self {
                from_component(component, |instance| match instance {
                    Instance::$variant(made) => Some(made),
                    _ => None,
                })
            }
        }
    )*};
}

subject_of! {
    quantizer Quantizer Quantizer
    adapter Adapter Adapter
    family Family Family
    sharding Sharding Sharding
    backend Backend Backend
    collective Collective Collective
}

/// The part of a component's declaration that the host reads without running it.
fn described(component: &Component) -> ComponentDescriptor {
    let options = component.options.iter().map(|option| OptionDescriptor {
        name: option.name.to_owned(),
        kind: option.kind.0.to_owned(),
        // A text that is not JSON is reported by the checks of the declaration.
        default: serde_json::from_str(option.default)
            .unwrap_or_else(|_| Json::String(option.default.to_owned())),
        range: option.range.to_owned(),
        doc: option.doc.to_owned(),
    });
    let capabilities = component.capabilities.iter();
    ComponentDescriptor {
        name: component.name.to_owned(),
        role: component.role.0.to_owned(),
        doc: component.doc.to_owned(),
        options: options.collect(),
        capabilities: capabilities
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
    }
}
