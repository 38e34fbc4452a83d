//! Checks every `[role.NAME]` of a config against the component that it names, chosen or not.
//!
//! Otherwise, with a mistyped name, the intended component would silently use its defaults.

use espalier_config::{ConfigError, ResolvedConfig, check_options, nearest};
use espalier_interface::abi::descriptor::ComponentDescriptor;

use crate::registry::{Listing, Registry, Status};

/// Checks all plugin sections of `resolved` against the components of `registry`.
///
/// # Errors
/// [`ConfigError::UnknownKey`] for a name that no component of the role has.
/// [`ConfigError::PluginOption`] for an option that it does not take. Both name the place in the
/// config; all of them are told.
pub fn check(resolved: &ResolvedConfig, registry: &Registry) -> Result<(), ConfigError> {
    check_against(resolved, &registry.list())
}

fn check_against(resolved: &ResolvedConfig, listings: &[Listing]) -> Result<(), ConfigError> {
    let mut faults = Vec::new();
    for (role, sections) in resolved.config().sections() {
        for (name, options) in sections {
            let key = format!("{role}.{name}");
            let of_role = || listings.iter().filter(|listing| listing.role == role);
            let found = of_role().find(|listing| &listing.component == name);
            let Some(found) = found else {
                let known = || of_role().map(|listing| listing.component.as_str());
                faults.push(ConfigError::UnknownKey {
                    key: name.clone(),
                    section: format!("[{role}]"),
                    origin: Box::new(resolved.origin(&key)),
                    nearest: nearest(name, known()).map(str::to_owned),
                    known: known().map(str::to_owned).collect(),
                });
                continue;
            };
            if matches!(found.status, Status::Broken { .. }) {
                // Reported only to a run that names it.
                continue;
            }
            let component = ComponentDescriptor {
                name: found.component.clone(),
                role: found.role.clone(),
                doc: found.doc.clone(),
                options: found.options.clone(),
                capabilities: found.capabilities.clone(),
            };
            let mut left = options.clone();
            while let Err(problem) = check_options(&component, &left) {
                left.remove(problem.option());
                let key = format!("{key}.{}", problem.option());
                faults.push(ConfigError::PluginOption {
                    origin: Box::new(resolved.origin(&key)),
                    problem: Box::new(problem),
                });
            }
        }
    }
    ConfigError::all(faults)
}

#[cfg(test)]
mod tests;
