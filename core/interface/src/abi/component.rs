//! The table of every component: create it, destroy it, and call the methods whose data cross as
//! JSON.

use std::sync::Arc;

use abi_stable::StableAbi;
use abi_stable::std_types::{RSlice, RStr, RVec};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use super::call_site::{CREATE, CallSite};
use super::reply::{Reply, from_bytes, guard, plain, to_bytes};
use super::{Opaque, ServicesTable};
use crate::adaptation::Site;
use crate::declaration::{Declaration, Instance};
use crate::model::Model;
use crate::role::{Family, Role, Sharding};
use crate::schedule::{Schedule, ShardingRequest};
use crate::{Options, PluginError, Result, Services};

/// Version of [`ComponentTable`].
pub const COMPONENT_VERSION: u32 = 1;

/// The methods of [`ComponentTable::call`] by role; their requests and replies are JSON.
pub const METHODS: [(Role, &[&str]); 6] = [
    (Role::FAMILY, &["describe"]),
    (
        Role::ADAPTER,
        &[
            "adapt",
            "saved_config",
            "options_from_saved",
            "initialise_workspace",
            "takes_norms",
        ],
    ),
    (Role::SHARDING, &["schedule"]),
    (
        Role::QUANTIZER,
        &[
            "format",
            "encode_workspace",
            "calibration",
            "calibrated_workspace",
            "device_code",
            "saved_form",
            "quantization_config",
            "options_from_saved",
        ],
    ),
    (Role::BACKEND, &["devices", "ops"]),
    (Role::COLLECTIVE, &["describe", "invite", "device_bytes"]),
];

/// The functions of every component.
#[repr(C)]
#[derive(StableAbi, Clone, Copy)]
pub struct ComponentTable {
    /// Makes the component called `component` from JSON options.
    pub create: extern "C" fn(Opaque, RStr<'_>, RSlice<'_, u8>, ServicesTable) -> Reply<Opaque>,
    /// Destroys it.
    pub destroy: extern "C" fn(Opaque),
    /// Calls a method by name, JSON in and out.
    pub call: extern "C" fn(Opaque, RStr<'_>, RSlice<'_, u8>) -> Reply<RVec<u8>>,
}

pub(super) static COMPONENT_TABLE: ComponentTable = ComponentTable {
    create,
    destroy,
    call,
};

extern "C" fn create(
    context: Opaque,
    component: RStr<'_>,
    options: RSlice<'_, u8>,
    services: ServicesTable,
) -> Reply<Opaque> {
    guard(|| {
        // SAFETY: `PluginRoot::new` made `context` from a `&'static Declaration` of this very
        // library.
        let declaration = unsafe { &*context.cast::<Declaration>() };
        let wanted = declaration
            .components
            .iter()
            .find(|one| one.name == component.as_str());
        let Some(found) = wanted else {
            let message = format!(
                "plugin `{}` has no component `{component}`",
                declaration.name
            );
            return Err(PluginError::invalid(message));
        };
        let options: Options = from_bytes(options.as_slice())?;
        let instance = (found.create)(&options, Arc::new(services))?;
        Ok(Box::into_raw(Box::new(instance)).cast_const().cast())
    })
}

extern "C" fn destroy(instance: Opaque) {
    let _ = guard(|| {
        // SAFETY: the host passes each pointer that `create` made exactly once.
        drop(unsafe { Box::from_raw(instance.cast_mut().cast::<Instance>()) });
        Ok(())
    });
}

/// The instance of a handle, on the plugin's side.
pub(super) fn instance<'a>(handle: Opaque) -> &'a Instance {
    // SAFETY: `create` made it as a `Box<Instance>`, and the host keeps it until `destroy`.
    unsafe { &*handle.cast::<Instance>() }
}

extern "C" fn call(handle: Opaque, method: RStr<'_>, request: RSlice<'_, u8>) -> Reply<RVec<u8>> {
    guard(|| {
        let request = request.as_slice();
        match (instance(handle), method.as_str()) {
            (Instance::Family(family), "describe") => {
                to_bytes(&family.describe(&from_bytes(request)?)?)
            }
            (Instance::Adapter(adapter), "adapt") => {
                to_bytes(&adapter.adapt(&from_bytes::<Vec<Site>>(request)?)?)
            }
            (Instance::Adapter(adapter), "saved_config") => {
                let (sites, base): (Vec<Site>, String) = from_bytes(request)?;
                to_bytes(&adapter.saved_config(&sites, &base)?)
            }
            (Instance::Adapter(adapter), "options_from_saved") => {
                to_bytes(&adapter.options_from_saved(&from_bytes(request)?)?)
            }
            (Instance::Adapter(adapter), "initialise_workspace") => {
                to_bytes(&adapter.initialise_workspace(&from_bytes(request)?)?)
            }
            (Instance::Adapter(adapter), "takes_norms") => to_bytes(&adapter.takes_norms()?),
            (Instance::Sharding(sharding), "schedule") => {
                to_bytes(&sharding.schedule(&from_bytes(request)?)?)
            }
            (Instance::Quantizer(quantizer), "format") => {
                to_bytes(&quantizer.format(from_bytes(request)?)?)
            }
            (Instance::Quantizer(quantizer), "encode_workspace") => {
                to_bytes(&quantizer.encode_workspace(from_bytes(request)?)?)
            }
            (Instance::Quantizer(quantizer), "calibration") => {
                let (site, shape): (String, _) = from_bytes(request)?;
                to_bytes(&quantizer.calibration(&site, shape)?)
            }
            (Instance::Quantizer(quantizer), "calibrated_workspace") => {
                to_bytes(&quantizer.calibrated_workspace(from_bytes(request)?)?)
            }
            (Instance::Quantizer(quantizer), "device_code") => to_bytes(&quantizer.device_code()?),
            (Instance::Quantizer(quantizer), "saved_form") => {
                let (shape, dtype) = from_bytes(request)?;
                to_bytes(&quantizer.saved_form(shape, dtype)?)
            }
            (Instance::Quantizer(quantizer), "quantization_config") => {
                to_bytes(&quantizer.quantization_config(&from_bytes(request)?)?)
            }
            (Instance::Quantizer(quantizer), "options_from_saved") => {
                to_bytes(&quantizer.options_from_saved(&from_bytes(request)?)?)
            }
            (Instance::Backend(backend), "devices") => to_bytes(&backend.devices()?),
            (Instance::Backend(backend), "ops") => to_bytes(&backend.ops()?),
            (Instance::Collective(collective), "describe") => to_bytes(&collective.describe()?),
            (Instance::Collective(collective), "invite") => to_bytes(&collective.invite()?),
            (Instance::Collective(collective), "device_bytes") => {
                to_bytes(&collective.device_bytes()?)
            }
            (_, other) => Err(PluginError::unsupported(format!(
                "no method `{other}` here"
            ))),
        }
    })
}

/// A component on the host's side; destroyed when dropped.
pub struct InstanceHandle {
    table: ComponentTable,
    pub(super) raw: Opaque,
    pub(super) site: &'static CallSite,
}

// SAFETY: the traits of every instance are Send and Sync.
unsafe impl Send for InstanceHandle {}
// SAFETY: as above.
unsafe impl Sync for InstanceHandle {}

impl InstanceHandle {
    /// Makes the component that `site` names; all calls of the component are marked with `site`.
    ///
    /// # Errors
    /// What the component's `create` reports, such as `INVALID` for options that it refuses.
    pub fn create(
        table: ComponentTable,
        context: Opaque,
        site: &'static CallSite,
        options: &Options,
        services: &'static dyn Services,
    ) -> Result<Self> {
        let options = to_bytes(options)?;
        let services = ServicesTable::new(services);
        let _inside = site.enter(CREATE);
        let made = (table.create)(
            context,
            site.component().into(),
            options.as_rslice(),
            services,
        );
        Ok(InstanceHandle {
            table,
            raw: plain(made)?,
            site,
        })
    }

    pub(super) fn call<T: DeserializeOwned>(
        &self,
        method: &'static str,
        request: &impl Serialize,
    ) -> Result<T> {
        let request = to_bytes(request)?;
        let _inside = self.site.enter(method);
        let reply = plain((self.table.call)(
            self.raw,
            method.into(),
            request.as_rslice(),
        ))?;
        from_bytes(reply.as_slice())
    }
}

impl Drop for InstanceHandle {
    fn drop(&mut self) {
        let _inside = self.site.enter("destroy");
        (self.table.destroy)(self.raw);
    }
}

/// A family on the plugin's side of the boundary.
pub struct FamilyProxy(pub InstanceHandle);

impl Family for FamilyProxy {
    fn describe(&self, config: &Json) -> Result<Model> {
        self.0.call("describe", config)
    }
}

/// A sharding strategy on the plugin's side of the boundary.
pub struct ShardingProxy(pub InstanceHandle);

impl Sharding for ShardingProxy {
    fn schedule(&self, request: &ShardingRequest) -> Result<Schedule> {
        self.0.call("schedule", request)
    }
}
