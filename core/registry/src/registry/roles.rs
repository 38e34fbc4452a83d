//! `--plugins a,b,c`, a `model_type` or a `peft_type` -> the components that are meant.

use std::collections::BTreeMap;

use espalier_interface::{PluginError, Role};

use super::{Registry, RegistryError};

impl Registry {
    /// The roles of the named components; a role that is not named is absent.
    ///
    /// # Errors
    /// A name that is unknown, of a role that this host does not know, or a second one of its role.
    pub fn roles_of<S: AsRef<str>>(
        &self,
        names: &[S],
    ) -> Result<BTreeMap<Role, String>, RegistryError> {
        let mut chosen: BTreeMap<Role, String> = BTreeMap::new();
        for name in names {
            let found = self.find(None, name.as_ref())?;
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

    /// The family that reads a `config.json` of this `model_type`.
    ///
    /// # Errors
    /// Where none does, with what is read.
    pub fn family_for(&self, model_type: &str) -> Result<String, RegistryError> {
        self.first_reader(Role::FAMILY, "model_types", "model_type", model_type)
    }

    /// The adapter that reads an `adapter_config.json` of this `peft_type`.
    ///
    /// # Errors
    /// Where none does, with what is read.
    pub fn adapter_for(&self, peft_type: &str) -> Result<String, RegistryError> {
        self.first_reader(Role::ADAPTER, "peft_types", "peft_type", peft_type)
    }

    /// The quantizers that may read weights of this `quant_method`: the rest of the
    /// `quantization_config` tells which does.
    ///
    /// # Errors
    /// Where none does, with what is read.
    pub fn quantizers_for(&self, quant_method: &str) -> Result<Vec<String>, RegistryError> {
        let key = "quant_method";
        self.readers(Role::QUANTIZER, "quant_methods", key, quant_method)
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

    /// The components of `role` whose `capability` lists `value`: one at least.
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
