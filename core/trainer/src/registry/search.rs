//! The folders in which plugin libraries are looked for, in order.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use espalier_interface::abi::call_site::{Limit, Limits};

use crate::config::ResolvedConfig;
use crate::library::WorldWritable;
use crate::probe::Prober;
use crate::search::{data_dir, search_order};

/// What is known of libraries that were probed, in the user's data directory.
const RECORD: &str = "probed.json";

/// A folder that is searched, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchDir {
    /// What put it into the list, such as `--plugin-dir`.
    pub reason: String,
    /// The folder; it need not exist.
    pub path: PathBuf,
    /// Whether a config file names it, which may be another's work.
    pub by_config_file: bool,
}

/// A library file, as the folder that it was found in has it.
pub(super) struct FoundFile<'a> {
    /// Its path there, links not followed.
    pub path: PathBuf,
    /// The folder; none where the file itself was named.
    pub dir: Option<&'a SearchDir>,
}

/// Where plugins come from. The first that has a component of the asked name serves.
#[derive(Clone, Debug)]
pub struct SearchPath {
    /// Folders in the order in which they are searched.
    pub dirs: Vec<SearchDir>,
    /// Whether libraries that any user may write are used.
    pub world_writable: WorldWritable,
    /// True where the plugins linked into this program follow the folders.
    pub linked: bool,
    /// Tries each library before it is opened in this process.
    pub prober: Option<Prober>,
    /// How long calls of plugins may show no sign of progress.
    pub limits: Limits,
    /// The one library that is looked at, where it was named by its path.
    file: Option<PathBuf>,
}

impl SearchPath {
    /// The folders `(reason, path)` in their order, then the linked plugins. A folder that stands twice keeps its first
    /// place.
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
            limits: Limits::default(),
            file: None,
        }
    }

    /// The path of a run: [`search_order`], then the linked plugins; libraries are tried by the program that `resolved`
    /// names, and what comes of it is kept in the user's data directory.
    pub fn of(resolved: &ResolvedConfig) -> Self {
        let places = search_order(resolved).into_iter();
        let dirs = places.map(|place| SearchDir {
            reason: place.reason,
            path: place.path,
            by_config_file: place.by_config_file,
        });
        SearchPath::through(dirs).ruled_by(resolved)
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

    /// The file that was named, or the files `*.so` of all folders, those of a folder by name.
    pub(super) fn libraries(&self) -> Vec<FoundFile<'_>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_kept_and_repetitions_are_not() {
        let dirs = [
            ("--plugin-dir", "/b"),
            ("HOST_PLUGIN_PATH", "/a"),
            ("HOST_PLUGIN_PATH", "/b"),
        ];
        let path = SearchPath::new(dirs.map(|(reason, dir)| (reason, PathBuf::from(dir))));
        let expected = [
            "/b (--plugin-dir, not there)",
            "/a (HOST_PLUGIN_PATH, not there)",
            "linked into this program",
        ];
        assert_eq!(path.shown(), expected);
        assert_eq!(path.without_linked().shown().len(), 2);
    }
}
