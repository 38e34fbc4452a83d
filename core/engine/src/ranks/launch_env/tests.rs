//! The environments of mpirun, srun and torchrun -> a process's place in the world.

use super::*;

fn read(vars: &str) -> Result<Option<Launch>, String> {
    let vars = vars.split_whitespace().map(|pair| {
        let (name, value) = pair.split_once('=').expect("NAME=VALUE");
        (name.to_owned(), value.to_owned())
    });
    launched(&vars.collect()).map_err(|error| error.to_string())
}

#[test]
fn every_launcher_says_the_same_in_its_own_words() {
    let third_of_four = [
        "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=2",
        "PMI_RANK=2 PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2",
        "RANK=2 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 GROUP_RANK=1",
        "SLURM_STEP_ID=0 SLURM_PROCID=2 SLURM_NTASKS=4 SLURM_LOCALID=0 SLURM_TASKS_PER_NODE=2(x2)",
        "SLURM_STEPID=3 SLURM_PROCID=2 SLURM_NTASKS=9 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=0 \
         SLURM_STEP_TASKS_PER_NODE=2,2 SLURM_TASKS_PER_NODE=5,4 PMI_RANK=2 PMI_SIZE=4 PMIX_RANK=2",
    ];
    for vars in third_of_four {
        let launch = read(vars).expect(vars).expect(vars);
        let world = world_of(Some(launch), 3);
        assert_eq!(
            (world.ranks, world.processes, world.process),
            (12, 4, 2),
            "{vars}"
        );
        assert_eq!((world.machines(), world.own_ranks()), (2, 6..9), "{vars}");
    }
    assert_eq!(world_of(None, 4), World::threads(4));
}

#[test]
fn the_innermost_launcher_counts_and_a_jobs_script_is_none() {
    let script = "SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_LOCALID=0 SLURM_TASKS_PER_NODE=4";
    assert_eq!(read(script), Ok(None));
    assert_eq!(
        read(&format!("{script} SLURM_STEP_ID=4294967291")),
        Ok(None)
    );
    assert_eq!(read("RANK=1 WORLD_SIZE=2 PATH=/bin"), Ok(None));
    let within = "SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=0 SLURM_TASKS_PER_NODE=1(x2) \
                  OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 \
                  OMPI_COMM_WORLD_LOCAL_SIZE=2";
    let launch = read(within).expect("one counts").expect("there is one");
    assert_eq!((launch.launcher, launch.process), ("mpirun", 3));
}

#[test]
fn contradictions_are_named() {
    let cases = [
        (
            "OMPI_COMM_WORLD_RANK=0",
            "OMPI_COMM_WORLD_SIZE: expected a whole number, found nothing",
        ),
        (
            "RANK=x WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2",
            "RANK: expected a whole number, found `x`",
        ),
        (
            "RANK=2 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2",
            "process 2 of 2",
        ),
        (
            "RANK=1 WORLD_SIZE=3 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2",
            "2 on this one, 3 in total",
        ),
        (
            "RANK=1 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2",
            "not numbered machine by machine",
        ),
        (
            "PMI_RANK=1 PMI_SIZE=2",
            "does not say which of them share a machine",
        ),
        (
            "SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=5 SLURM_LOCALID=0 SLURM_TASKS_PER_NODE=2(x2),1",
            "different numbers of processes: 2 and 1",
        ),
        (
            "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 \
             MPI_LOCALNRANKS=2",
            "torchrun says that this is process 0 of 2, mpiexec that it is process 1 of 2",
        ),
    ];
    for (vars, expected) in cases {
        let message = read(vars).expect_err(vars);
        assert!(message.contains(expected), "{vars}: {message}");
    }
}
