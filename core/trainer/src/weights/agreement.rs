//! The settings of every process, exchanged once at the start -> agreement, or the process that
//! differs.

use std::collections::{BTreeMap, BTreeSet};

use espalier_config::Config;
use espalier_engine::ranks::{Lost, LostBy};
use espalier_system::world::World;
use serde_json::{Value as Json, json};

use crate::Error;
use crate::checkpoint::{file_hashes, leaves, plugin_leaves};

/// Most differences in a message.
const NAMED: usize = 4;

/// The settings of a process, by key.
type Sheet = BTreeMap<String, String>;

/// Checks that all processes of `world` run the same: `circumstances` is the content of `run.json`,
/// and `step` the start of the run. `exchange` sends this process's message to all, and returns the
/// message of each process.
///
/// # Errors
/// [`Error::Peer`] for the first process that differs from the majority, with its differences;
/// errors of `exchange`.
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
    match first_difference(&sheets) {
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
                ..Lost::of(rank(odd), LostBy::Disagrees(message))
            }))
        }
    }
}

/// The part of the circumstances that must be equal.
fn sheet(run: &Json, step: u64) -> Sheet {
    let mut config = run["config"].clone();
    if let Some(plugins) = config.get_mut("plugins").and_then(Json::as_array_mut) {
        // Components are chosen by name, one per role: their order has no meaning.
        plugins.sort_by_key(ToString::to_string);
    }
    let mut sheet = leaves(&config);
    sheet.retain(|key, _| !Config::is_local(key));
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
        "rows of calibration": run["calibration"]["sha256"],
        "rows of the first step": run["data"]["first_step_sha256"],
        "steps done": step,
    });
    add("", leaves(&rest));
    sheet
}

/// The first process whose sheet differs from the most common one, and the first process with that
/// one.
fn first_difference(sheets: &[Sheet]) -> Option<(usize, usize)> {
    let alike = |sheet: &Sheet| sheets.iter().filter(|other| *other == sheet).count();
    let most = sheets.iter().map(alike).max()?;
    let common = sheets.iter().position(|sheet| alike(sheet) == most)?;
    let odd = sheets.iter().position(|sheet| *sheet != sheets[common])?;
    Some((odd, common))
}

/// `key: common, odd` for every key in which two sheets differ.
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
