//! The folders in which plugin libraries are looked for, in order.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fmt, fs};

use espalier_config::{Origin, ResolvedConfig};
use espalier_interface::abi::call_site::{Limit, Limits};

use crate::data_dir::data_dir;
use crate::library::WorldWritable;
use crate::probe::Prober;

/// The file of probe records in the user's data directory.
const RECORD: &str = "probed.json";

/// The variable with further folders, separated as in `PATH`.
const VARIABLE: &str = "HOST_PLUGIN_PATH";

/// The key of the folders that are searched first.
const KEY: &str = "run.plugin_dirs";

/// A folder that is searched, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchDir {
    /// Why it is searched, such as `--plugin-dir`.
    pub reason: String,
    /// The folder; it need not exist.
    pub path: PathBuf,
    /// Whether a config file names it; such a file may come from someone else.
    pub by_config_file: bool,
}

/// A library file in the folder where it was found.
pub(crate) struct FoundFile<'a> {
    /// Its path there, links not followed.
    pub path: PathBuf,
    /// The folder; none where the file itself was given.
    pub dir: Option<&'a SearchDir>,
}

/// Where plugins come from. For each name the first plugin that has it is used.
#[derive(Clone, Debug)]
pub struct SearchPath {
    /// Folders in the order in which they are searched.
    pub dirs: Vec<SearchDir>,
    /// Whether libraries that any user may write are used.
    pub world_writable: WorldWritable,
    /// True where the plugins linked into this program follow the folders.
    pub linked: bool,
    /// Probes each library before it is opened in this process.
    pub prober: Option<Prober>,
    /// SHA-256 of each library that may be loaded, by its plugin's name; empty: any may be.
    pub pins: BTreeMap<String, String>,
    /// How long calls of plugins may show no sign of progress.
    pub limits: Limits,
    /// The only library, where one was given by its path.
    file: Option<PathBuf>,
}

impl SearchPath {
    /// The folders `(reason, path)` in their order, then the linked plugins. A repeated folder
    /// keeps its first place.
    pub fn new<R: Into<String>>(dirs: impl IntoIterator<Item = (R, PathBuf)>) -> Self {
        let dir = |(reason, path): (R, PathBuf)| SearchDir {
            reason: reason.into(),
            path,
            by_config_file: false,
        };
        SearchPath::through(dirs.into_iter().map(dir))
    }

    fn through(dirs: impl IntoIterator<Item = SearchDir>) -> Self {
        let mut kept: Vec<SearchDir> = Vec::new();
        for dir in dirs {
            let is_new = kept.iter().all(|other| !is_same(&other.path, &dir.path));
            if is_new && !dir.path.as_os_str().is_empty() {
                kept.push(dir);
            }
        }
        SearchPath {
            dirs: kept,
            world_writable: WorldWritable::Refused,
            linked: true,
            prober: None,
            pins: BTreeMap::new(),
            limits: Limits::default(),
            file: None,
        }
    }

    /// The path of a run: `--plugin-dir` or `run.plugin_dirs`, `HOST_PLUGIN_PATH`, the user's data
    /// directory, the executable's `plugins/`, then the linked plugins. Libraries are probed by the
    /// program that `resolved` names, and the results are recorded in the user's data directory.
    pub fn of(resolved: &ResolvedConfig) -> Self {
        SearchPath::through(search_order(resolved)).ruled_by(resolved)
    }

    /// This path's rules for the library at `file` alone.
    pub fn only(mut self, file: &Path) -> Self {
        self.dirs.clear();
        self.file = Some(file.to_owned());
        self.without_linked()
    }

    fn ruled_by(mut self, resolved: &ResolvedConfig) -> Self {
        let run = &resolved.config().run;
        if run.allow_world_writable_plugins {
            self.world_writable = WorldWritable::Allowed;
        }
        self.pins = run.plugin_hashes.clone();
        let limit = Duration::from_secs(run.probe_timeout_secs);
        self.limits = Limits {
            create: Limit::After(limit),
            call: match run.plugin_timeout_secs {
                0 => Limit::None,
                secs => Limit::After(Duration::from_secs(secs)),
            },
        };
        let prober = resolved
            .prober()
            .map(|program| Prober::new(program.to_owned(), limit));
        self.prober = prober.map(|prober| match data_dir() {
            Some(dir) => prober.remembering(dir.join(RECORD)),
            None => prober,
        });
        self
    }

    /// This path without the plugins linked into this program.
    pub fn without_linked(mut self) -> Self {
        self.linked = false;
        self
    }

    /// This path with the rule `world_writable`.
    pub fn with(mut self, world_writable: WorldWritable) -> Self {
        self.world_writable = world_writable;
        self
    }

    /// A line for each place.
    pub fn shown(&self) -> Vec<String> {
        let dirs = self.dirs.iter().map(|dir| {
            let missing = if dir.path.is_dir() { "" } else { ", not there" };
            format!("{} ({}{missing})", dir.path.display(), dir.reason)
        });
        let linked = self.linked.then(|| "linked into this program".to_owned());
        let file = self.file.iter().map(|file| file.display().to_string());
        file.chain(dirs).chain(linked).collect()
    }

    /// The given file, or the files `*.so` of all folders, sorted by name in each folder.
    pub(crate) fn libraries(&self) -> Vec<FoundFile<'_>> {
        let named = self.file.iter().cloned();
        let mut libraries: Vec<FoundFile<'_>> =
            named.map(|path| FoundFile { path, dir: None }).collect();
        for dir in &self.dirs {
            let entries = fs::read_dir(&dir.path).into_iter().flatten().flatten();
            let mut files: Vec<PathBuf> = entries
                .map(|entry| entry.path())
                .filter(|path| path.extension().is_some_and(|extension| extension == "so"))
                .filter(|path| path.is_file())
                .collect();
            files.sort();
            let dir = Some(dir);
            libraries.extend(files.into_iter().map(|path| FoundFile { path, dir }));
        }
        libraries
    }
}

impl fmt::Display for SearchPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.shown() {
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

fn is_same(a: &Path, b: &Path) -> bool {
    a == b || matches!((fs::canonicalize(a), fs::canonicalize(b)), (Ok(a), Ok(b)) if a == b)
}

/// The folders in the order in which they are searched: `--plugin-dir` or `run.plugin_dirs`,
/// `HOST_PLUGIN_PATH`, the user's data directory, the executable's `plugins/`. A config file's own
/// folder is not searched, so a downloaded config brings no code.
fn search_order(resolved: &ResolvedConfig) -> Vec<SearchDir> {
    let environment = env::var_os(VARIABLE).unwrap_or_default();
    let data_dir = data_dir();
    let executable = env::current_exe().ok();
    Folders {
        named: &resolved.config().run.plugin_dirs,
        by: resolved.origin(KEY),
        environment: env::split_paths(&environment).collect(),
        data_dir: data_dir.as_deref(),
        executable_dir: executable.as_deref().and_then(Path::parent),
    }
    .order()
}

struct Folders<'a> {
    /// `run.plugin_dirs`.
    named: &'a [PathBuf],
    by: Origin,
    environment: Vec<PathBuf>,
    data_dir: Option<&'a Path>,
    executable_dir: Option<&'a Path>,
}

impl Folders<'_> {
    fn order(self) -> Vec<SearchDir> {
        let mut folders: Vec<SearchDir> = Vec::new();
        let mut add = |dir: SearchDir| {
            let is_new = folders.iter().all(|known| known.path != dir.path);
            if is_new && !dir.path.as_os_str().is_empty() {
                folders.push(dir);
            }
        };
        let by_user = |reason: &str, path: PathBuf| SearchDir {
            reason: reason.to_owned(),
            path,
            by_config_file: false,
        };
        let (reason, by_config_file) = match &self.by {
            Origin::File(..) | Origin::Record(_) => (format!("{KEY} of {}", self.by), true),
            Origin::Default => (KEY.to_owned(), false),
            by => (by.to_string(), false),
        };
        for path in self.named {
            add(SearchDir {
                by_config_file,
                ..by_user(&reason, path.clone())
            });
        }
        for path in self.environment {
            add(by_user(VARIABLE, path));
        }
        if let Some(path) = self.data_dir {
            add(by_user("the user's data directory", path.join("plugins")));
        }
        if let Some(path) = self.executable_dir {
            add(by_user("beside the executable", path.join("plugins")));
        }
        folders
    }
}

#[cfg(test)]
mod tests;
