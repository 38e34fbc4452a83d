//! A rank that is stopped while the processes of a run join -> the others end within
//! `run.join_timeout_secs`, and name it.
#![cfg(feature = "embedded")]

use espalier_torture::training;
use espalier_torture::victims;

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use espalier_samples::mpi_folder;
use espalier_torture::ended::stop;
use training::Training;
use victims::{RankGroup, variable};

const RANKS: u32 = 3;

/// The rank that is stopped.
const VICTIM: u32 = 1;

/// The run's timeouts: seconds to join, and without a heartbeat after that.
const SECS: u64 = 5;

/// Longest time until a survivor ends: starting under load, joining, and receiving the report.
const IN_TIME: Duration = Duration::from_secs(SECS + 35);

/// Starts a run in several processes and stops one of them once `moment` returns that process.
/// Expects the others to end in time with exit code 6 and a line that names it. Once one has ended
/// so, mpirun may ask the other to end before it does. Returns the printed text.
fn stopped(moment: impl FnOnce(&RankGroup) -> u32) -> String {
    let folder = mpi_folder();
    let training = Training::new(&format!(
        "--plugins lora,fsdp,mpi --set run.epochs=2000 --set run.join_timeout_secs={SECS} \
         --set run.peer_timeout_secs=4 --plugin-dir {}",
        folder.display()
    ));
    let (out, codes) = (training.path("out"), training.path("codes"));
    let mut group = RankGroup::start(RANKS, &training.command("out", ""), &out, &codes);
    stop(moment(&group));
    let took = group.await_end(1);
    let (output, codes) = group.end();
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(took <= IN_TIME, "{took:?}: {printed}");
    let survivors = (0..RANKS).filter(|&rank| rank != VICTIM);
    let survivors: Vec<Option<i32>> = survivors.map(|rank| codes[rank as usize]).collect();
    assert!(survivors.contains(&Some(6)), "{codes:?}: {printed}");
    let asked = |code| code == Some(143) && printed.contains("stopped by signal 15");
    for code in survivors {
        assert!(code == Some(6) || asked(code), "{codes:?}: {printed}");
    }
    let named = |line: &&str| {
        let who = [format!("rank {VICTIM} ("), format!("(rank {VICTIM}")];
        line.starts_with("error: ") && who.iter().any(|who| line.contains(who))
    };
    assert!(printed.lines().filter(named).count() >= 1, "{printed}");
    printed
}

#[test]
fn a_rank_stopped_before_it_joins_is_named() {
    let printed = stopped(|group| group.await_process(VICTIM));
    let words = format!("error: the processes did not all join within {SECS} s: ");
    let line = printed.lines().find(|line| line.starts_with(&words));
    let line = line.unwrap_or_else(|| panic!("{printed}"));
    for words in [
        "process 1 (rank 1) has not joined",
        "this one waits in join of plugin `mpi` (/",
        "; next: ",
        "run.join_timeout_secs",
    ] {
        assert!(line.contains(words), "no {words:?} in {line}");
    }
}

#[test]
fn a_rank_stopped_inside_mpi_init_is_named() {
    let printed = stopped(|group| {
        let process = group.await_process(VICTIM);
        let value = |name| variable(process, name).expect("Open MPI sets it");
        let mark = format!("espalier-{}-{VICTIM}", value("PMIX_NAMESPACE"));
        let mark = Path::new(&value("PMIX_SERVER_TMPDIR")).join(mark);
        let started = Instant::now();
        while !mark.exists() {
            assert!(started.elapsed().as_secs() < 60, "no {}", mark.display());
            thread::sleep(Duration::from_millis(1));
        }
        process
    });
    let words = "process 1 (rank 1, process id ";
    let line = printed.lines().find(|line| line.contains(words));
    let line = line.unwrap_or_else(|| panic!("{printed}"));
    assert!(line.contains(") is stopped"), "{line}");
}

#[test]
fn a_rank_stopped_at_any_moment_of_the_start_ends_all() {
    for delay in [60, 150, 300, 500] {
        stopped(|group| {
            let process = group.await_process(VICTIM);
            thread::sleep(Duration::from_millis(delay));
            process
        });
    }
}
