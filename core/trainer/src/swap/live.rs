//! The part of a running job that a swap can change: components, plan and the ranks' executors.

use std::time::Instant;

use espalier_config::{ResolvedConfig, Section};
use espalier_engine::observer::Event;
use espalier_engine::team::Team;
use espalier_interface::MemoryKind;
use espalier_registry::select::{Components, Replacement};
use espalier_registry::{Registry, SearchPath};

use super::record::choices;
use super::successor::{Attempt, Facts, Making, RunContext, Successor};
use super::{Stage, Swap, SwapRecord, SwapRequest, change, room};
use crate::Error;
use crate::checkpoint::AdapterParts;

/// A job's components, and their plan on the devices.
pub(crate) struct Live<'a> {
    // Dropped before the backend of its devices.
    pub team: Team,
    pub components: Components,
    /// The config with the swaps so far.
    pub resolved: ResolvedConfig,
    pub facts: Facts,
    pub around: RunContext<'a>,
}

impl Live<'_> {
    /// The parts for writing the adapter; `None` where the model itself is trained.
    pub fn adapter<'b>(&'b self, base: &'b str) -> Option<AdapterParts<'b>> {
        let adapter = self.components.adapter.as_ref()?;
        Some((adapter, self.facts.sites.as_slice(), base))
    }

    /// The hash of the present plan.
    pub fn plan_sha256(&self) -> &str {
        &self.facts.plan_sha256
    }

    /// The record of a completed swap in `run.json`.
    pub fn on_record(&self, request: &SwapRequest, record: &SwapRecord) -> Swap {
        let identities = self.components.identities().into_iter();
        Swap {
            record: record.clone(),
            request: request.clone(),
            config: choices(&self.resolved),
            plugins: identities.cloned().collect(),
            plan_sha256: self.facts.plan_sha256.clone(),
        }
    }

    /// Replaces the component of a role, once the new one has passed its test. `record` is filled
    /// in up to the point of failure.
    ///
    /// # Errors
    /// The reason for a failure; the old state is then unchanged.
    pub fn swap(&mut self, attempt: &Attempt<'_>, record: &mut SwapRecord) -> Result<(), Error> {
        let begin = Instant::now();
        let taken = self.take(attempt, record);
        record.secs = begin.elapsed().as_secs_f64();
        taken
    }

    fn take(&mut self, attempt: &Attempt<'_>, record: &mut SwapRecord) -> Result<(), Error> {
        (attempt.progress)(Stage::Planning);
        let request = attempt.request;
        let role = request.role()?;
        record.from = self.components.playing(role).cloned();
        let resolved = change::of(&self.resolved, &self.components, request)?;
        let registry = Registry::discover(&SearchPath::of(&resolved));
        if let Some(name) = request.component() {
            // A component that crashes in a separate probe process is never loaded into this one.
            let options = resolved.config().section(role.0, name);
            registry.probe(role, name, options.unwrap_or(&Section::new()))?;
        }
        let mut replacement = Replacement::make(
            (role, request.component()),
            resolved.config(),
            &self.around.model,
            &registry,
            self.around.services,
        )?;
        self.components.exchange(&mut replacement);
        record.to = self.components.playing(role).cloned();
        registry.places(&record.to).tell();
        let making = Making {
            old: &self.team,
            facts: &self.facts,
            components: &self.components,
            around: &self.around,
            resolved: &resolved,
            registry: &registry,
            role,
            attempt,
        };
        let made = making.successor();
        let made = match made.map_err(|error| error.naming(&self.components.by_role())) {
            Ok(made) => made,
            Err(error) => {
                self.components.exchange(&mut replacement);
                return Err(error);
            }
        };
        (attempt.progress)(Stage::TakingOver);
        let Successor {
            team,
            facts,
            report,
            bytes_beside,
            kind,
            losses,
        } = made;
        record.encoded = report.encoded;
        record.decode_checks = report.decode_checks;
        record.bytes_beside = bytes_beside;
        record.staged_in = Some(room::shown(kind).to_owned());
        [record.loss_before, record.loss_after] = losses.map(Some);
        self.facts = facts;
        self.resolved = resolved;
        // Drops the old state and its unshared memory.
        drop(std::mem::replace(&mut self.team, team));
        if kind == MemoryKind::MAPPED
            && let Err(error) = self.team.first_mut().leave_mapped_files()
        {
            let note = format!("weights stay in a mapped file: {error}");
            self.around.observer.observe(&Event::Note(&note));
        }
        Ok(())
    }
}
