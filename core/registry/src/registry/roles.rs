//! `--plugins a,b,c`, a `model_type`, a `peft_type` or a `quant_method` -> components.

use std::collections::BTreeMap;

use espalier_interface::abi::descriptor::ComponentDescriptor;
use espalier_interface::format::DeviceCode;
use espalier_interface::{PluginError, Role};

use super::{Registry, RegistryError};

impl Registry {
    /// The roles of the named components; a role that is not named is absent, and so is the
    /// collective of devices ([`Registry::device_collective`]).
    ///
    /// # Errors
    /// [`RegistryError::UnknownComponent`], [`RegistryError::TwoOfRole`], and
    /// [`RegistryError::Plugin`] for a role that this host does not know.
    pub fn roles_of<S: AsRef<str>>(
        &self,
        names: &[S],
    ) -> Result<BTreeMap<Role, String>, RegistryError> {
        let mut chosen: BTreeMap<Role, String> = BTreeMap::new();
        for name in names {
            let found = self.find(None, name.as_ref())?;
            if joins_devices(found.component) {
                continue;
            }
            let second = found.component.name.clone();
            let Some(role) = Role::from_name(&found.component.role) else {
                let roles = Role::ALL.map(|role| role.0).join(", ");
                let message = format!(
                    "role `{}` is unknown to this host, which has {roles}",
                    found.component.role
                );
                let error = PluginError::unsupported(message);
                return Err(self.identity(&found).failed("its description", error));
            };
            if let Some(first) = chosen.insert(role, second.clone()) {
                return Err(RegistryError::TwoOfRole {
                    role,
                    first,
                    second,
                });
            }
        }
        Ok(chosen)
    }

    /// The collective among the named components that works on the memory of devices. It stands
    /// beside the one that joins threads or processes.
    ///
    /// # Errors
    /// [`RegistryError::UnknownComponent`] and [`RegistryError::TwoOfRole`].
    pub fn device_collective<S: AsRef<str>>(
        &self,
        names: &[S],
    ) -> Result<Option<String>, RegistryError> {
        let mut chosen: Option<String> = None;
        for name in names {
            let found = self.find(None, name.as_ref())?;
            if !joins_devices(found.component) {
                continue;
            }
            let second = found.component.name.clone();
            if let Some(first) = chosen.replace(second.clone()) {
                let role = Role::COLLECTIVE;
                return Err(RegistryError::TwoOfRole {
                    role,
                    first,
                    second,
                });
            }
        }
        Ok(chosen)
    }

    /// The family that reads a `config.json` of this `model_type`.
    ///
    /// # Errors
    /// [`RegistryError::NoReader`], with the known values.
    pub fn family_for(&self, model_type: &str) -> Result<String, RegistryError> {
        self.first_reader(Role::FAMILY, "model_types", "model_type", model_type)
    }

    /// The adapters that may read an `adapter_config.json` of this `peft_type`. The rest of it
    /// decides among them: DoRA's is that of LoRA with `use_dora`.
    ///
    /// # Errors
    /// [`RegistryError::NoReader`], with the known values.
    pub fn adapters_for(&self, peft_type: &str) -> Result<Vec<String>, RegistryError> {
        self.readers(Role::ADAPTER, "peft_types", "peft_type", peft_type)
    }

    /// The quantizers that may read weights of this `quant_method`. The rest of the
    /// `quantization_config` decides among them.
    ///
    /// # Errors
    /// [`RegistryError::NoReader`], with the known values.
    pub fn quantizers_for(&self, quant_method: &str) -> Result<Vec<String>, RegistryError> {
        let key = "quant_method";
        self.readers(Role::QUANTIZER, "quant_methods", key, quant_method)
    }

    /// The backends that compile device code in `language`, such as `cuda`.
    pub fn backends_with_code(&self, language: &str) -> Vec<String> {
        let capability = DeviceCode::CAPABILITY;
        let found = self.readers(Role::BACKEND, capability, capability, language);
        found.unwrap_or_default()
    }

    fn first_reader(
        &self,
        role: Role,
        capability: &str,
        key: &'static str,
        value: &str,
    ) -> Result<String, RegistryError> {
        let mut readers = self.readers(role, capability, key, value)?;
        Ok(readers.swap_remove(0))
    }

    /// The components of `role` whose `capability` lists `value`; at least one.
    fn readers(
        &self,
        role: Role,
        capability: &str,
        key: &'static str,
        value: &str,
    ) -> Result<Vec<String>, RegistryError> {
        let mut known: Vec<String> = Vec::new();
        let mut readers: Vec<String> = Vec::new();
        for component in self.usable().filter(|one| one.role == role.0) {
            let values = component
                .capabilities
                .get(capability)
                .map_or("", String::as_str);
            for read in values.split([',', ' ']).filter(|read| !read.is_empty()) {
                if read == value {
                    readers.push(component.name.clone());
                }
                known.push(format!("{read} ({})", component.name));
            }
        }
        if !readers.is_empty() {
            return Ok(readers);
        }
        known.dedup();
        Err(RegistryError::NoReader {
            role,
            key,
            value: value.to_owned(),
            known,
            broken: self.broken(),
        })
    }
}

/// Whether a component is a collective whose capability `memory` names a backend: it works on that
/// backend's devices.
fn joins_devices(component: &ComponentDescriptor) -> bool {
    component.role == Role::COLLECTIVE.0 && component.capabilities.contains_key("memory")
}
