//! Where plugin libraries are looked for, in the fixed order.

use std::env;
use std::path::{Path, PathBuf};

use crate::config::ResolvedConfig;

/// The variable with further folders, separated as in `PATH`.
const VARIABLE: &str = "HOST_PLUGIN_PATH";

/// A folder that is searched, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchPlace {
    /// What put it into the list.
    pub reason: &'static str,
    /// The folder; it need not exist.
    pub path: PathBuf,
}

/// The folders in the order in which they are searched: `--plugin-dir`, `HOST_PLUGIN_PATH`, the
/// config's directory, the user's data directory, the executable's `plugins/`.
pub fn search_order(resolved: &ResolvedConfig) -> Vec<SearchPlace> {
    let environment = env::var_os(VARIABLE).unwrap_or_default();
    let data_dir = data_dir();
    let executable = env::current_exe().ok();
    Places {
        flags: &resolved.config().run.plugin_dirs,
        environment: env::split_paths(&environment).collect(),
        config_dir: resolved.config_dir(),
        data_dir: data_dir.as_deref(),
        executable_dir: executable.as_deref().and_then(Path::parent),
    }
    .order()
}

/// Where this program keeps what belongs to the user and to no run: `espalier` in the user's data directory.
pub fn data_dir() -> Option<PathBuf> {
    let home = || Some(PathBuf::from(env::var_os("HOME")?).join(".local/share"));
    let data_home = env::var_os("XDG_DATA_HOME").map(PathBuf::from);
    let data_home = data_home.filter(|path| path.is_absolute()).or_else(home)?;
    Some(data_home.join("espalier"))
}

struct Places<'a> {
    flags: &'a [PathBuf],
    environment: Vec<PathBuf>,
    config_dir: Option<&'a Path>,
    data_dir: Option<&'a Path>,
    executable_dir: Option<&'a Path>,
}

impl Places<'_> {
    fn order(self) -> Vec<SearchPlace> {
        let mut places: Vec<SearchPlace> = Vec::new();
        let mut add = |reason: &'static str, path: PathBuf| {
            let is_new = places.iter().all(|place| place.path != path);
            if is_new && !path.as_os_str().is_empty() {
                places.push(SearchPlace { reason, path });
            }
        };
        for path in self.flags {
            add("--plugin-dir", path.clone());
        }
        for path in self.environment {
            add(VARIABLE, path);
        }
        if let Some(path) = self.config_dir {
            add("the config's directory", path.to_owned());
        }
        if let Some(path) = self.data_dir {
            add("the user's data directory", path.join("plugins"));
        }
        if let Some(path) = self.executable_dir {
            add("beside the executable", path.join("plugins"));
        }
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_fixed_and_a_folder_stands_once() {
        let places = Places {
            flags: &["a".into()],
            environment: vec!["b".into(), "".into(), "a".into()],
            config_dir: Some(Path::new("c")),
            data_dir: Some(Path::new("/user/share/espalier")),
            executable_dir: Some(Path::new("/opt/bin")),
        };
        let order: Vec<PathBuf> = places.order().into_iter().map(|place| place.path).collect();
        let expected = [
            "a",
            "b",
            "c",
            "/user/share/espalier/plugins",
            "/opt/bin/plugins",
        ];
        assert_eq!(order, expected.map(PathBuf::from));
    }
}
