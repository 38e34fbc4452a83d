//! The ABI: frozen tables of `extern "C"` functions in abi_stable types, with the plugin's and the
//! host's side of each.
//!
//! On the plugin's side, `*_TABLE` statics turn calls into the plain traits and catch panics inside
//! the plugin. On the host's side, `*Proxy` types implement the same traits over a table.
//! Descriptions (models, graphs, formats, schedules) cross as JSON, so that they can grow by
//! fields. What is called often crosses as pointers and numbers. Linked plugins cross the same
//! boundary as libraries.
#![allow(unsafe_code)]

mod adapter;
mod backend;
mod bytes_mut;
mod calibrated_quantizer;
pub mod call_site;
mod collective;
mod component;
pub mod descriptor;
mod quantizer;
mod reply;
mod root;
mod services;

pub use adapter::{AdapterProxy, INITIALISE_VERSION, InitialiseTable};
pub use backend::{
    BACKEND_VERSION, BackendProxy, BackendTable, COMPLETION_VERSION, CompletionTable,
    HOST_MEMORY_VERSION, HostMemoryTable, NATIVE_VERSION, NativeTable,
};
pub use calibrated_quantizer::{CALIBRATED_QUANTIZER_VERSION, CalibratedQuantizerTable};
pub use collective::{COLLECTIVE_VERSION, CollectiveProxy, CollectiveTable};
pub use component::{
    COMPONENT_VERSION, ComponentTable, FamilyProxy, InstanceHandle, METHODS, ShardingProxy,
};
pub use quantizer::{QUANTIZER_VERSION, QuantizerProxy, QuantizerTable};
pub use reply::{AbiError, Reply};
pub use root::{ABI_MAJOR, ABI_MINOR, ABI_OLDEST_MINOR, PluginRoot, TableRef, is_served};
pub use services::ServicesTable;

/// A pointer that only the side that made it may dereference.
pub type Opaque = *const std::ffi::c_void;
