//! Processes as ranks, killed or stopped while MPI starts or during the run: the others end in time
//! and name the lost one.

use std::time::{Duration, Instant};

use espalier_samples::mpi_folder;

use crate::suite::{Attack, Try};
use crate::training::{Trained, Training, trained};
use crate::victims::RankGroup;

const RANKS: u32 = 3;
/// Time limit for all others to end.
const IN_TIME: Duration = Duration::from_secs(15);
const LONG: &str = "--set run.epochs=40 --set run.eval_every=60 --set adapter.lora.rank=4 --plugins nf4,lora,fsdp,mpi --set run.join_timeout_secs=5";

/// A run in processes.
pub struct Ranks {
    training: Training,
    whole: Trained,
    takes: Duration,
}

impl Ranks {
    /// Makes it once.
    pub fn prepare(_: u64) -> Result<Box<dyn Attack>, String> {
        let more = format!("{LONG} --plugin-dir {}", mpi_folder().display());
        let training = Training::new(&more);
        let started = Instant::now();
        let (output, codes) = RankGroup::of(RANKS, &training, "whole", "").end();
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{codes:?}: {printed}");
        let whole = trained(&training.path("whole"));
        Ok(Box::new(Ranks {
            training,
            whole,
            takes: started.elapsed(),
        }))
    }
}

impl Attack for Ranks {
    fn attempt(&self, a_try: &Try) {
        let mut random = a_try.random.clone();
        let out = a_try.name();
        let victim = random.below(RANKS as usize) as u32;
        let signal = *random.of_all(&["-KILL", "-STOP"]);
        let pause = self.takes.mul_f64(random.share());
        let case = format!("{signal} to rank {victim} after {pause:?}");
        let mut group = RankGroup::of(RANKS, &self.training, &out, "");
        std::thread::sleep(pause);
        let Some(()) = group.try_signal(victim, signal) else {
            // It had ended, or did not exist yet: the run succeeds like any other.
            let (output, codes) = group.end();
            assert!(
                output.status.success(),
                "{case}, and no process existed: {codes:?}"
            );
            return self.remove(&out);
        };
        let took = group.await_end(usize::from(signal == "-STOP"));
        // mpirun would wait for a stopped process after all others had ended.
        group.try_signal(victim, "-KILL");
        let (output, codes) = group.end();
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(took <= IN_TIME, "{case}: {took:?}: {printed}");
        let done = output.status.success();
        let metrics = self.training.path(&out).join("metrics.jsonl");
        let started = metrics.metadata().is_ok_and(|file| file.len() > 0);
        // Before the processes have joined, mpirun detects a lost one first and signals the others
        // to end.
        let asked =
            |code| !started && code == Some(143) && printed.contains("stopped by signal 15");
        for rank in (0..RANKS).filter(|&rank| rank != victim && !done) {
            let code = codes[rank as usize];
            assert!(
                [Some(6), Some(0)].contains(&code) || asked(code),
                "{case}: rank {rank} of {codes:?}: {printed}"
            );
        }
        let (output, codes) = RankGroup::of(RANKS, &self.training, &out, "--resume").end();
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{case}: --resume: {codes:?}: {printed}"
        );
        assert!(
            trained(&self.training.path(&out)) == self.whole,
            "{case}: other bits"
        );
        self.remove(&out);
    }
}

impl Ranks {
    fn remove(&self, out: &str) {
        std::fs::remove_dir_all(self.training.path(out)).expect("it was written");
    }
}
