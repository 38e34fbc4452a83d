//! A plugin's declaration: its name, its version, and its components with their constructors.

use std::sync::Arc;

use crate::role::{Adapter, Backend, Collective, Family, Quantizer, Role, Sharding};
use crate::{OptionSpec, Options, Result, Services};

/// An instance of a component, as the trait of its role.
pub enum Instance {
    /// A model family.
    Family(Box<dyn Family>),
    /// An adapter.
    Adapter(Box<dyn Adapter>),
    /// A quantizer.
    Quantizer(Box<dyn Quantizer>),
    /// A sharding strategy.
    Sharding(Box<dyn Sharding>),
    /// A compute backend.
    Backend(Box<dyn Backend>),
    /// A collective.
    Collective(Box<dyn Collective>),
}

/// Makes a component from its checked options.
pub type Create = fn(&Options, Arc<dyn Services>) -> Result<Instance>;

/// One component of a plugin. It is constant, so that its description can be read without running
/// the plugin.
#[derive(Clone, Copy)]
pub struct Component {
    /// The name by which users select it.
    pub name: &'static str,
    /// The role that it serves.
    pub role: Role,
    /// One line of documentation.
    pub doc: &'static str,
    /// Its options.
    pub options: &'static [OptionSpec],
    /// Facts that the host may read without calling it, as name and value: `model_types` of a
    /// family, `peft_types` of an adapter, `quant_methods` of a quantizer.
    pub capabilities: &'static [(&'static str, &'static str)],
    /// Makes an instance.
    pub create: Create,
}

/// A plugin: a name, a version and its components.
#[derive(Clone, Copy)]
pub struct Declaration {
    /// The plugin's name: lower case letters, digits and `-`.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Its components.
    pub components: &'static [Component],
}
