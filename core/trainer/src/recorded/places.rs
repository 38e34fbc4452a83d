//! The paths in a run's record -> the same files and folders, found from any folder.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// The key of `run.json` with the folder that the run's relative paths are relative to. Older runs
/// lack it.
pub(crate) const WORKING_DIRECTORY: &str = "working_directory";

/// Keys with a path or a list of paths.
const PATHS: [&str; 7] = [
    "/model/path",
    "/model/adapter",
    "/data/files",
    "/data/eval_files",
    "/data/calibration_files",
    "/data/cache_dir",
    "/run/plugin_dirs",
];
/// A key with a path, or with a plain name that is none.
const NAME_OR_PATH: &str = "/data/chat_template";

/// Where the relative paths of a run begin.
pub(super) struct Places {
    home: Option<PathBuf>,
}

impl Places {
    /// Those of the record `run`.
    pub fn of(run: &Value) -> Self {
        let home = run[WORKING_DIRECTORY].as_str().map(PathBuf::from);
        Places {
            home: home.filter(|home| home.is_absolute()),
        }
    }

    /// Replaces the paths in `config`.
    pub fn find_in(&self, config: &mut Value) {
        for key in PATHS {
            match config.pointer_mut(key) {
                Some(Value::Array(list)) => list.iter_mut().for_each(|one| self.find(one)),
                Some(one) => self.find(one),
                None => {}
            }
        }
        if let Some(template) = config.pointer_mut(NAME_OR_PATH)
            && template
                .as_str()
                .is_some_and(|name| name.contains(['/', '.']))
        {
            self.find(template);
        }
    }

    /// Replaces a relative path where there is something at its place; the id of a model in the
    /// cache and what has moved with the present folder stay.
    fn find(&self, path: &mut Value) {
        let (Some(home), Some(text)) = (&self.home, path.as_str()) else {
            return;
        };
        let absolute = home.join(Path::new(text));
        if absolute.exists() {
            *path = Value::from(absolute.display().to_string());
        }
    }
}
