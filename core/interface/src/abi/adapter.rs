//! The table of adapters whose params begin from a weight, and the host's side of an adapter.

use abi_stable::StableAbi;
use abi_stable::std_types::{RSlice, RSliceMut, RStr};
use serde_json::Value as Json;

use super::Opaque;
use super::component::{InstanceHandle, instance};
use super::reply::{Reply, from_bytes, guard, plain, to_bytes};
use crate::adaptation::{Adaptation, Site};
use crate::declaration::Instance;
use crate::role::{Adapter, InitialValues, InitialiseCall};
use crate::{ErrorCode, Options, PluginError, Result};

/// Version of [`InitialiseTable`].
pub const INITIALISE_VERSION: u32 = 1;

/// Writable numbers.
#[repr(C)]
#[derive(StableAbi, Clone, Copy)]
struct FloatsMut {
    start: *mut f32,
    len: usize,
}

/// The arguments of [`Adapter::initialise`] in the form that crosses the boundary.
#[repr(C)]
#[derive(StableAbi)]
pub struct InitialiseArgs<'a> {
    /// The site as JSON.
    site: RSlice<'a, u8>,
    weight: RSlice<'a, f32>,
    seed: u64,
    workspace: RSliceMut<'a, u8>,
    names: RSlice<'a, RStr<'a>>,
    /// As many as names.
    values: RSlice<'a, FloatsMut>,
}

/// The functions of an adapter whose params begin from a weight.
#[repr(C)]
#[derive(StableAbi, Clone, Copy)]
pub struct InitialiseTable {
    /// [`Adapter::initialise`].
    pub initialise: extern "C" fn(Opaque, InitialiseArgs<'_>) -> Reply<()>,
}

pub(super) static INITIALISE_TABLE: InitialiseTable = InitialiseTable { initialise };

extern "C" fn initialise(handle: Opaque, call: InitialiseArgs<'_>) -> Reply<()> {
    guard(|| {
        let Instance::Adapter(adapter) = instance(handle) else {
            return Err(PluginError::unsupported("this component is not an adapter"));
        };
        let site: Site = from_bytes(call.site.as_slice())?;
        let mut workspace = call.workspace;
        let named = call.names.iter().zip(call.values.iter());
        let params = named.map(|(name, floats)| InitialValues {
            name: name.as_str(),
            // SAFETY: the host passes disjoint slices that it holds mutably for the length of the
            // call.
            values: unsafe { std::slice::from_raw_parts_mut(floats.start, floats.len) },
        });
        adapter.initialise(InitialiseCall {
            site: &site,
            weight: call.weight.as_slice(),
            seed: call.seed,
            workspace: workspace.as_mut_slice(),
            params: params.collect(),
        })
    })
}

/// An adapter on the plugin's side of the boundary.
pub struct AdapterProxy {
    handle: InstanceHandle,
    initialise: Option<InitialiseTable>,
}

impl AdapterProxy {
    /// An adapter made of an instance, and of its table where its plugin has one.
    pub fn new(handle: InstanceHandle, initialise: Option<InitialiseTable>) -> Self {
        AdapterProxy { handle, initialise }
    }
}

impl Adapter for AdapterProxy {
    fn adapt(&self, sites: &[Site]) -> Result<Adaptation> {
        self.handle.call("adapt", &sites)
    }

    fn saved_config(&self, sites: &[Site], base_model: &str) -> Result<Json> {
        self.handle.call("saved_config", &(sites, base_model))
    }

    fn options_from_saved(&self, config: &Json) -> Result<Options> {
        self.handle.call("options_from_saved", config)
    }

    fn initialise(&self, call: InitialiseCall<'_>) -> Result<()> {
        let Some(table) = &self.initialise else {
            return Err(PluginError::unsupported(
                "it was built for an interface before 0.5, in which no param begins from a weight",
            ));
        };
        let site = to_bytes(call.site)?;
        let mut params = call.params;
        let names: Vec<RStr<'_>> = params.iter().map(|param| param.name.into()).collect();
        let values = params.iter_mut().map(|param| FloatsMut {
            start: param.values.as_mut_ptr(),
            len: param.values.len(),
        });
        let values: Vec<FloatsMut> = values.collect();
        let args = InitialiseArgs {
            site: site.as_rslice(),
            weight: call.weight.into(),
            seed: call.seed,
            workspace: call.workspace.into(),
            names: names.as_slice().into(),
            values: values.as_slice().into(),
        };
        let _inside = self.handle.site.enter("initialise");
        plain((table.initialise)(self.handle.raw, args))
    }

    fn initialise_workspace(&self, site: &Site) -> Result<u64> {
        self.handle.call("initialise_workspace", site)
    }

    fn takes_norms(&self) -> Result<bool> {
        match self.handle.call("takes_norms", &()) {
            // Built for an interface before 0.8.
            Err(error) if error.code == ErrorCode::UNSUPPORTED => Ok(false),
            answer => answer,
        }
    }
}
