//! Marker files of the processes of a launch, so that a process that does not join can be named.
//!
//! A process inside MPI's start knows nothing of the others yet. So each process first writes its
//! process id into the folder that the launcher makes for a launch and removes afterwards (PMIx:
//! Open MPI, Slurm). Other launchers have no such folder; then no process can be named.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process;

use espalier_system::files::write_atomically;
use espalier_system::world::World;

/// The launcher's folder, and the name of the launch among those that share it.
const FOLDER: &str = "PMIX_SERVER_TMPDIR";
const LAUNCH: &str = "PMIX_NAMESPACE";

/// The marker files of this machine's processes. This process's own file is removed on drop.
pub(super) struct Gathering {
    world: World,
    /// Path of the marker files without the process number; none where the launcher names no
    /// folder.
    marks: Option<PathBuf>,
}

impl Gathering {
    /// Writes the marker file of this process.
    pub fn enter(world: World) -> Self {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let marks = variable(FOLDER)
            .zip(variable(LAUNCH))
            .map(|(folder, launch)| {
                let launch: String = launch
                    .to_string_lossy()
                    .chars()
                    .map(|c| if c.is_alphanumeric() { c } else { '-' })
                    .collect();
                Path::new(&folder).join(format!("espalier-{launch}"))
            });
        Gathering::among(world, marks)
    }

    fn among(world: World, marks: Option<PathBuf>) -> Self {
        let mut gathering = Gathering { world, marks };
        if let Some(mark) = gathering.mark(world.process)
            // A process may be stopped at any moment, so the file is written atomically.
            && let Err(error) = write_atomically(&mark, process::id().to_string().as_bytes())
        {
            tracing::debug!("{error}");
            gathering.marks = None;
        }
        gathering
    }

    fn mark(&self, process: u32) -> Option<PathBuf> {
        let marks = self.marks.as_ref()?;
        let name = format!("{}-{process}", marks.file_name()?.to_string_lossy());
        Some(marks.with_file_name(name))
    }

    /// What is known of the processes that this one waits for.
    pub fn missing(&self) -> String {
        let per_machine = self.world.processes_per_machine;
        let first = self.world.process / per_machine * per_machine;
        let others = (first..first + per_machine).filter(|&one| one != self.world.process);
        let known: Vec<String> = others.filter_map(|one| self.describe(one)).collect();
        match (known.as_slice(), &self.marks) {
            (_, None) => "this launcher does not reveal which process is missing".to_owned(),
            ([], _) if self.world.machines() > 1 => {
                "all processes of this machine joined; check the other machines".to_owned()
            }
            ([], _) => "all processes joined, but some do not respond".to_owned(),
            (known, _) => known.join(", "),
        }
    }

    /// Why a process of this machine does not join, where that can be seen.
    fn describe(&self, process: u32) -> Option<String> {
        let each = self.world.ranks_per_process();
        let rank = process * each;
        let ranks = match each {
            1 => format!("rank {rank}"),
            _ => format!("ranks {rank} to {}", rank + each - 1),
        };
        match fs::read_to_string(self.mark(process)?) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Some(format!("process {process} ({ranks}) has not joined"))
            }
            Err(_) => None,
            Ok(id) => {
                let state = state(id.trim().parse().ok()?)?;
                Some(format!(
                    "process {process} ({ranks}, process id {}) {state}",
                    id.trim()
                ))
            }
        }
    }
}

impl Drop for Gathering {
    fn drop(&mut self) {
        if let Some(mark) = self.mark(self.world.process) {
            // The launcher removes what is left.
            let _ = fs::remove_file(mark);
        }
    }
}

/// Why a process makes no progress; none for one that runs.
fn state(id: u32) -> Option<&'static str> {
    let Ok(stat) = fs::read_to_string(format!("/proc/{id}/stat")) else {
        return Some("has ended");
    };
    // `77 (host) T 1 ...`; the name may hold anything.
    let (_, rest) = stat.rsplit_once(") ")?;
    match rest.chars().next()? {
        'T' | 't' => Some("is stopped"),
        'Z' | 'X' => Some("has ended"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_not_come_or_is_gone_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let marks = folder.path().join("espalier-7");
        let world = World {
            ranks: 16,
            processes: 8,
            processes_per_machine: 4,
            process: 5,
        };
        let gathering = Gathering::among(world, Some(marks.clone()));
        let put = |process: u32, id: u32| {
            fs::write(
                folder.path().join(format!("espalier-7-{process}")),
                id.to_string(),
            )
            .expect("room");
        };
        put(4, process::id());
        // Beyond any process's number.
        put(6, 1 << 30);
        let gone = format!(
            "process 6 (ranks 12 to 13, process id {}) has ended",
            1 << 30
        );
        let expected = format!("{gone}, process 7 (ranks 14 to 15) has not joined");
        assert_eq!(gathering.missing(), expected);
        put(6, process::id());
        put(7, process::id());
        assert!(gathering.missing().contains("check the other machines"));
        drop(gathering);
        assert!(!folder.path().join("espalier-7-5").exists());
        let nowhere = Gathering::among(world, None).missing();
        assert!(nowhere.contains("does not reveal"), "{nowhere}");
    }
}
