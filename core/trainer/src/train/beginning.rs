//! An output directory -> the start of a run: its first step, or a checkpoint.

use std::path::{Path, PathBuf};

use espalier_config::{Config, ResolvedConfig};
use espalier_engine::measure::{Cause, Peaks};
use espalier_engine::observer::{Event, Observer};
use espalier_system::failure::UsageError;
use espalier_system::files::{Continue, Damage, RunDirectory, RunState};
use espalier_system::world::World;
use serde_json::{Value as Json, json};

use super::finished::{Finish, Recorded};
use crate::Error;
use crate::checkpoint::{
    CONFIG_VERSION, Checkpoint, CheckpointError, Checkpoints, Extension, Progress, ResumeFrom,
    Trained, as_begun, changed, config_differences, config_version, consequence, differences,
    stated_differences,
};
use crate::export::{ExportRecord, Exported, last_step};
use crate::swap::{Mailbox, Swap, Swaps};

/// The version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A run's directory and progress.
pub(super) struct Beginning {
    pub directory: RunDirectory,
    pub checkpoint: Option<Checkpoint>,
    recorded: Recorded,
    /// The exported directory of a finished run.
    pub finished: Option<PathBuf>,
    /// Version of the config at the run's start.
    config_version: u64,
    /// Records of earlier resumptions and of this one in `run.json`.
    resumptions: Vec<Json>,
    /// Changes that hold from the checkpoint on.
    extension: Extension,
    /// The swaps before the checkpoint.
    pub swaps: Swaps,
    /// The recorded swaps after it, which must be repeated.
    pub later_swaps: Vec<Swap>,
}

impl Beginning {
    /// A directory without a run.
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
            extension: Extension::default(),
            swaps: Swaps::default(),
            later_swaps: Vec::new(),
        })
    }

    /// A directory with or without a run. A finished run goes on where `resolved` changes it for
    /// its next steps.
    ///
    /// # Errors
    /// A directory of another process; a pipe in place of a file; a checkpoint that is damaged or
    /// missing; damaged exported files of a finished run without a checkpoint.
    pub fn resumed(
        out: &Path,
        world: World,
        from: ResumeFrom,
        resolved: &ResolvedConfig,
        observer: &dyn Observer,
    ) -> Result<Self, Error> {
        let extension = Extension::asked(resolved);
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
            Finish::Yes(_) if extension.changes(&run, resolved) => {
                refuse_ended_early(&run, resolved)?;
                (Some(last_checkpoint(out, from)?), None)
            }
            Finish::Yes(saved) => (None, Some(saved)),
            Finish::Outgrown => (Some(last_checkpoint(out, from)?), None),
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
            // Requests to an earlier process.
            Mailbox::of(directory.path()).clear()?;
        }
        let (swaps, later_swaps) = Swaps::on_record(
            &run,
            checkpoint.as_ref().map(|one| &one.manifest.run),
            observer,
        )?;
        let step = checkpoint.as_ref().map(|one| one.manifest.progress.step);
        let extension = extension.recorded(&resumptions, step.unwrap_or_default());
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
                let note = format!("continuing from {}", checkpoint.path.display());
                observer.observe(&Event::Note(&note));
            }
            (None, RunState::Unfinished) => {
                resumptions.push(json!({ "from_step": 0 }));
                let why = resolved.config().run.first_checkpoint();
                let note = format!("{out} has no checkpoint, {why}: starting over");
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
            extension,
            swaps,
            later_swaps,
        })
    }

    /// `resolved` with the run's original values, where a newer program has other defaults. Prints
    /// these values.
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

    /// `resolved` with the swaps before the checkpoint.
    ///
    /// # Errors
    /// Values that do not go together.
    pub fn swapped(&self, resolved: &ResolvedConfig) -> Result<ResolvedConfig, Error> {
        Ok(self.swaps.applied_to(resolved)?)
    }

    /// Refuses a config that would change the result of the finished run.
    pub fn check_finished(&self, config: &Config) -> Result<(), Error> {
        let Some(run) = self.recorded.run() else {
            return Ok(());
        };
        let new = json!({ "config": config });
        let changed = config_differences(run, &new, u64::MAX, &self.extension);
        self.refuse(&self.directory.path().join("run.json"), changed)
    }

    /// Refuses to resume a run that differs from the checkpoint's, by the outline of `run.json`:
    /// the model's files are not read for it.
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
        let found = stated_differences(old, &new, step, &self.extension);
        self.refuse(&checkpoint.path, found)
    }

    /// Adds the resumptions to the content of `run.json`, and refuses to resume a run that differs
    /// from the checkpoint's.
    ///
    /// # Errors
    /// [`CheckpointError::Changed`] with every difference.
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
        let found = differences(old, run, step, &self.extension);
        self.refuse(&checkpoint.path, found)?;
        let changes = changed(old, run);
        if !changes.is_empty() {
            observer.observe(&Event::Note(&consequence(&changes, old, run, step)));
            let resumptions = run["resumptions"].as_array_mut();
            if let Some(this) = resumptions.and_then(|all| all.last_mut()) {
                this["changed"] = Json::Array(changes);
            }
        }
        for key in ["plugins", "plan_sha256"] {
            // The original value; later changes are in the swaps.
            run[key] = checkpoint.manifest.run[key].clone();
        }
        if let Some(options) = checkpoint.manifest.run.get("adapter_options") {
            run["adapter_options"] = options.clone();
        }
        Ok(())
    }

    /// The exported files, if recorded.
    pub fn exported(&self) -> Option<Exported> {
        match self.recorded.kept() {
            ExportRecord::These(mut exported) => {
                exported.steps = exported.steps.or(self.recorded.run().and_then(last_step));
                Some(exported)
            }
            ExportRecord::Never | ExportRecord::NotYet => None,
        }
    }

    /// The peaks measured by earlier processes of the run.
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

    /// The progress of the run.
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
            result: self.trained(),
        }))
    }

    /// What the run has trained so far.
    fn trained(&self) -> Option<Trained> {
        let home = self.directory.home();
        let checkpoint = self.checkpoint.iter().map(|one| one.path.as_path());
        let mut places = checkpoint.chain([home]);
        let adapter = places.find_map(|place| {
            let adapter = place.join("adapter");
            adapter.is_dir().then_some(Trained::Adapter(adapter))
        });
        let model = home.join("model");
        adapter.or_else(|| model.is_dir().then_some(Trained::Model(model)))
    }
}

/// The checkpoint from which a finished run goes on.
///
/// # Errors
/// As [`Checkpoints::choose`]; [`Error::Usage`] where there is none.
fn last_checkpoint(out: &Path, from: ResumeFrom) -> Result<Checkpoint, Error> {
    let found = Checkpoints::of(out).choose(from)?;
    found.ok_or_else(|| {
        Error::Usage(UsageError {
            message: format!("{} has no checkpoint to go on from", out.display()),
            next_step: "begin another run from its result: --adapter DIR (or --model DIR) and \
                        another --out"
                .to_owned(),
        })
    })
}

/// Refuses to make a run longer that its held-out loss ended.
fn refuse_ended_early(run: &Json, resolved: &ResolvedConfig) -> Result<(), Error> {
    let most = resolved.config().run.stop_after_worse;
    let ended = &run["ended_early"];
    match most.filter(|most| ended["worse"].as_u64().is_some_and(|worse| worse >= *most)) {
        None => Ok(()),
        Some(most) => Err(Error::Usage(UsageError {
            message: format!(
                "run.stop_after_worse = {most} ended the run after step {}, and would end it again",
                ended["step"]
            ),
            next_step: "raise it, too: `--set run.stop_after_worse=N`".to_owned(),
        })),
    }
}

/// The directory for this process: only one of several processes writes the common result.
fn claimed(out: &Path, world: World, existing: Continue) -> Result<RunDirectory, Error> {
    Ok(if world.writes() {
        RunDirectory::claim(out, existing)?
    } else {
        RunDirectory::beside(out)?
    })
}

/// The checkpoint from which the damaged export of a finished run is written again.
///
/// # Errors
/// [`CheckpointError::Exported`] without a checkpoint.
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
