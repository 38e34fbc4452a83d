//! A plugin's declaration -> what loads it, both linked into the host and as a library.

use crate::abi::PluginRoot;

/// A plugin that is linked into this program, found through [`inventory`].
pub struct Linked(pub extern "C" fn() -> *const PluginRoot);

inventory::collect!(Linked);

/// The roots of all plugins linked into this program.
pub fn linked() -> impl Iterator<Item = extern "C" fn() -> *const PluginRoot> {
    inventory::iter::<Linked>.into_iter().map(|linked| linked.0)
}

/// Declares a crate's plugin. Linked into a host, it registers itself; built as a `cdylib`, it can
/// be loaded.
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
mod tests;
