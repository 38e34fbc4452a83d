//! The components of one role of a run <-> their replacement.

use std::collections::BTreeMap;
use std::mem::swap;

use espalier_config::{Config, Init};
use espalier_interface::{Adapter, Backend, Role, Services, Sharding};
use espalier_system::failure::UsageError;
use espalier_system::files::ModelDirectory;

use super::{Components, PackedCheckpoint, Quantizers, Selection};
use crate::Error;
use crate::chosen::Chosen;
use crate::registry::{PluginIdentity, Registry};

/// The component of one role, outside of a run's components.
pub enum Replacement {
    Quantizers(Quantizers),
    Adapter(Option<Chosen<dyn Adapter>>),
    Sharding(Chosen<dyn Sharding>),
    Backend(Chosen<dyn Backend>),
}

impl Replacement {
    /// Makes the component of `role` in `config`, which has `name`. No other role is looked up.
    ///
    /// # Errors
    /// [`Error::Usage`] for a role that cannot be replaced. [`Error::Registry`] for an unknown name
    /// or an unusable option.
    pub fn make(
        (role, name): (Role, Option<&str>),
        config: &Config,
        directory: &ModelDirectory,
        registry: &Registry,
        services: &'static dyn Services,
    ) -> Result<Self, Error> {
        let roles = name.map(|name| (role, name.to_owned())).into_iter();
        let selection = Selection {
            config,
            roles: BTreeMap::from_iter(roles),
            registry,
            services,
        };
        match role {
            Role::QUANTIZER => {
                let packed = match config.model.init {
                    Init::Checkpoint => PackedCheckpoint::open(directory, registry, services)?,
                    Init::Random => None,
                };
                selection.quantizers(packed).map(Replacement::Quantizers)
            }
            Role::ADAPTER => {
                let made = selection.adapter(None)?;
                Ok(Replacement::Adapter(made.map(|(adapter, _)| adapter)))
            }
            Role::SHARDING => selection.sharding().map(Replacement::Sharding),
            Role::BACKEND => selection.backend().map(Replacement::Backend),
            other => Err(Error::Usage(UsageError {
                message: format!("role {other} cannot be swapped in a run"),
                next_step: "swap a quantizer, adapter, sharding or backend".to_owned(),
            })),
        }
    }
}

impl Components {
    /// Swaps a role's component with `other`.
    pub fn exchange(&mut self, other: &mut Replacement) {
        match other {
            Replacement::Quantizers(other) => swap(&mut self.quantizers, other),
            Replacement::Adapter(other) => swap(&mut self.adapter, other),
            Replacement::Sharding(other) => swap(&mut self.sharding, other),
            Replacement::Backend(other) => swap(&mut self.backend, other),
        }
    }

    /// The component of `role`; of quantizers, the one for all linears that no rule names.
    pub fn playing(&self, role: Role) -> Option<&PluginIdentity> {
        match role {
            Role::FAMILY => Some(&self.family.identity),
            Role::QUANTIZER => self.quantizers.main(),
            Role::ADAPTER => self.adapter.as_ref().map(|chosen| &chosen.identity),
            Role::SHARDING => Some(&self.sharding.identity),
            Role::BACKEND => Some(&self.backend.identity),
            _ => None,
        }
    }

    /// The component of each role that is played: what names an error that knows the role alone.
    pub fn by_role(&self) -> Vec<(Role, PluginIdentity)> {
        let roles = [
            Role::FAMILY,
            Role::QUANTIZER,
            Role::ADAPTER,
            Role::SHARDING,
            Role::BACKEND,
        ];
        let played = roles.map(|role| Some((role, self.playing(role)?.clone())));
        played.into_iter().flatten().collect()
    }
}
