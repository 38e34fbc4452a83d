//! The site's MPI -> the collective `mpi`, built like a site's, and the launcher of processes that
//! use it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::{build_in, put, root, target};

/// The remedy if MPI or its build dependencies are missing.
const INSTALL: &str = "install an MPI and libclang: `apt-get install libopenmpi-dev openmpi-bin libclang-dev`, as `.ci/run` \
                       does where it may";

/// A folder that holds only the library of the collective `mpi`. Cargo builds it first, in a
/// separate workspace.
///
/// # Panics
/// If there is no MPI, with what to install; where it cannot be built.
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

/// `command` in `processes` processes, possibly more than cores, and as root if the tests run as
/// root.
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

/// Allows Open MPI to run as root and oversubscribed; another MPI ignores it.
pub fn allow(run: &mut Command) {
    run.env("OMPI_ALLOW_RUN_AS_ROOT", "1");
    run.env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    run.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
}
