//! The site's MPI -> the collective `mpi`, built as a site would build it, and what starts
//! processes that use it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::{build_in, put, root, target};

/// What to do where MPI or what builds against it is missing.
const INSTALL: &str = "install an MPI and libclang: `apt-get install libopenmpi-dev openmpi-bin libclang-dev`, as `.ci/run` \
                       does where it may";

/// A folder that holds the library of the collective `mpi` and nothing else. Cargo builds it first,
/// in a workspace of its own.
///
/// # Panics
/// Where there is no MPI, with what to install; where it cannot be built.
pub fn mpi_folder() -> PathBuf {
    // Tests run at once.
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(build).clone()
}

fn build() -> PathBuf {
    for tool in ["mpicc", "mpirun"] {
        let found = Command::new(tool).arg("--version").output();
        assert!(found.is_ok(), "`{tool}` is not installed: {INSTALL}");
    }
    build_in(
        &root().join("plugins/collective-mpi"),
        &["--locked", "--lib"],
    );
    let built = target().join("release/libespalier_collective_mpi.so");
    let bytes = std::fs::read(built).expect("just built");
    let folder = target().join("mpi");
    std::fs::create_dir_all(&folder).expect("room for a folder");
    let library = folder.join("libcollective-mpi.so");
    put(&library, &bytes);
    folder
}

/// `command` in `processes` processes, on more cores than there are and as root, where that is who
/// tests.
pub fn mpirun(processes: u32, command: &Command) -> Command {
    let mut run = Command::new("mpirun");
    run.args(["-n", &processes.to_string()]);
    allow(&mut run);
    run.arg(command.get_program()).args(command.get_args());
    run.current_dir(command.get_current_dir().unwrap_or(Path::new(".")));
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => run.env(name, value),
            None => run.env_remove(name),
        };
    }
    run
}

/// Lets Open MPI run where tests run; another MPI does not look at it.
pub fn allow(run: &mut Command) {
    run.env("OMPI_ALLOW_RUN_AS_ROOT", "1");
    run.env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    run.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
}
