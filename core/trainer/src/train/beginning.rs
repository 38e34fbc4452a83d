//! An output directory -> where a run begins: at its first step, or behind a checkpoint.

use std::path::{Path, PathBuf};

use espalier_config::{Config, ResolvedConfig};
use espalier_engine::measure::{Cause, Peaks};
use espalier_engine::observer::{Event, Observer};
use espalier_system::files::{Continue, Damage, RunDirectory, RunState};
use espalier_system::world::World;
use serde_json::{Value as Json, json};

use super::finished::{Finish, Recorded};
use crate::Error;
use crate::checkpoint::{
    CONFIG_VERSION, Checkpoint, CheckpointError, Checkpoints, Progress, ResumeFrom, as_begun,
    config_differences, config_version, differences, stated_differences,
};
use crate::export::{Exported, Kept};
use crate::swap::{Mailbox, Swap, Swaps};

/// The version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A run's directory, and how far the run is.
pub(super) struct Beginning {
    pub directory: RunDirectory,
    pub checkpoint: Option<Checkpoint>,
    recorded: Recorded,
    /// What the run left, where it had come to its end.
    pub finished: Option<PathBuf>,
    /// Version of the config under which the run began.
    config_version: u64,
    /// What `run.json` says of earlier resumptions, and of this one.
    resumptions: Vec<Json>,
    /// The swaps that the checkpoint stands behind.
    pub swaps: Swaps,
    /// Those on record after it, to be made again.
    pub later_swaps: Vec<Swap>,
}

impl Beginning {
    /// A directory that holds no run yet.
    pub fn fresh(out: &Path, world: World) -> Result<Self, Error> {
        let directory = claimed(out, world, Continue::Refuse)?;
        Mailbox::of(directory.path()).clear()?;
        Ok(Beginning {
            directory,
            checkpoint: None,
            recorded: Recorded::Nothing,
            finished: None,
            config_version: CONFIG_VERSION,
            resumptions: Vec::new(),
            swaps: Swaps::default(),
            later_swaps: Vec::new(),
        })
    }

    /// A directory that holds a run, or is to hold one.
    ///
    /// # Errors
    /// Another process's directory; a pipe in the place of a file; a checkpoint that is damaged or
    /// not there; what a finished run left, where it is damaged and there is no checkpoint.
    pub fn resumed(
        out: &Path,
        world: World,
        from: ResumeFrom,
        observer: &dyn Observer,
    ) -> Result<Self, Error> {
        let directory = claimed(out, world, Continue::Resume)?;
        if let Some((path, found)) = directory.not_regular() {
            return Err(Error::Resume(CheckpointError::NotRegular { path, found }));
        }
        let recorded = Recorded::of(directory.home());
        let began = recorded.run().map(config_version);
        let run = recorded.run().cloned().unwrap_or_default();
        let mut resumptions = run["resumptions"].as_array().cloned().unwrap_or_default();
        let finish = Finish::of(&directory, &recorded, observer);
        let (checkpoint, finished) = match finish {
            Finish::Yes(saved) => (None, Some(saved)),
            Finish::No => match directory.state() {
                RunState::Unfinished => (Checkpoints::of(out).choose(from)?, None),
                _ => (None, None),
            },
            Finish::Damaged(place, damage) => {
                let checkpoint = Checkpoints::of(out).choose(from)?;
                (
                    Some(written_again(checkpoint, place, damage, observer)?),
                    None,
                )
            }
        };
        let config_version = match &checkpoint {
            Some(checkpoint) => config_version(&checkpoint.manifest.run),
            None => began.unwrap_or(CONFIG_VERSION),
        };
        if finished.is_none() {
            // Asked of a process that is gone.
            Mailbox::of(directory.path()).clear()?;
        }
        let swaps = match &checkpoint {
            Some(checkpoint) => Swaps::of(&checkpoint.manifest.run)?,
            None => Swaps::default(),
        };
        let mut later_swaps = Swaps::of(&run)?.0;
        later_swaps.drain(..swaps.0.len().min(later_swaps.len()));
        for swap in swaps.0.iter().chain(&later_swaps) {
            let note = format!("with the swap on record: {}", swap.record.shown());
            observer.observe(&Event::Note(&note));
        }
        let out = out.display();
        match (&checkpoint, directory.state()) {
            _ if finished.is_some() => {}
            (Some(checkpoint), _) => {
                let step = checkpoint.manifest.progress.step;
                let mut resumption = json!({ "from_step": step });
                if checkpoint.manifest.run["espalier"] != VERSION {
                    resumption["espalier"] = Json::from(VERSION);
                }
                resumptions.push(resumption);
                let note = format!("going on from {}", checkpoint.path.display());
                observer.observe(&Event::Note(&note));
            }
            (None, RunState::Unfinished) => {
                resumptions.push(json!({ "from_step": 0 }));
                let note = format!("{out} has no checkpoint yet: starting over");
                observer.observe(&Event::Note(&note));
            }
            (None, _) => {
                let note = format!("{out} holds no run yet: starting one");
                observer.observe(&Event::Note(&note));
            }
        }
        Ok(Beginning {
            directory,
            checkpoint,
            recorded,
            finished,
            config_version,
            resumptions,
            swaps,
            later_swaps,
        })
    }

    /// `resolved` with the values that the run began with, where a newer program has other
    /// defaults. Says which.
    ///
    /// # Errors
    /// Values that do not go together.
    pub fn begun(
        &self,
        resolved: &ResolvedConfig,
        observer: &dyn Observer,
    ) -> Result<ResolvedConfig, Error> {
        Ok(as_begun(resolved, self.config_version, observer)?)
    }

    /// `resolved` with the swaps that the checkpoint stands behind.
    ///
    /// # Errors
    /// Values that do not go together.
    pub fn swapped(&self, resolved: &ResolvedConfig) -> Result<ResolvedConfig, Error> {
        Ok(self.swaps.applied_to(resolved)?)
    }

    /// Refuses a config under which the finished run would have come to something else.
    pub fn check_finished(&self, config: &Config) -> Result<(), Error> {
        let Some(run) = self.recorded.run() else {
            return Ok(());
        };
        let changed = config_differences(run, &json!({ "config": config }), u64::MAX);
        self.refuse(self.directory.path(), changed)
    }

    /// Refuses to go on with another run than the checkpoint's, as far as `outline` says what
    /// `run.json` will hold: the model's files are not read for it.
    ///
    /// # Errors
    /// As [`Beginning::check`].
    pub fn check_outline(&self, outline: &Json) -> Result<(), Error> {
        let Some(checkpoint) = &self.checkpoint else {
            return Ok(());
        };
        let old = &self.swaps.result_in(&checkpoint.manifest.run);
        let mut new = outline.clone();
        for files in ["files", "adapter_files"] {
            new["model"][files] = old["model"][files].clone();
        }
        let step = checkpoint.manifest.progress.step;
        self.refuse(&checkpoint.path, stated_differences(old, &new, step))
    }

    /// Adds the resumptions to what `run.json` will hold, and refuses to go on with another run
    /// than the checkpoint's.
    ///
    /// # Errors
    /// [`CheckpointError::Changed`], naming every difference.
    pub fn check(&self, run: &mut Json, observer: &dyn Observer) -> Result<(), Error> {
        run["config_version"] = Json::from(self.config_version);
        run["resumptions"] = Json::Array(self.resumptions.clone());
        run["swaps"] = self.swaps.to_json();
        let Some(checkpoint) = &self.checkpoint else {
            return Ok(());
        };
        let old = &self.swaps.result_in(&checkpoint.manifest.run);
        let (before, now) = (&old["espalier"], &run["espalier"]);
        if before != now {
            observer.observe(&Event::Note(&format!(
                "the checkpoint was saved by version {before} of this program, which is {now}: \
                 rounding may differ"
            )));
        }
        let (before, now) = (&old["instruction_set"], &run["instruction_set"]);
        if before != now {
            observer.observe(&Event::Note(&format!(
                "the checkpoint was saved with the instruction set {before}, this machine has \
                 {now}: rounding may differ"
            )));
        }
        let (before, now) = (&old["world"], &run["world"]);
        if before != now {
            observer.observe(&Event::Note(&format!(
                "the checkpoint was saved by {before} ranks, this run has {now}: rounding may differ"
            )));
        }
        let step = checkpoint.manifest.progress.step;
        self.refuse(&checkpoint.path, differences(old, run, step))?;
        for key in ["plugins", "plan_sha256"] {
            // What it began with; the swaps say what became of it.
            run[key] = checkpoint.manifest.run[key].clone();
        }
        if let Some(options) = checkpoint.manifest.run.get("adapter_options") {
            run["adapter_options"] = options.clone();
        }
        Ok(())
    }

    /// What the run exported, where it is on record.
    pub fn exported(&self) -> Option<Exported> {
        match self.recorded.kept() {
            Kept::These(exported) => Some(exported),
            Kept::Never | Kept::NotYet => None,
        }
    }

    /// The peaks that earlier processes of the run measured.
    pub fn peaks(&self) -> Peaks {
        let machine = self.checkpoint.as_ref();
        let machine = machine.map(|checkpoint| &checkpoint.manifest.run["machine"]);
        let Some(machine) = machine else {
            return Peaks::default();
        };
        let known = serde_json::from_value(machine["peak_rates"].clone());
        known.unwrap_or_else(|_| {
            let mut peaks = Peaks::default();
            if let Some(rate) = machine["gemm_flops_per_sec"].as_f64() {
                peaks.push(1, rate, Cause::Start);
            }
            peaks
        })
    }

    /// How far the run is.
    pub fn progress(&self) -> Progress {
        let checkpoint = self.checkpoint.as_ref();
        checkpoint.map_or_else(Progress::default, |one| one.manifest.progress.clone())
    }

    fn refuse(
        &self,
        path: &Path,
        differences: Vec<crate::checkpoint::Difference>,
    ) -> Result<(), Error> {
        if differences.is_empty() {
            return Ok(());
        }
        Err(Error::Resume(CheckpointError::Changed {
            path: path.to_owned(),
            differences,
        }))
    }
}

/// The directory for this process: one of several writes what all of them have made.
fn claimed(out: &Path, world: World, existing: Continue) -> Result<RunDirectory, Error> {
    Ok(if world.writes() {
        RunDirectory::claim(out, existing)?
    } else {
        RunDirectory::beside(out)?
    })
}

/// The checkpoint that what a finished run exported is written again from, as `damage` to it has
/// it.
///
/// # Errors
/// Where there is none.
fn written_again(
    checkpoint: Option<Checkpoint>,
    directory: PathBuf,
    damage: Damage,
    observer: &dyn Observer,
) -> Result<Checkpoint, Error> {
    let Damage { file, problem } = damage;
    match checkpoint {
        Some(checkpoint) => {
            observer.observe(&Event::Note(&format!(
                "{} is not as its run left it: {file}: {problem}: it is written again from {}",
                directory.display(),
                checkpoint.path.display()
            )));
            Ok(checkpoint)
        }
        None => Err(Error::Resume(CheckpointError::Exported {
            directory,
            file,
            problem,
            remedy: "there is no checkpoint to write it again from: restore that file, or train again with another --out",
        })),
    }
}
