//! Libraries that were found -> those that may be opened in this process, probed in another one
//! first.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use espalier_config::check_options;
use espalier_interface::Role;
use serde_json::{Map, Value as Json};

use super::{Plugin, PluginSource, Registry, RegistryError};
use crate::library::{LibraryError, LibraryFault, LibraryFile};
use crate::probe::{Prober, Recalled, Trial, Tried};

/// The outcome of probing a library.
type ProbeResult = Result<Vec<Tried>, LibraryFault>;

/// Applies the records of the libraries of `plugins`.
pub(super) fn recall(prober: Option<&Prober>, plugins: &mut [Plugin]) {
    let Some(prober) = prober else { return };
    let files: Vec<&LibraryFile> = plugins.iter().filter_map(sound).collect();
    let mut recalled = prober.recall(&files).into_iter();
    for plugin in plugins.iter_mut().filter(|plugin| sound(plugin).is_some()) {
        match recalled.next() {
            Some(Recalled::Passed(tried)) => plugin.tried = Some(tried),
            Some(Recalled::Quarantined(fault)) => plugin.settle(Err(fault)),
            Some(Recalled::Nothing) | None => {}
        }
    }
}

/// A plugin's library, where it has no fault so far.
fn sound(plugin: &Plugin) -> Option<&LibraryFile> {
    match &plugin.source {
        PluginSource::Library(file) if file.fault.is_none() => Some(file),
        _ => None,
    }
}

impl Plugin {
    pub(super) fn has(&self, name: &str) -> bool {
        let components = self
            .descriptor
            .iter()
            .flat_map(|descriptor| &descriptor.components);
        components
            .into_iter()
            .any(|component| component.name == name)
    }

    fn settle(&mut self, result: ProbeResult) {
        match (&mut self.source, result) {
            (PluginSource::Library(file), Err(fault)) => file.fault = Some(fault),
            (_, Ok(tried)) => self.tried = Some(tried),
            (PluginSource::Linked(_), Err(_)) => {}
        }
    }
}

impl Registry {
    /// Probes every library that is not recorded, several at once. Calls `progress` with the number
    /// done and the number in all.
    pub fn probe_all(&mut self, progress: &(dyn Fn(usize, usize) + Sync)) {
        self.probe_where(|_| true, progress);
    }

    /// As [`Registry::probe_all`], for the library of the first component called `name`.
    pub fn probe_named(&mut self, name: &str) {
        let first = self.plugins.iter().position(|plugin| plugin.has(name));
        self.probe_where(|plugin| Some(plugin) == first, &|_, _| ());
    }

    fn probe_where(
        &mut self,
        wanted: impl Fn(usize) -> bool,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) {
        let Some(prober) = &self.search.prober else {
            return;
        };
        let untried = |(index, plugin)| match (sound(plugin), &plugin.tried) {
            (Some(file), None) if wanted(index) => Some((index, file)),
            _ => None,
        };
        let files: Vec<(usize, &LibraryFile)> = self
            .plugins
            .iter()
            .enumerate()
            .filter_map(untried)
            .collect();
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let results: Mutex<BTreeMap<usize, ProbeResult>> = Mutex::default();
        let cores = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            for _ in 0..cores.min(files.len()) {
                scope.spawn(|| {
                    while let Some((index, file)) = files.get(next.fetch_add(1, Ordering::Relaxed))
                    {
                        let result = prober.probe(file);
                        let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                        results.insert(*index, result);
                        progress(done.fetch_add(1, Ordering::Relaxed) + 1, files.len());
                    }
                });
            }
        });
        let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        for (index, result) in results {
            self.plugins[index].settle(result);
        }
    }

    /// Makes the component `name` with `options` in a separate process and calls its methods there,
    /// as a run would. Linked plugins are not probed; without a prober, none is.
    ///
    /// # Errors
    /// As [`Registry::create_family`]; `Library` where that process crashed, exited or hung.
    pub fn probe(
        &self,
        role: Role,
        name: &str,
        options: &Map<String, Json>,
    ) -> Result<(), RegistryError> {
        let found = self.find(Some(role), name)?;
        check_options(found.component, options)?;
        let (Some(prober), PluginSource::Library(file)) =
            (&self.search.prober, &self.plugins[found.plugin].source)
        else {
            return Ok(());
        };
        let trial = Trial {
            role: role.0.to_owned(),
            component: name.to_owned(),
            options: options.clone(),
        };
        match prober.exercise(file, &trial) {
            Ok(None) => Ok(()),
            Ok(Some(failure)) => Err(self
                .identity(&found)
                .failed(&failure.callback, failure.error())),
            Err(fault) => Err(RegistryError::Library(LibraryError {
                path: file.path.clone(),
                fault,
            })),
        }
    }

    /// Probes a library that is about to be opened, if that was not done before.
    pub(super) fn try_elsewhere(
        &self,
        plugin: usize,
        file: &LibraryFile,
    ) -> Result<(), LibraryError> {
        let tried_before = self.plugins[plugin].tried.is_some();
        match &self.search.prober {
            Some(prober) if file.fault.is_none() && !tried_before => {
                let path = file.path.clone();
                prober
                    .probe(file)
                    .map(drop)
                    .map_err(|fault| LibraryError { path, fault })
            }
            _ => Ok(()),
        }
    }
}
