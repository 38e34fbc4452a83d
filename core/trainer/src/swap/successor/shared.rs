//! One rank with all weights on its device -> an executor beside it that shares what stays.

use std::sync::Arc;

use espalier_compile::params::Param;
use espalier_engine::executor::{Beside, Executor, PreparedRun, Storage};
use espalier_engine::ranks::Peers;
use espalier_engine::team::Team;
use espalier_interface::{ErrorCode, MemoryKind, Role, WeightLayout};
use espalier_plan::plan::RunPlan;
use espalier_registry::PluginFailure;
use espalier_system::memory::{self, OutOfMemory};

use super::super::Staging;
use super::super::room::Needs;
use super::{Attempt, Loaded, Making};
use crate::Error;
use crate::bytes::Bytes;

impl Making<'_> {
    /// The executor of `run`. Trained params, their state, work memory and the frozen units that
    /// stay are those of the old one.
    ///
    /// # Errors
    /// Too little memory, failures of loading and of the backend.
    pub(super) fn shared(&self, run: PreparedRun) -> Result<Loaded, Error> {
        let (old, plan) = (self.old.first(), &run.plan);
        let stays: Vec<bool> = old
            .params()
            .iter()
            .zip(&plan.params)
            .map(|(old, new)| {
                let dense = matches!(new.layout, WeightLayout::Dense(_));
                // What a frozen param of an adapter holds is told by its name and beginning.
                let holds = |param: &Param| (param.name.clone(), param.init);
                let alike = !new.is_of_no_unit() || holds(old) == holds(new);
                old.layout == new.layout && alike && (dense || self.role != Role::QUANTIZER)
            })
            .collect();
        let keeps = |unit: usize| {
            let params = plan.params.iter().zip(&stays);
            let mut frozen = params.filter(|(param, _)| !param.trainable && param.unit == unit);
            frozen.all(|(_, stays)| *stays)
        };
        let needs = self.needs(&run, &stays, &keeps);
        let kind = needs.place(
            self.attempt.request.staging,
            &memory_name(plan),
            plan.available(memory::available_bytes()),
        )?;
        let beside = Beside {
            keeps: &keeps,
            kind,
        };
        let storage = self.storage_beside(&run, &beside, (&needs, self.attempt))?;
        let report = self.loading().fill(&run, &storage, |index, param| {
            !param.trainable && !stays[index]
        })?;
        let new = Executor::new(run, storage, Arc::new(Peers::alone()))?;
        for (index, param) in new.params().iter().enumerate() {
            if !param.trainable && stays[index] {
                new.adopt_frozen(old, index)?;
            }
        }
        new.adopt_state(old)?;
        Ok(Loaded {
            team: Team::new(vec![new]),
            report,
            bytes_beside: needs.frozen + needs.others,
            kind,
        })
    }

    fn needs(&self, run: &PreparedRun, stays: &[bool], keeps: &dyn Fn(usize) -> bool) -> Needs {
        let plan = &run.plan;
        let (layout, old) = (plan.storage_layout(), self.old.first().storage());
        let [frozen, others] = old.bytes_beside(&run.device, &layout, keeps);
        let mut indices = 0..plan.params.len();
        let loads = indices.any(|index| !plan.params[index].trainable && !stays[index]);
        let same_memory =
            self.old.first().device().1.shares_host_memory == plan.device_info.shares_host_memory;
        let going = self.old.first().params().iter();
        let going = going.filter(|param| !param.trainable && !keeps(param.unit));
        Needs {
            frozen,
            freed: if same_memory {
                going.map(Param::bytes).sum()
            } else {
                0
            },
            others,
            loading: if loads { plan.memory.loading } else { 0 },
        }
    }

    fn storage_beside(
        &self,
        run: &PreparedRun,
        beside: &Beside<'_>,
        (needs, attempt): (&Needs, &Attempt<'_>),
    ) -> Result<Storage, Error> {
        let old = self.old.first().storage();
        let plan = &run.plan;
        let made = old.beside(&run.device, &plan.storage_layout(), beside);
        made.map_err(|error| {
            let no_files = error.code == ErrorCode::UNSUPPORTED
                && beside.kind == MemoryKind::MAPPED
                && attempt.request.staging == Staging::Auto;
            if no_files {
                // The cause was insufficient memory.
                Error::OutOfMemory(OutOfMemory {
                    kind: memory_name(plan),
                    needed: Bytes(needs.beside()),
                    available: Bytes(plan.available(memory::available_bytes())),
                })
            } else {
                Error::from(PluginFailure::new(Role::BACKEND.0, "alloc", error))
            }
        })
    }
}

/// The name of the memory of a plan's weights.
fn memory_name(plan: &RunPlan) -> String {
    if plan.device_info.shares_host_memory {
        "host".to_owned()
    } else {
        plan.device_info.name.clone()
    }
}
