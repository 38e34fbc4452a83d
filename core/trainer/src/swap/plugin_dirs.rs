//! The plugin folders of swaps and of a run's config -> the run's plugin folders after the swaps.

use std::path::PathBuf;

use espalier_config::Config;
use serde_json::Value as Json;

/// The value of `run.plugin_dirs`: the folders of the swaps, in the order given, then those of
/// `config`.
pub(super) fn after<'a>(
    of_swaps: impl IntoIterator<Item = &'a PathBuf>,
    config: &'a Config,
) -> Json {
    let dirs = of_swaps.into_iter().chain(&config.run.plugin_dirs);
    let dirs: Vec<String> = dirs.map(|dir| dir.display().to_string()).collect();
    Json::from(dirs)
}
