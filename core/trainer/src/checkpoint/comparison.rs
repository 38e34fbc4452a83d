//! The `run.json` contents of two runs -> the differences that can change the result.

use espalier_config::Config;
use espalier_interface::Role;
use espalier_registry::PluginIdentity;
use serde_json::{Value as Json, json};

use super::difference::{Difference, Leaves, Part, compare, leaves};
use super::{CheckpointError, Extension, completed_config};
use crate::Error;

/// Roles whose components decide the placement and transfer of bytes. Another component, or another
/// number of ranks, changes rounding only.
const LAYOUT: [Role; 2] = [Role::SHARDING, Role::COLLECTIVE];

/// Differences of `new` and `old`, both contents of `run.json`, in a run after `step` steps. Empty
/// where the resumed run gives the same result as an uninterrupted one, except for the changes of
/// `extension`.
pub(crate) fn differences(
    old: &Json,
    new: &Json,
    step: u64,
    extension: &Extension,
) -> Vec<Difference> {
    let mut found = stated_differences(old, new, step, extension);
    // Consequences of the other keys, so only reported where no other difference is found.
    if found.is_empty() {
        let derived = |run: &Json| {
            leaves(&json!({
                "plan": run["plan_sha256"],
                "tokenizer": run["data"]["tokenizer_sha256"],
                "rows of calibration": run["calibration"]["sha256"],
                "rows of the first step": run["data"]["first_step_sha256"],
            }))
        };
        found = compare(&derived(old), &derived(new), Part::Other, "");
    }
    found
}

/// As [`differences`], without the consequences of other keys.
pub(crate) fn stated_differences(
    old: &Json,
    new: &Json,
    step: u64,
    extension: &Extension,
) -> Vec<Difference> {
    let mut found = config_differences(old, new, step, extension);
    let others: [(&str, Read); 5] = [
        ("plugin ", |run| plugins(&run["plugins"])),
        ("model file ", |run| hashes(&run["model"]["files"])),
        ("adapter file ", |run| {
            hashes(&run["model"]["adapter_files"])
        }),
        ("data file ", |run| hashes(&run["data"]["files"])),
        ("eval file ", |run| hashes(&run["data"]["eval_files"])),
    ];
    for (prefix, leaves) in others {
        found.extend(compare(&leaves(old), &leaves(new), Part::Other, prefix));
    }
    found.retain(|one| !is_of_the_program(one, &old["plugins"], &new["plugins"]));
    found
}

/// Differences of a component from the one on record after a swap.
pub(crate) fn plugin_differences(
    old: Option<&PluginIdentity>,
    new: Option<&PluginIdentity>,
) -> Result<(), Error> {
    let [old, new] = [old, new].map(|identity| json!(Vec::from_iter(identity)));
    let mut differences = compare(&plugins(&old), &plugins(&new), Part::Other, "plugin ");
    differences.retain(|one| !is_of_the_program(one, &old, &new));
    if differences.is_empty() {
        Ok(())
    } else {
        Err(Error::Resume(CheckpointError::Changed {
            path: "the swap on record".into(),
            differences,
            result: None,
        }))
    }
}

/// As [`differences`], for the config alone.
pub(crate) fn config_differences(
    old: &Json,
    new: &Json,
    step: u64,
    extension: &Extension,
) -> Vec<Difference> {
    let mut completed = old.clone();
    if let Some(fields) = completed.as_object_mut() {
        fields.insert("config".to_owned(), completed_config(old));
    }
    let old = &completed;
    let used = [old, new].map(|run| run["plugins"].as_array());
    let used = used.into_iter().flatten().flatten();
    let layout = used.filter(|plugin| is_layout(plugin));
    let layout: Vec<&Json> = layout.map(|plugin| &plugin["component"]).collect();
    let adapter = AdapterSection::of(old);
    let [before, after] = [old, new].map(|run| config(run, &layout, adapter));
    let mut found = compare(&before, &after, Part::Config, "");
    for one in found.iter_mut().filter(|one| !Config::has_key(&one.key)) {
        one.reason = Some(
            "no config has this key: `run.json` is damaged, or a newer version wrote it".to_owned(),
        );
    }
    extension.judge(&mut found, old, new, step);
    found
}

/// Reads a part of `run.json`.
type Read = fn(&Json) -> Leaves;

/// Whether the config's `[adapter.NAME]` has an effect in a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AdapterSection {
    Decides,
    /// The run started with a saved adapter, which has its own options: its files are compared.
    Idle,
}

impl AdapterSection {
    fn of(run: &Json) -> Self {
        let swaps = run["swaps"].as_array().into_iter().flatten();
        let mut roles = swaps.map(|swap| &swap["request"]["role"]);
        let began_saved = run["model"]["adapter_files"].is_array();
        if began_saved && roles.all(|role| role != Role::ADAPTER.0) {
            AdapterSection::Idle
        } else {
            AdapterSection::Decides
        }
    }
}

/// The keys of the config that matter; the components in `layout` do not.
fn config(run: &Json, layout: &[&Json], adapter: AdapterSection) -> Leaves {
    let mut config = run["config"].clone();
    if let Some(sections) = config.as_object_mut() {
        let idle = adapter == AdapterSection::Idle;
        sections.retain(|key, _| !(idle && key == Role::ADAPTER.0));
        // The other arms of a comparison have no effect on this run.
        sections.retain(|key, _| !["compare", "arms"].contains(&key.as_str()));
        sections.retain(|key, _| !LAYOUT.iter().any(|role| role.0 == key));
    }
    // Components are chosen by name, one per role: their order has no meaning.
    if let Some(plugins) = config.get_mut("plugins").and_then(Json::as_array_mut) {
        plugins.retain(|name| !layout.contains(&name));
        plugins.sort_by_key(ToString::to_string);
    }
    let mut leaves = leaves(&config);
    leaves.retain(|key, _| !Config::is_resumable(key));
    leaves
}

/// Components by name; the path of their library has no meaning.
pub(crate) fn plugins(list: &Json) -> Leaves {
    let mut by_name = serde_json::Map::new();
    let all = list.as_array().into_iter().flatten();
    for plugin in all.filter(|plugin| !is_layout(plugin)) {
        let mut plugin = plugin.clone();
        let fields = plugin.as_object_mut();
        let name = fields.and_then(|fields| {
            fields.shift_remove("file");
            fields.shift_remove("component")
        });
        let name = name.and_then(|name| name.as_str().map(str::to_owned));
        by_name.insert(name.unwrap_or_default(), plugin);
    }
    leaves(&Json::Object(by_name))
}

/// Whether a difference between two lists of components is only due to another program version. A
/// linked plugin is built with the program's interface, and a bundled one has the program's
/// version.
fn is_of_the_program(difference: &Difference, old: &Json, new: &Json) -> bool {
    let all = |list: &Json| list.as_array().cloned().unwrap_or_default();
    let linked = |list: &Json, name: &str| {
        let mut plugins = all(list).into_iter();
        plugins.find(|plugin| plugin["component"] == name && plugin["sha256"].is_null())
    };
    let pair = |name: &str| Some((linked(old, name)?, linked(new, name)?));
    let key = difference.key.strip_prefix("plugin ");
    match key.and_then(|key| key.rsplit_once('.')) {
        Some((name, "abi")) => pair(name).is_some(),
        Some((name, "version")) => {
            pair(name).is_some_and(|(_, new)| new["version"] == env!("CARGO_PKG_VERSION"))
        }
        _ => false,
    }
}

/// Whether a component on record has a role of [`LAYOUT`].
fn is_layout(plugin: &Json) -> bool {
    LAYOUT.iter().any(|role| plugin["role"] == role.0)
}

/// Hashes of files, by name inside a directory, else by number: independent of their paths.
pub(crate) fn hashes(list: &Json) -> Leaves {
    let files = list.as_array().into_iter().flatten().enumerate();
    files
        .map(|(index, file)| {
            let name = file["file"].as_str().map(str::to_owned);
            let hash = file["sha256"].as_str().unwrap_or_default();
            (
                name.unwrap_or_else(|| (index + 1).to_string()),
                hash.to_owned(),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests;
