//! The root that a plugin's one exported symbol returns: small, and frozen per ABI major version.

use abi_stable::StableAbi;
use abi_stable::std_types::{RSlice, RStr};
use abi_stable::type_layout::TypeLayout;

use super::Opaque;
use super::adapter::{INITIALISE_TABLE, INITIALISE_VERSION, InitialiseTable};
use super::backend::completion::COMPLETION_TABLE;
use super::backend::host_memory::HOST_MEMORY_TABLE;
use super::backend::native::NATIVE_TABLE;
use super::backend::{
    BACKEND_TABLE, BACKEND_VERSION, BackendTable, COMPLETION_VERSION, CompletionTable,
    HOST_MEMORY_VERSION, HostMemoryTable, NATIVE_VERSION, NativeTable,
};
use super::calibrated_quantizer::{
    CALIBRATED_QUANTIZER_TABLE, CALIBRATED_QUANTIZER_VERSION, CalibratedQuantizerTable,
};
use super::collective::{COLLECTIVE_TABLE, COLLECTIVE_VERSION, CollectiveTable};
use super::component::{COMPONENT_TABLE, COMPONENT_VERSION, ComponentTable};
use super::quantizer::{QUANTIZER_TABLE, QUANTIZER_VERSION, QuantizerTable};
use crate::declaration::Declaration;

/// Raised by a change after which older plugins cannot be loaded. 0 until the interface is declared
/// stable.
pub const ABI_MAJOR: u32 = 0;

/// Raised by every change of the boundary; `ABI.md` has the rules and what each version added.
pub const ABI_MINOR: u32 = 10;

/// The oldest minor version of this major version whose plugins still load. While the major version
/// is 0, a change may drop older plugins and then raises it. From 1.0 on it stays 0.
pub const ABI_OLDEST_MINOR: u32 = 1;

/// Whether this host loads plugins that were built with version `major.minor` of the interface.
pub fn is_served([major, minor]: [u32; 2]) -> bool {
    major == ABI_MAJOR && (ABI_OLDEST_MINOR..=ABI_MINOR).contains(&minor)
}

/// The root of a plugin, which the symbol `espalier_root_NAME` returns.
#[repr(C)]
pub struct PluginRoot {
    /// [`ABI_MAJOR`] of the plugin.
    pub abi_major: u32,
    /// [`ABI_MINOR`] of the plugin.
    pub abi_minor: u32,
    /// The bytes of its descriptor section.
    pub descriptor: RSlice<'static, u8>,
    /// Passed to each table's `create`.
    pub context: Opaque,
    /// The frozen table called `name` in version `version`; null where the plugin has none.
    pub query: extern "C" fn(name: RStr<'_>, version: u32) -> TableRef,
}

// SAFETY: its fields are constant; `context` points to a static `Declaration`.
unsafe impl Sync for PluginRoot {}

/// A table, and the layout with which the plugin was compiled. The host checks the layout before it
/// dereferences the table.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TableRef {
    /// The table, or null.
    pub table: Opaque,
    /// Its layout, or null.
    pub layout: *const TypeLayout,
}

impl PluginRoot {
    /// The root of `declaration`.
    pub const fn new(declaration: &'static Declaration, descriptor: &'static [u8]) -> Self {
        PluginRoot {
            abi_major: ABI_MAJOR,
            abi_minor: ABI_MINOR,
            descriptor: RSlice::from_slice(descriptor),
            context: (declaration as *const Declaration).cast(),
            query,
        }
    }
}

extern "C" fn query(name: RStr<'_>, version: u32) -> TableRef {
    match (name.as_str(), version) {
        ("component", COMPONENT_VERSION) => TableRef {
            table: std::ptr::from_ref(&COMPONENT_TABLE).cast(),
            layout: <ComponentTable as StableAbi>::LAYOUT,
        },
        ("quantizer", QUANTIZER_VERSION) => TableRef {
            table: std::ptr::from_ref(&QUANTIZER_TABLE).cast(),
            layout: <QuantizerTable as StableAbi>::LAYOUT,
        },
        ("backend", BACKEND_VERSION) => TableRef {
            table: std::ptr::from_ref(&BACKEND_TABLE).cast(),
            layout: <BackendTable as StableAbi>::LAYOUT,
        },
        ("host_memory", HOST_MEMORY_VERSION) => TableRef {
            table: std::ptr::from_ref(&HOST_MEMORY_TABLE).cast(),
            layout: <HostMemoryTable as StableAbi>::LAYOUT,
        },
        ("completion", COMPLETION_VERSION) => TableRef {
            table: std::ptr::from_ref(&COMPLETION_TABLE).cast(),
            layout: <CompletionTable as StableAbi>::LAYOUT,
        },
        ("native", NATIVE_VERSION) => TableRef {
            table: std::ptr::from_ref(&NATIVE_TABLE).cast(),
            layout: <NativeTable as StableAbi>::LAYOUT,
        },
        ("initialise", INITIALISE_VERSION) => TableRef {
            table: std::ptr::from_ref(&INITIALISE_TABLE).cast(),
            layout: <InitialiseTable as StableAbi>::LAYOUT,
        },
        ("calibrated_quantizer", CALIBRATED_QUANTIZER_VERSION) => TableRef {
            table: std::ptr::from_ref(&CALIBRATED_QUANTIZER_TABLE).cast(),
            layout: <CalibratedQuantizerTable as StableAbi>::LAYOUT,
        },
        ("collective", COLLECTIVE_VERSION) => TableRef {
            table: std::ptr::from_ref(&COLLECTIVE_TABLE).cast(),
            layout: <CollectiveTable as StableAbi>::LAYOUT,
        },
        _ => TableRef {
            table: std::ptr::null(),
            layout: std::ptr::null(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_plugin_does_not_know_it_gives_nothing_for() {
        let null = |name: &str, version| {
            let found = query(name.into(), version);
            found.table.is_null() && found.layout.is_null()
        };
        assert!(!null("quantizer", QUANTIZER_VERSION));
        assert!(null("quantizer", QUANTIZER_VERSION + 1));
        assert!(!null("calibrated_quantizer", CALIBRATED_QUANTIZER_VERSION));
        assert!(null("", 0));
    }

    #[test]
    fn versions_are_served_from_the_oldest_on() {
        let served = |minor| is_served([ABI_MAJOR, minor]);
        assert!(served(ABI_OLDEST_MINOR) && served(ABI_MINOR) && !served(ABI_MINOR + 1));
        assert!(!is_served([ABI_MAJOR + 1, ABI_MINOR]));
    }

    #[test]
    fn the_crates_version_is_the_interfaces() {
        // abi_stable takes types of crates whose first two numbers agree. Cargo names build results
        // by the version, so a shared target directory does not mix the interfaces of two minors.
        let version = format!("{ABI_MAJOR}.{ABI_OLDEST_MINOR}.{ABI_MINOR}");
        assert_eq!(env!("CARGO_PKG_VERSION"), version);
    }
}
