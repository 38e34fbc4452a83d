//! The environment that a launcher sets -> the number of processes, and which one this is.

use std::collections::BTreeMap;

use espalier_config::RunOptions;
use espalier_system::failure::UsageError;
use espalier_system::world::World;

use crate::Error;

/// The processes of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The launcher.
    pub launcher: &'static str,
    /// Processes in all.
    pub processes: u32,
    /// The number of this one.
    pub process: u32,
    /// Processes on each machine.
    pub processes_per_machine: u32,
}

/// The launch of this process, where a launcher started it.
///
/// # Errors
/// As [`launched`].
pub fn launch() -> Result<Option<Launch>, Error> {
    let vars = std::env::vars_os().filter_map(|(name, value)| {
        let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
        Some((name, value))
    });
    launched(&vars.collect())
}

/// The launch that the variables `vars` describe: by mpirun (Open MPI, MPICH), torchrun or srun.
/// None without a launcher.
///
/// The innermost launcher counts: mpirun within a job of Slurm, torchrun within a step.
///
/// # Errors
/// [`Error::Usage`] for incomplete variables, launchers that contradict each other, machines with
/// different numbers of processes, and processes that are not numbered machine by machine.
pub fn launched(vars: &BTreeMap<String, String>) -> Result<Option<Launch>, Error> {
    let vars = Vars(vars);
    let launches = [torchrun(&vars)?, open_mpi(&vars)?, hydra(&vars)?];
    let mut launches = launches.into_iter().flatten();
    let Some(first) = launches.next() else {
        return match slurm(&vars)? {
            Some(launch) => Ok(Some(launch)),
            None => without_machines(&vars),
        };
    };
    match launches
        .find(|other| (other.process, other.processes) != (first.process, first.processes))
    {
        None => Ok(Some(first)),
        Some(other) => Err(refused(format!(
            "{} says that this is process {} of {}, {} that it is process {} of {}",
            first.launcher,
            first.process,
            first.processes,
            other.launcher,
            other.process,
            other.processes
        ))),
    }
}

/// Rank threads of each process: as many as were asked for, or one for each device that is named.
pub fn ranks_of_process(run: &RunOptions) -> u32 {
    let devices = run.devices.len().max(1) as u64;
    run.ranks.unwrap_or(devices) as u32
}

/// The world of a run with options `run`: the launcher's processes, each with its rank threads.
///
/// # Errors
/// As [`launched`].
pub fn world_of_run(run: &RunOptions) -> Result<World, Error> {
    Ok(world_of(launch()?, ranks_of_process(run)))
}

/// The world of `launch` with `ranks` rank threads in each process.
fn world_of(launch: Option<Launch>, ranks: u32) -> World {
    match launch {
        None => World::threads(ranks),
        Some(launch) => World {
            ranks: launch.processes * ranks,
            processes: launch.processes,
            processes_per_machine: launch.processes_per_machine,
            process: launch.process,
        },
    }
}

fn torchrun(vars: &Vars) -> Result<Option<Launch>, Error> {
    let names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"];
    // Other programs set RANK and WORLD_SIZE, too; torchrun sets all of them.
    if names.iter().any(|name| vars.text(name).is_none()) {
        return Ok(None);
    }
    vars.launch("torchrun", names).map(Some)
}

fn open_mpi(vars: &Vars) -> Result<Option<Launch>, Error> {
    vars.all_or_none(
        "mpirun",
        [
            "OMPI_COMM_WORLD_RANK",
            "OMPI_COMM_WORLD_SIZE",
            "OMPI_COMM_WORLD_LOCAL_RANK",
            "OMPI_COMM_WORLD_LOCAL_SIZE",
        ],
    )
}

/// mpiexec of MPICH and what descends from it.
fn hydra(vars: &Vars) -> Result<Option<Launch>, Error> {
    let names = ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"];
    // srun sets the first two as well, and says the rest in names of its own.
    if vars.text(names[2]).is_none() && vars.text(names[3]).is_none() {
        return Ok(None);
    }
    vars.all_or_none("mpiexec", names)
}

fn slurm(vars: &Vars) -> Result<Option<Launch>, Error> {
    // In a job's script there is no step: only srun makes one. Steps of the script and of a shell
    // have ids near 2^32.
    let step = vars.either("SLURM_STEP_ID", "SLURM_STEPID");
    let step = step.and_then(|id| id.parse::<u64>().ok());
    if step.is_none_or(|id| id >= 0xffff_fff0) {
        return Ok(None);
    }
    let launch = |tasks: &str| -> Result<Launch, Error> {
        let (process, local) = (vars.number("SLURM_PROCID")?, vars.number("SLURM_LOCALID")?);
        let per_node = vars.either("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE");
        let launch = Launch {
            launcher: "srun",
            processes: vars.number(tasks)?,
            process,
            processes_per_machine: tasks_per_node(per_node.unwrap_or_default())?,
        };
        launch.checked(local)
    };
    let counts = ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"];
    match counts.iter().find(|name| vars.text(name).is_some()) {
        Some(tasks) => launch(tasks).map(Some),
        None => Ok(None),
    }
}

/// Refuses a launcher that sets the number of processes but not their machines.
fn without_machines(vars: &Vars) -> Result<Option<Launch>, Error> {
    let is_set = |name: &str| vars.text(name).is_some();
    let several = is_set("PMI_SIZE") && vars.number("PMI_SIZE")? > 1;
    let unplaced = is_set("PMIX_RANK") && !is_set("PMIX_SIZE") && vars.number("PMIX_RANK")? > 0;
    if !several && !unplaced {
        return Ok(None);
    }
    Err(refused(
        "a launcher numbers its processes (PMI_RANK or PMIX_RANK) and does not say which of them share a machine".into(),
    ))
}

/// `2(x3)` of Slurm: three machines with two tasks each. Different numbers are refused.
fn tasks_per_node(text: &str) -> Result<u32, Error> {
    let wrong = || {
        refused(format!(
            "SLURM_TASKS_PER_NODE: expected `2(x3)` or `2`, found `{text}`"
        ))
    };
    let counts = text.split(',').map(|part| {
        let (count, times) = part.split_once("(x").unwrap_or((part, "1)"));
        let times = times
            .strip_suffix(')')
            .and_then(|times| times.parse::<u32>().ok());
        times.and_then(|_| count.parse::<u32>().ok())
    });
    let counts = counts.collect::<Option<Vec<u32>>>().ok_or_else(wrong)?;
    match counts.iter().find(|&&count| count != counts[0]) {
        None => Ok(counts[0]),
        Some(other) => Err(refused(format!(
            "the machines have different numbers of processes: {} and {other}",
            counts[0]
        ))),
    }
}

impl Launch {
    /// The same launch, checked against `local`, the number of this process on its machine.
    fn checked(self, local: u32) -> Result<Self, Error> {
        let Launch {
            launcher,
            processes,
            process,
            processes_per_machine: per_machine,
        } = self;
        if process >= processes || local >= per_machine {
            return Err(refused(format!(
                "{launcher} says that this is process {process} of {processes}, and process {local} of {per_machine} on its \
                 machine"
            )));
        }
        if processes % per_machine != 0 {
            return Err(refused(format!(
                "the machines have different numbers of processes: {per_machine} on this one, {processes} in total"
            )));
        }
        if process % per_machine != local {
            return Err(Error::Usage(UsageError {
                message: format!(
                    "processes are not numbered machine by machine: process {process} is number {local} of {per_machine} on \
                     its machine, expected number {}",
                    process % per_machine
                ),
                next_step: "start them with `mpirun --map-by slot`, or `srun --distribution=block`"
                    .into(),
            }));
        }
        Ok(self)
    }
}

/// Variables by name.
struct Vars<'a>(&'a BTreeMap<String, String>);

impl Vars<'_> {
    fn text(&self, name: &str) -> Option<&str> {
        self.0
            .get(name)
            .map(|value| value.trim())
            .filter(|value| !value.is_empty())
    }

    fn either(&self, name: &str, other: &str) -> Option<&str> {
        self.text(name).or_else(|| self.text(other))
    }

    fn number(&self, name: &str) -> Result<u32, Error> {
        let found = self.text(name);
        let number = found.and_then(|text| text.parse().ok());
        number.ok_or_else(|| {
            let found = found.map_or_else(|| "nothing".to_owned(), |text| format!("`{text}`"));
            refused(format!(
                "the variable {name}: expected a whole number, found {found}"
            ))
        })
    }

    /// The launch that four variables describe: process, processes, process on its machine,
    /// processes on its machine.
    fn launch(&self, launcher: &'static str, names: [&str; 4]) -> Result<Launch, Error> {
        let launch = Launch {
            launcher,
            process: self.number(names[0])?,
            processes: self.number(names[1])?,
            processes_per_machine: self.number(names[3])?,
        };
        launch.checked(self.number(names[2])?)
    }

    fn all_or_none(
        &self,
        launcher: &'static str,
        names: [&str; 4],
    ) -> Result<Option<Launch>, Error> {
        if names.iter().all(|name| self.text(name).is_none()) {
            return Ok(None);
        }
        self.launch(launcher, names).map(Some)
    }
}

fn refused(message: String) -> Error {
    Error::Usage(UsageError {
        message,
        next_step: "start all processes with one mpirun, srun or torchrun, the same number on every machine; or clear its \
                    variables to train in one process"
            .into(),
    })
}

#[cfg(test)]
mod tests;
