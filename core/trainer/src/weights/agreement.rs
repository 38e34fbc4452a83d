//! What every process runs, said once at the start -> all the same, or who differs in what.

use std::collections::{BTreeMap, BTreeSet};

use espalier_engine::ranks::{Cause, Lost};
use espalier_system::world::World;
use serde_json::{Value as Json, json};

use crate::Error;
use crate::checkpoint::{file_hashes, leaves, plugin_leaves};

/// Config keys in which processes may differ: where things lie on their machine, and what its
/// threads and libraries are. Files are compared by their content.
const LOCAL: [&str; 11] = [
    "run.out",
    "run.threads",
    "run.plugin_dirs",
    "run.allow_world_writable_plugins",
    "run.probe_timeout_secs",
    "run.plugin_timeout_secs",
    "model.path",
    "model.adapter",
    "data.files",
    "data.eval_files",
    "data.cache_dir",
];

/// Differences that a message names.
const NAMED: usize = 4;

/// What a process runs, by key.
type Sheet = BTreeMap<String, String>;

/// Sees to it that all processes of `world` run the same: `circumstances` is what `run.json` holds,
/// and `step` where the run begins. `exchange` passes what this process says to all and returns
/// what each says, by process.
///
/// # Errors
/// [`Error::Peer`] for the first process that does not run what most run, naming what differs;
/// those of `exchange`.
pub fn agree(
    world: &World,
    circumstances: &Json,
    step: u64,
    exchange: impl FnOnce(&[u8]) -> Result<Vec<Vec<u8>>, Error>,
) -> Result<(), Error> {
    if world.processes == 1 {
        return Ok(());
    }
    let sent = serde_json::to_vec(&sheet(circumstances, step)).expect("a sheet is plain data");
    let received = exchange(&sent)?;
    let sheets = received
        .iter()
        .map(|sent| serde_json::from_slice(sent).unwrap_or_default());
    let sheets: Vec<Sheet> = sheets.collect();
    match odd_one_out(&sheets) {
        None => Ok(()),
        Some((odd, common)) => {
            let rank = |process: usize| process as u32 * world.ranks_per_process();
            let differences = differences(&sheets[common], &sheets[odd]);
            let message = format!(
                "it does not run what rank {} runs: {}",
                rank(common),
                shown(&differences)
            );
            Err(Error::Peer(Lost {
                ranks: world.ranks_per_process(),
                step,
                ..Lost::of(rank(odd), Cause::Disagrees(message))
            }))
        }
    }
}

/// What must be equal of the circumstances.
fn sheet(run: &Json, step: u64) -> Sheet {
    let mut config = run["config"].clone();
    if let Some(plugins) = config.get_mut("plugins").and_then(Json::as_array_mut) {
        // Components are chosen by name, one a role: their order says nothing.
        plugins.sort_by_key(ToString::to_string);
    }
    let mut sheet = leaves(&config);
    sheet.retain(|key, _| !LOCAL.contains(&key.as_str()));
    let mut add = |prefix: &str, part: Sheet| {
        sheet.extend(
            part.into_iter()
                .map(|(key, value)| (format!("{prefix}{key}"), value)),
        );
    };
    add("plugin ", plugin_leaves(&run["plugins"]));
    add("model file ", file_hashes(&run["model"]["files"]));
    add("adapter file ", file_hashes(&run["model"]["adapter_files"]));
    add("data file ", file_hashes(&run["data"]["files"]));
    add("eval file ", file_hashes(&run["data"]["eval_files"]));
    let rest = json!({
        "espalier": run["espalier"],
        "instruction set": run["instruction_set"],
        "plan": run["plan_sha256"],
        "tokenizer": run["data"]["tokenizer_sha256"],
        "rows of the first step": run["data"]["first_step_sha256"],
        "steps done": step,
    });
    add("", leaves(&rest));
    sheet
}

/// The first process whose sheet is not the one that most have, and the first that has that one.
fn odd_one_out(sheets: &[Sheet]) -> Option<(usize, usize)> {
    let alike = |sheet: &Sheet| sheets.iter().filter(|other| *other == sheet).count();
    let most = sheets.iter().map(alike).max()?;
    let common = sheets.iter().position(|sheet| alike(sheet) == most)?;
    let odd = sheets.iter().position(|sheet| *sheet != sheets[common])?;
    Some((odd, common))
}

/// `key: there, here` for every key in which two sheets differ.
fn differences(common: &Sheet, odd: &Sheet) -> Vec<String> {
    let value = |sheet: &Sheet, key: &str| sheet.get(key).map_or("unset".to_owned(), String::clone);
    let keys: BTreeSet<&String> = common.keys().chain(odd.keys()).collect();
    let keys = keys
        .into_iter()
        .filter(|key| common.get(*key) != odd.get(*key));
    keys.map(|key| {
        format!(
            "{key} is {} there, {} here",
            value(common, key),
            value(odd, key)
        )
    })
    .collect()
}

fn shown(differences: &[String]) -> String {
    let named = differences[..differences.len().min(NAMED)].join("; ");
    match differences.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named}; and {more} more"),
    }
}

#[cfg(test)]
mod tests;
