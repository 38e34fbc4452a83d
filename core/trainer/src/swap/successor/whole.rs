//! Ranks of a process, or one that moves weights -> executors beside them with all their memory,
//! joined in groups of their own.

use espalier_engine::executor::PreparedRun;
use espalier_engine::gather::gather;
use espalier_engine::team::Team;
use espalier_interface::MemoryKind;
use espalier_registry::select::Collectives;
use espalier_system::failure::UsageError;
use espalier_system::memory;
use serde_json::Value as Json;

use super::super::Staging;
use super::{Loaded, Making};
use crate::Error;
use crate::weights::join_ranks;

impl Making<'_> {
    /// The executors of `runs`, one a rank: joined and loaded as at the start of a run. Trained
    /// params and their state come from the old ones, however either are cut. The groups are
    /// others than those of the old ranks, which a failure here leaves as they are.
    ///
    /// # Errors
    /// Too little memory; failures of a collective, of loading and of the backend.
    pub(super) fn whole(&self, runs: Vec<PreparedRun>) -> Result<Loaded, Error> {
        if self.attempt.request.staging == Staging::Mapped {
            return Err(Error::Usage(UsageError {
                message: "a mapped file holds new weights of one rank without offload only"
                    .to_owned(),
                next_step: "leave --mapped out".to_owned(),
            }));
        }
        let plan = &runs[0].plan;
        let bytes_beside = plan.needed();
        let available = plan.available(memory::available_bytes());
        // A device of its own says what was free before the run.
        let available = available.saturating_sub(self.old.device_bytes());
        plan.check_needed(bytes_beside, available)?;
        let (config, services) = (self.resolved.config(), self.around.services);
        let world = self.old.world();
        let collectives = Collectives::select(config, &world, self.registry, services)?;
        let [step, _] = self.attempt.at;
        let stop = self.around.stop;
        let ranks = join_ranks(runs, &collectives, config, stop, (&Json::Null, step))?;
        let (executors, report) = self
            .loading()
            .load_ranks(ranks, &|param| !param.trainable)?;
        let team = Team::new(executors);
        adopt_trained(self.old, &team)?;
        Ok(Loaded {
            team,
            report,
            bytes_beside,
            kind: MemoryKind::DEVICE,
        })
    }
}

/// Copies values and state of all trained params from the ranks of `old` to those of `new`.
fn adopt_trained(old: &Team, new: &Team) -> Result<(), espalier_engine::Error> {
    for param in new.first().trainable() {
        for part in new.first().state_parts(param) {
            let mut done = 0;
            gather(old, param, part, &mut |bytes| {
                let mut ranks = new.executors().iter();
                ranks.try_for_each(|rank| rank.upload_state(param, part, done, bytes))?;
                done += bytes.len() as u64;
                Ok(())
            })?;
        }
    }
    Ok(())
}
