//! `host cache`: what the user's cache of packed weights holds, and its removal.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Result;
use espalier_engine::load::AboutWeight;
use espalier_system::failure::UsageError;
use espalier_system::files::{CacheEntry, cache_directory, cache_entries, clear_cache};
use espalier_trainer::bytes::Bytes;
use espalier_trainer::error::Error;
use serde_json::{Value as Json, json};

use crate::arguments::{CacheArguments, CacheCommand};

const SECS_OF_A_DAY: u64 = 24 * 3600;

/// The folder of packed weights; none where the environment names none.
pub fn weight_cache() -> Option<PathBuf> {
    Some(cache_directory()?.join("weights"))
}

/// Lists the cached weights by model and quantizer, or removes them.
pub fn run(arguments: &CacheArguments, out: &mut dyn Write) -> Result<()> {
    let directory = weight_cache().ok_or_else(|| {
        Error::Usage(UsageError {
            message: "there is no cache: HOST_CACHE_DIR is empty, or HOME is not set".to_owned(),
            next_step: "name a folder in HOST_CACHE_DIR, or leave it out".to_owned(),
        })
    })?;
    let Some(CacheCommand::Clear(clear)) = &arguments.command else {
        return list(&directory, arguments.json, out);
    };
    let age = clear.older_than.unwrap_or(0).saturating_mul(SECS_OF_A_DAY);
    let (weights, bytes) = clear_cache(&directory, &|entry| {
        let quantizer = &about(entry).error.quantizer;
        time_unused(entry).as_secs() >= age
            && clear
                .quantizer
                .as_ref()
                .is_none_or(|name| name == quantizer)
    })
    .map_err(Error::from)?;
    let (bytes, place) = (Bytes(bytes), directory.display());
    if arguments.json {
        let removed = json!({"directory": directory, "removed": weights, "bytes": bytes.0});
        writeln!(out, "{removed:#}")?;
    } else {
        writeln!(
            out,
            "removed {weights} packed weights, {bytes}, from {place}"
        )?;
    }
    Ok(())
}

/// The weights of one model as one quantizer packed them.
struct Group {
    weights: u64,
    bytes: u64,
    used: Duration,
}

fn list(directory: &Path, is_json: bool, out: &mut dyn Write) -> Result<()> {
    let entries = cache_entries(directory).map_err(Error::from)?;
    let mut groups: BTreeMap<(String, String, String), Group> = BTreeMap::new();
    for entry in &entries {
        let AboutWeight {
            model,
            error,
            options,
            ..
        } = about(entry);
        let quantizer = error.quantizer;
        let options = Json::Object(options).to_string();
        let group = groups.entry((model, quantizer, options)).or_insert(Group {
            weights: 0,
            bytes: 0,
            used: Duration::MAX,
        });
        group.weights += 1;
        group.bytes += entry.bytes;
        group.used = group.used.min(time_unused(entry));
    }
    let bytes = entries.iter().map(|entry| entry.bytes).sum();
    if is_json {
        let group = |((model, quantizer, options), group): (&(String, String, String), &Group)| {
            json!({
                "model": model,
                "quantizer": quantizer,
                "options": serde_json::from_str::<Json>(options).unwrap_or_default(),
                "weights": group.weights,
                "bytes": group.bytes,
                "days_unused": group.used.as_secs() / SECS_OF_A_DAY,
            })
        };
        let bases: Vec<Json> = groups.iter().map(group).collect();
        let all = json!({"directory": directory, "bytes": bytes, "bases": bases});
        writeln!(out, "{all:#}")?;
        return Ok(());
    }
    for ((model, quantizer, options), group) in &groups {
        let (name, options) = match quantizer.as_str() {
            "" => ("damaged", ""),
            name => (name, options.as_str()),
        };
        let (weights, size) = (group.weights, Bytes(group.bytes));
        let days = group.used.as_secs() / SECS_OF_A_DAY;
        writeln!(
            out,
            "{name} {options} of {model}: {weights} weights, {size}, used {days} days ago"
        )?;
    }
    let (weights, bytes, place) = (entries.len(), Bytes(bytes), directory.display());
    writeln!(out, "{weights} packed weights, {bytes}, in {place}")?;
    Ok(())
}

/// What is said of a weight; nothing of a damaged file.
fn about(entry: &CacheEntry) -> AboutWeight {
    serde_json::from_value(entry.about.clone()).unwrap_or_default()
}

/// The time since a run wrote or read it.
fn time_unused(entry: &CacheEntry) -> Duration {
    SystemTime::now()
        .duration_since(entry.used)
        .unwrap_or_default()
}
