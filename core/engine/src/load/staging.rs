//! A plan -> the memory in which the ranks of a machine load its weights together.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use espalier_plan::plan::RunPlan;
use espalier_plan::stage_layout::StageLayout;
use espalier_system::files::FileError;
use serde::{Deserialize, Serialize};

use super::HostRegion;
use super::host_region::out_of_memory;
use super::member::{Member, together};
use super::shared_file::{self, Home, SharedFile};
use crate::Error;

/// What the rank threads of a process share while they load.
pub struct Staging {
    layout: StageLayout,
    made: Mutex<Made>,
}

#[derive(Default)]
struct Made {
    stage: Option<Arc<Stage>>,
    /// Files that other processes are about to open.
    files: Vec<SharedFile>,
}

/// The memory in which weights are loaded.
pub struct Stage {
    /// The location of every part.
    pub layout: StageLayout,
    /// The machine's one copy of units that ranks fetch whole; empty where there are none.
    pub copy: Arc<HostRegion>,
    /// The buffer that each unit's runs are loaded into in turn.
    pub passing: HostRegion,
}

/// The files of the copy and of the passing buffer, for other processes.
#[derive(Serialize, Deserialize)]
struct Paths([PathBuf; 2]);

impl Staging {
    /// What the ranks of `plan` load into.
    pub fn new(plan: &RunPlan) -> Self {
        let layout = StageLayout::new(&plan.shard_layout, plan.dtypes);
        Staging {
            layout,
            made: Mutex::default(),
        }
    }

    /// The memory, made once per machine. Every rank's thread calls this once; those of a process
    /// get the same memory.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]. The failure of another rank. Either all ranks return an error or
    /// none.
    pub fn open(&self, member: &dyn Member) -> Result<Arc<Stage>, Error> {
        let opened = self.open_in(Home::Memory, member);
        match member.world().processes_per_machine {
            1 => opened,
            // Processes in containers of their own cannot see each other's files in memory.
            _ => opened.or_else(|_| self.open_in(Home::Folder, member)),
        }
    }

    fn open_in(&self, home: Home, member: &dyn Member) -> Result<Arc<Stage>, Error> {
        let (rank, world) = (member.rank(), member.world());
        let first = rank - rank % world.ranks_per_machine();
        let shared = world.processes_per_machine > 1;
        let paths = if shared && rank == first {
            self.create(home).map(Some)
        } else {
            Ok(None)
        };
        let mut sent = together(member, "making the machine's memory", paths)?;
        let mapped = if rank == world.own_ranks().start {
            self.map(sent.swap_remove(first as usize))
        } else {
            Ok(())
        };
        together(member, "mapping the machine's memory", mapped)?;
        let mut made = self.made();
        // All processes have them open, so their names can go.
        made.files.clear();
        Ok(Arc::clone(
            made.stage.as_ref().expect("mapped before all agreed"),
        ))
    }

    /// Makes the files that the machine's processes share.
    fn create(&self, home: Home) -> Result<Paths, Error> {
        let create = |bytes: u64| {
            let bytes = HostRegion::mapped_bytes(bytes);
            SharedFile::create(home, bytes).map_err(|error| no_room(bytes, error))
        };
        let files = [
            create(self.layout.copy_bytes)?,
            create(self.layout.passing_bytes)?,
        ];
        let paths = [&files[0], &files[1]].map(|file| file.path().to_owned());
        self.made().files = files.into();
        Ok(Paths(paths))
    }

    /// Maps the files that the machine's first rank made, or private memory.
    fn map(&self, paths: Option<Paths>) -> Result<(), Error> {
        let StageLayout {
            copy_bytes,
            passing_bytes,
            ..
        } = self.layout;
        let [copy, passing] = match &paths {
            None => [
                HostRegion::anonymous(copy_bytes)?,
                HostRegion::anonymous(passing_bytes)?,
            ],
            Some(Paths([copy, passing])) => [
                map_file(copy, copy_bytes)?,
                map_file(passing, passing_bytes)?,
            ],
        };
        self.made().stage = Some(Arc::new(Stage {
            layout: self.layout.clone(),
            copy: Arc::new(copy),
            passing,
        }));
        Ok(())
    }

    // A panic while the lock is held leaves the value consistent: every change is one assignment.
    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn map_file(path: &Path, bytes: u64) -> Result<HostRegion, Error> {
    let opened = shared_file::open(path, HostRegion::mapped_bytes(bytes));
    let mapped = opened.and_then(|file| HostRegion::of_file(&file, bytes));
    mapped.map_err(|source| {
        let path = path.to_owned();
        Error::File(FileError::Read { path, source })
    })
}

fn no_room(bytes: u64, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::OutOfMemory => out_of_memory(bytes),
        _ => Error::File(FileError::Write {
            path: std::env::temp_dir(),
            source: error,
        }),
    }
}
