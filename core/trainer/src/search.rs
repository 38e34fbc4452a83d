//! Where plugin libraries are looked for, in the fixed order.

use std::env;
use std::path::{Path, PathBuf};

use crate::config::{Origin, ResolvedConfig};

/// The variable with further folders, separated as in `PATH`.
const VARIABLE: &str = "HOST_PLUGIN_PATH";

/// The key of the folders that are searched first.
const KEY: &str = "run.plugin_dirs";

/// A folder that is searched, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchPlace {
    /// What put it into the list: a flag, a variable, a line of a config file.
    pub reason: String,
    /// The folder; it need not exist.
    pub path: PathBuf,
    /// Whether a config file names it, which may be another's work.
    pub by_config_file: bool,
}

/// The folders in the order in which they are searched: `--plugin-dir` or `run.plugin_dirs`, `HOST_PLUGIN_PATH`, the user's
/// data directory, the executable's `plugins/`. The folder that a config file lies in is none of them: a config that was
/// downloaded brings no code.
pub fn search_order(resolved: &ResolvedConfig) -> Vec<SearchPlace> {
    let environment = env::var_os(VARIABLE).unwrap_or_default();
    let data_dir = data_dir();
    let executable = env::current_exe().ok();
    Places {
        named: &resolved.config().run.plugin_dirs,
        by: resolved.origin(KEY),
        environment: env::split_paths(&environment).collect(),
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
    /// `run.plugin_dirs`, and what gave it.
    named: &'a [PathBuf],
    by: Origin,
    environment: Vec<PathBuf>,
    data_dir: Option<&'a Path>,
    executable_dir: Option<&'a Path>,
}

impl Places<'_> {
    fn order(self) -> Vec<SearchPlace> {
        let mut places: Vec<SearchPlace> = Vec::new();
        let mut add = |reason: &str, path: PathBuf, by_config_file: bool| {
            let is_new = places.iter().all(|place| place.path != path);
            if is_new && !path.as_os_str().is_empty() {
                places.push(SearchPlace {
                    reason: reason.to_owned(),
                    path,
                    by_config_file,
                });
            }
        };
        let (reason, by_file) = match &self.by {
            Origin::File(..) => (format!("{KEY} of {}", self.by), true),
            Origin::Default => (KEY.to_owned(), false),
            by => (by.to_string(), false),
        };
        for path in self.named {
            add(&reason, path.clone(), by_file);
        }
        for path in self.environment {
            add(VARIABLE, path, false);
        }
        if let Some(path) = self.data_dir {
            add("the user's data directory", path.join("plugins"), false);
        }
        if let Some(path) = self.executable_dir {
            add("beside the executable", path.join("plugins"), false);
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
            named: &["a".into()],
            by: Origin::Flag("--plugin-dir".to_owned()),
            environment: vec!["b".into(), "".into(), "a".into()],
            data_dir: Some(Path::new("/user/share/espalier")),
            executable_dir: Some(Path::new("/opt/bin")),
        };
        let order: Vec<PathBuf> = places.order().into_iter().map(|place| place.path).collect();
        let expected = ["a", "b", "/user/share/espalier/plugins", "/opt/bin/plugins"];
        assert_eq!(order, expected.map(PathBuf::from));
    }

    #[test]
    fn a_folder_that_a_config_file_names_is_told_by_its_line() {
        let places = Places {
            named: &["a".into()],
            by: Origin::File("x/run.toml".into(), 3),
            environment: Vec::new(),
            data_dir: None,
            executable_dir: None,
        };
        let [place] = &places.order()[..] else {
            panic!("one folder was named")
        };
        let expected = ("run.plugin_dirs of x/run.toml:3", true);
        assert_eq!((place.reason.as_str(), place.by_config_file), expected);
    }
}
