//! Two runs' circumstances -> what of them differs and could change the result.

use espalier_interface::Role;
use espalier_registry::PluginIdentity;
use serde_json::{Value as Json, json};

use super::difference::{Difference, Leaves, Part, compare, leaves};
use super::horizon::longer_is_the_same;
use super::{CheckpointError, completed_config};
use crate::Error;

/// Config keys that change no result: where things lie, and how often something is saved. Files are
/// compared by their content.
const FREE: [&str; 19] = [
    "run.out",
    "run.devices",
    "run.ranks",
    "run.threads",
    "run.save_every",
    "run.keep_last",
    "run.plugin_dirs",
    "run.allow_world_writable_plugins",
    "run.probe_timeout_secs",
    "run.plugin_timeout_secs",
    "run.peer_timeout_secs",
    "run.join_timeout_secs",
    "model.path",
    "model.adapter",
    "model.recompute",
    "data.files",
    "data.eval_files",
    "data.cache_dir",
    "data.max_lost",
];

/// Roles whose components say where bytes lie and how they travel: another one, or another number
/// of ranks, changes rounding only.
const LAYOUT: [Role; 2] = [Role::SHARDING, Role::COLLECTIVE];

/// Config keys that say when the run ends.
const HORIZON: [&str; 2] = ["run.epochs", "run.max_steps"];

/// What of `new` differs from `old`, both as `run.json` has them, in a run that has done `step`
/// steps. Empty where going on gives what never having stopped would have given.
pub(crate) fn differences(old: &Json, new: &Json, step: u64) -> Vec<Difference> {
    let mut found = stated_differences(old, new, step);
    // What the rest leads to, and so only told where nothing above explains it.
    if found.is_empty() {
        let derived = |run: &Json| {
            leaves(&json!({
                "plan": run["plan_sha256"],
                "tokenizer": run["data"]["tokenizer_sha256"],
                "rows of the first step": run["data"]["first_step_sha256"],
            }))
        };
        found = compare(&derived(old), &derived(new), Part::Other, "");
    }
    found
}

/// As [`differences`], without what only follows from the rest.
pub(crate) fn stated_differences(old: &Json, new: &Json, step: u64) -> Vec<Difference> {
    let mut found = config_differences(old, new, step);
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

/// Refuses a component that is not the one that a swap on record came to.
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
        }))
    }
}

/// As [`differences`], of the config alone.
pub(crate) fn config_differences(old: &Json, new: &Json, step: u64) -> Vec<Difference> {
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
    let horizon = |key: &str| HORIZON.contains(&key);
    if found.iter().any(|one| horizon(&one.key)) {
        match longer_is_the_same(old, new, step) {
            Ok(()) => found.retain(|one| !horizon(&one.key)),
            Err(reason) => {
                let ends = found.iter_mut().filter(|one| horizon(&one.key));
                ends.for_each(|one| one.reason = Some(reason.clone()));
            }
        }
    }
    found
}

/// Reads a part of the circumstances.
type Read = fn(&Json) -> Leaves;

/// Whether the config's `[adapter.NAME]` decides anything in a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AdapterSection {
    Decides,
    /// The run began with a saved adapter, whose options are its own: its files are compared.
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
        // What other runs it is compared with says nothing of this one.
        sections.retain(|key, _| !["compare", "arms"].contains(&key.as_str()));
        sections.retain(|key, _| !LAYOUT.iter().any(|role| role.0 == key));
    }
    // Components are chosen by name, one a role: their order says nothing.
    if let Some(plugins) = config.get_mut("plugins").and_then(Json::as_array_mut) {
        plugins.retain(|name| !layout.contains(&name));
        plugins.sort_by_key(ToString::to_string);
    }
    let mut leaves = leaves(&config);
    leaves.retain(|key, _| !FREE.contains(&key.as_str()));
    leaves
}

/// Components by name; where their library lies says nothing.
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

/// Whether a difference between two lists of components says no more than that the program is of
/// another version: a linked plugin was built with the program's own interface, and one that came
/// with it has the program's version.
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

/// Whether a component on record says where bytes lie.
fn is_layout(plugin: &Json) -> bool {
    LAYOUT.iter().any(|role| plugin["role"] == role.0)
}

/// Hashes of files, by name inside a directory and else by number: equal wherever they lie.
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
mod tests {
    use super::*;
    use crate::checkpoint::CONFIG_VERSION;

    fn run(total: u64, schedule: &str) -> Json {
        json!({
            "espalier": "0.1.0",
            "config_version": CONFIG_VERSION,
            "config": {
                "plugins": ["nf4", "lora"],
                "run": {"out": "a", "threads": 1, "epochs": 1, "max_steps": total, "seed": 42},
                "optim": {"learning_rate": 2e-4, "schedule": schedule},
            },
            "plugins": [{"component": "nf4", "version": "0.1.0", "sha256": null, "file": null}],
            "model": {"files": [{"file": "config.json", "sha256": "aa"}]},
            "data": {"files": [{"path": "x/rows.jsonl", "sha256": "bb"}], "total_steps": total},
            "plan_sha256": "cc",
        })
    }

    fn shown(old: &Json, new: &Json, step: u64) -> Vec<String> {
        let found = differences(old, new, step);
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_changes_no_result_may_change() {
        let (old, mut new) = (run(9, "constant"), run(9, "constant"));
        new["config"]["plugins"] = json!(["lora", "nf4"]);
        new["config"]["run"]["out"] = json!("/elsewhere");
        new["config"]["run"]["threads"] = Json::Null;
        new["data"]["files"][0]["path"] = json!("y/lines.jsonl");
        new["plugins"][0]["file"] = json!("/y/libnf4.so");
        assert_eq!(shown(&old, &new, 3), [""; 0]);
    }

    #[test]
    fn a_run_may_go_on_at_another_number_of_ranks() {
        let (old, mut new) = (run(9, "constant"), run(9, "constant"));
        new["world"] = json!(4);
        new["config"]["run"]["ranks"] = json!(4);
        new["config"]["plugins"] = json!(["nf4", "lora", "fsdp"]);
        new["config"]["sharding"] = json!({"fsdp": {"offload": "params"}});
        let fsdp = json!({"component": "fsdp", "role": "sharding", "version": "0.1.0"});
        new["plugins"].as_array_mut().expect("a list").push(fsdp);
        assert_eq!(shown(&old, &new, 3), [""; 0]);
        assert_eq!(shown(&new, &old, 3), [""; 0]);
        // Of a finished run's, only the config is compared.
        let again = json!({"config": new["config"]});
        assert!(config_differences(&new, &again, u64::MAX).is_empty());
        new["config"]["plugins"] = json!(["nf4", "fsdp"]);
        assert!(!shown(&old, &new, 3).is_empty());
    }

    #[test]
    fn a_key_that_came_later_is_no_difference_where_the_run_has_the_earlier_value() {
        let (mut old, mut new) = (run(9, "constant"), run(9, "constant"));
        old.as_object_mut()
            .expect("a record")
            .remove("config_version");
        let data = |train_on| json!({"train_on": train_on, "on_empty": "train", "tools": "ignore"});
        new["config"]["data"] = data("completion");
        assert_eq!(shown(&old, &new, 3), [""; 0]);
        new["config"]["data"] = data("all");
        let refused = ["data.train_on: \"completion\" -> \"all\""];
        assert_eq!(shown(&old, &new, 3), refused);
        // What the older run says itself holds.
        old["config"]["data"] = json!({"train_on": "all"});
        assert_eq!(shown(&old, &new, 3), [""; 0]);
    }

    #[test]
    fn a_newer_program_may_go_on_and_another_library_may_not() {
        let (mut old, mut new) = (run(9, "constant"), run(9, "constant"));
        old["espalier"] = json!("0.0.9");
        for (run, abi) in [(&mut old, 2), (&mut new, 4)] {
            run["plugins"][0]["abi"] = json!([0, abi]);
        }
        old["plugins"][0]["version"] = json!("0.0.9");
        new["plugins"][0]["version"] = json!(env!("CARGO_PKG_VERSION"));
        assert_eq!(shown(&old, &new, 3), [""; 0]);
        // A plugin with a version of its own, linked by somebody's own host.
        new["plugins"][0]["version"] = json!("7.0.0");
        let own = ["plugin nf4.version: \"0.0.9\" -> \"7.0.0\""];
        assert_eq!(shown(&old, &new, 3), own);
        new["plugins"][0]["sha256"] = json!("dd");
        assert_eq!(shown(&old, &new, 3).len(), 3);
    }

    #[test]
    fn the_options_of_a_saved_adapter_are_compared_by_its_files() {
        let (mut old, mut new) = (run(9, "constant"), run(9, "constant"));
        for run in [&mut old, &mut new] {
            run["model"]["adapter_files"] = json!([{"file": "adapter_config.json", "sha256": "a"}]);
        }
        // An earlier program took such an option and did nothing with it.
        old["config"]["adapter"] = json!({"lora": {"rank": 16}});
        assert_eq!(shown(&old, &new, 3), [""; 0]);
        let again = json!({"config": new["config"]});
        assert!(config_differences(&old, &again, u64::MAX).is_empty());
        // After a swap of the adapter they are the config's.
        old["swaps"] = json!([{"request": {"role": "adapter"}}]);
        assert_eq!(shown(&old, &new, 3), ["adapter.lora.rank: 16 -> unset"]);
    }

    #[test]
    fn every_other_difference_is_named_with_both_values() {
        let (old, mut new) = (run(9, "constant"), run(9, "constant"));
        new["config"]["run"]["seed"] = json!(7);
        new["config"]["run"]["eval_every"] = json!(2);
        assert!(
            differences(&old, &new, 3)
                .iter()
                .all(Difference::is_of_config)
        );
        new["plugins"][0]["sha256"] = json!("dd");
        new["model"]["files"][0]["sha256"] = json!("ee");
        new["data"]["files"][0]["sha256"] = json!("ff");
        new["plan_sha256"] = json!("gg");
        let expected = [
            "run.eval_every: unset -> 2",
            "run.seed: 42 -> 7",
            "plugin nf4.sha256: unset -> \"dd\"",
            "model file config.json: aa -> ee",
            "data file 1: bb -> ff",
        ];
        assert_eq!(shown(&old, &new, 3), expected);
        let mut new = old.clone();
        new["plan_sha256"] = json!("gg");
        assert_eq!(shown(&old, &new, 3), ["plan: \"cc\" -> \"gg\""]);
    }

    #[test]
    fn a_run_may_become_longer_where_its_steps_stay_the_same() {
        let longer = |schedule, step| shown(&run(9, schedule), &run(12, schedule), step);
        assert_eq!(longer("constant", 3), [""; 0]);
        let refused = longer("linear", 3);
        assert_eq!(refused.len(), 1, "{refused:?}");
        let expected = "run.max_steps: 9 -> 12 (the learning rate of step 2 follows from";
        assert!(refused[0].starts_with(expected), "{refused:?}");
        assert!(longer("constant", 9)[0].contains("had come to its end"));
        let shorter = shown(&run(12, "constant"), &run(9, "constant"), 3);
        assert!(shorter[0].contains("cannot become"), "{shorter:?}");
    }
}
