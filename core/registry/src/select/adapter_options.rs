//! Checks that the config does not change the options of a saved adapter.

use std::collections::BTreeMap;

use espalier_config::{ResolvedConfig, Section};
use espalier_interface::adaptation::{Adaptation, Site};
use espalier_interface::{Adapter, Role, Services};
use espalier_system::failure::UsageError;
use espalier_system::files::AdapterDirectory;
use serde_json::Value as Json;

use super::{Components, saved_options};
use crate::chosen::Chosen;
use crate::registry::Registry;
use crate::{Error, answer};

/// Refuses options of the config that would make another adapter than the saved one. A value that
/// is written differently and has the same effect at every site is allowed: `"all-linear"` and the
/// list of their names.
///
/// # Errors
/// [`Error::Usage`] with both values of each option, and the file. [`Error::Plugin`] for an error
/// of the adapter.
pub fn refuse_others(
    resolved: &ResolvedConfig,
    components: &Components,
    sites: &[Site],
    registry: &Registry,
    services: &'static dyn Services,
) -> Result<(), Error> {
    let (Some(adapter), Some(saved)) = (&components.adapter, &components.saved_adapter) else {
        return Ok(());
    };
    let name = &adapter.identity.component;
    let given = resolved.config().section(Role::ADAPTER.0, name);
    let (Some(given), false) = (given, resolved.has_own_adapter_options()) else {
        return Ok(());
    };
    let options = saved_options(adapter, saved)?;
    let mut differing = differing(given, &options);
    if differing.is_empty() {
        return Ok(());
    }
    let adapted = answer::adaptation(adapter, sites)?;
    let comes_to_the_same = |key: &str, value: &Json| {
        let mut changed = options.clone();
        changed.insert(key.to_owned(), value.clone());
        let other = registry.create_adapter(name, &changed, services);
        let other = other.ok().map(Chosen::<dyn Adapter>::of);
        let other: Option<Adaptation> =
            other.and_then(|other| answer::adaptation(&other, sites).ok());
        other.as_ref() == Some(&adapted)
    };
    differing.retain(|key, [value, _]| !comes_to_the_same(key, value));
    if differing.is_empty() {
        Ok(())
    } else {
        Err(refusal(resolved, name, saved, &differing))
    }
}

/// The options in `given` that differ in `saved`, with both values. Options that `saved` lacks are
/// allowed.
fn differing(given: &Section, saved: &Section) -> BTreeMap<String, [Json; 2]> {
    let given = given.iter().filter(|(_, value)| !value.is_null());
    let both = given.filter_map(|(key, value)| Some((key, value, saved.get(key)?)));
    both.filter(|(_, value, fixed)| !equal(value, fixed))
        .map(|(key, value, fixed)| (key.clone(), [value.clone(), fixed.clone()]))
        .collect()
}

/// Whether two values are equal; numbers are compared by value: 32 is 32.0.
fn equal(one: &Json, other: &Json) -> bool {
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}

fn refusal(
    resolved: &ResolvedConfig,
    name: &str,
    saved: &AdapterDirectory,
    differing: &BTreeMap<String, [Json; 2]>,
) -> Error {
    let key = |option: &String| format!("{}.{name}.{option}", Role::ADAPTER);
    let shown = differing.iter().map(|(option, [given, fixed])| {
        let key = key(option);
        let origin = resolved.origin(&key);
        format!("`{key}` is {given} ({origin}) and {fixed} in the adapter")
    });
    let shown: Vec<String> = shown.collect();
    let keys: Vec<String> = differing.keys().map(key).collect();
    Error::Usage(UsageError {
        message: format!(
            "the options of a saved adapter are its own, those of {}: {}",
            saved.path().join("adapter_config.json").display(),
            shown.join("; ")
        ),
        next_step: format!(
            "leave {} out; or leave --adapter out, which trains a new adapter",
            keys.join(", ")
        ),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn options_differ_by_value_and_only_where_the_saved_adapter_has_them() {
        let section = |json: Json| json.as_object().expect("an object").clone();
        let saved = section(json!({"rank": 8, "alpha": 16, "targets": ["q_proj"]}));
        let found = |given: Json| {
            let found = differing(&section(given), &saved);
            found.into_keys().collect::<Vec<_>>()
        };
        assert_eq!(found(json!({})), [""; 0]);
        assert_eq!(
            found(json!({"rank": 8, "alpha": 16.0, "scheme": "x", "targets": null})),
            [""; 0]
        );
        assert_eq!(
            found(json!({"rank": 4, "alpha": 1, "targets": "q_proj"})),
            ["alpha", "rank", "targets"]
        );
    }
}
