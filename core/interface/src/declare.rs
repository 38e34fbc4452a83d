//! A plugin's declaration, once, and the two ways it is loaded: linked into the host, or as a library.

use std::sync::Arc;

use crate::abi::PluginRoot;
use crate::role::{Adapter, Backend, Collective, Family, Quantizer, Role, Sharding};
use crate::{OptionSpec, Options, Result, Services};

/// A component that has been made: what its role's trait says.
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

/// One component of a plugin. Constant, so that its description can be read without running the plugin.
#[derive(Clone, Copy)]
pub struct Component {
    /// The name by which users choose it.
    pub name: &'static str,
    /// What it does for the core.
    pub role: Role,
    /// One line of documentation.
    pub doc: &'static str,
    /// Its options.
    pub options: &'static [OptionSpec],
    /// What the host may know without asking, as name and value: `model_types` of a family, `peft_types` of an adapter,
    /// `quant_methods` of a quantizer.
    pub capabilities: &'static [(&'static str, &'static str)],
    /// Makes it.
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

/// A plugin that is linked into this program, as [`inventory`] finds it.
pub struct Linked(pub extern "C" fn() -> *const PluginRoot);

inventory::collect!(Linked);

/// The roots of all plugins linked into this program.
pub fn linked() -> impl Iterator<Item = extern "C" fn() -> *const PluginRoot> {
    inventory::iter::<Linked>.into_iter().map(|linked| linked.0)
}

/// Declares a crate's plugin: linked into a host it registers itself, built as a `cdylib` it can be loaded.
///
/// ```text
/// espalier_interface::declare_plugin! {
///     name: "nf4",
///     components: &[NF4, FP4, INT8],
/// }
/// ```
#[macro_export]
macro_rules! declare_plugin {
    (name: $name:literal, components: $components:expr $(,)?) => {
        #[allow(unsafe_code)]
        const _: () = {
            const DECLARATION: $crate::Declaration = $crate::Declaration {
                name: $name,
                version: env!("CARGO_PKG_VERSION"),
                components: $components,
            };
            static DECLARED: $crate::Declaration = DECLARATION;

            #[used]
            #[unsafe(link_section = ".espalier")]
            static DESCRIPTOR: [u8; $crate::abi::descriptor::length(&DECLARATION)] =
                $crate::abi::descriptor::bytes(&DECLARATION);

            static ROOT: $crate::abi::PluginRoot =
                $crate::abi::PluginRoot::new(&DECLARED, &DESCRIPTOR);

            #[unsafe(export_name = concat!("espalier_root_", $name))]
            extern "C" fn root() -> *const $crate::abi::PluginRoot {
                &ROOT
            }

            $crate::inventory::submit! { $crate::Linked(root) }
        };
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate as espalier_interface;
    use crate::abi::call_site::CallSite;
    use crate::abi::{ComponentTable, InstanceHandle, ShardingProxy, TableRef};
    use crate::schedule::{Schedule, ShardingRequest};
    use crate::{ErrorCode, PluginError, Serial};

    struct Faulty;

    impl Sharding for Faulty {
        fn schedule(&self, request: &ShardingRequest) -> Result<Schedule> {
            assert!(request.world == 1, "world is {}", request.world);
            Err(PluginError::invalid("only a sample"))
        }
    }

    const FAULTY: Component = Component {
        name: "faulty",
        role: Role::SHARDING,
        doc: "panics for more than one rank",
        options: &[],
        capabilities: &[],
        create: |_, _| Ok(Instance::Sharding(Box::new(Faulty))),
    };

    espalier_interface::declare_plugin! { name: "sample", components: &[FAULTY] }

    #[allow(unsafe_code)]
    fn made() -> ShardingProxy {
        let root = linked().next().expect("declared above")();
        // SAFETY: a linked root is static; its table was asked for by name and version.
        let (root, table) = unsafe {
            let root = &*root;
            let TableRef { table, .. } = (root.query)("component".into(), 1);
            (root, *table.cast::<ComponentTable>())
        };
        let services: &'static Serial = &Serial;
        let options = Options::default();
        let site = CallSite::new("faulty", None);
        let handle = InstanceHandle::create(table, root.context, site, &options, services);
        ShardingProxy(handle.expect("it takes no options"))
    }

    #[test]
    fn errors_and_panics_cross_as_words() {
        let sharding = made();
        let mut request = ShardingRequest {
            units: Vec::new(),
            world: 1,
            ranks_per_machine: 1,
            ..ShardingRequest::default()
        };
        let error = sharding.schedule(&request).expect_err("always");
        assert_eq!(
            (error.code, error.message.as_str()),
            (ErrorCode::INVALID, "only a sample")
        );
        request.world = 3;
        let error = sharding.schedule(&request).expect_err("a panic");
        assert_eq!(error.code, ErrorCode::PANIC);
        assert!(error.message.contains("world is 3"), "{error}");
    }
}
