//! Plugins swapped into a run, which is killed meanwhile.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::built::{faults, program};
use crate::ended::{Ended, PATIENCE, send};
use crate::random::Random;
use crate::scenario::{Scenario, named};
use crate::suite::{Attack, Try};

/// Enough steps for a request to reach a running run.
const LONG: &str =
    "--set run.max_steps=60 --set run.epochs=40 --set run.save_every=20 --set run.eval_every=20";

/// The requested swaps, all with the same numbers as result.
const ASKED: [&str; 3] = ["quantizer=nf4", "quantizer=nf4 --mapped", "adapter=lora"];

/// A kill at each call of a swap.
pub struct Swaps {
    of: Scenario,
    /// Request, call from 1, counted from the first on the request.
    cases: Vec<(usize, usize)>,
}

/// A run long enough for a swap request.
pub fn scenario() -> Scenario {
    Scenario::with(named("nf4-lora"), LONG)
}

/// Starts `job`, which writes to `out`, stops it after its first step, and requests a swap with a
/// command changed by `watch`. Then it resumes the job until the end.
pub fn asked_of(of: &Scenario, job: Command, out: &str, watch: impl Fn(&mut Command)) -> Ended {
    asked_for(of, job, out, ASKED[0], watch)
}

fn asked_for(
    of: &Scenario,
    mut job: Command,
    out: &str,
    words: &str,
    watch: impl Fn(&mut Command),
) -> Ended {
    let stderr = of.path(&format!("{out}.stderr"));
    let file = fs::File::create(&stderr).expect("created");
    job.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
    let mut job = Job(job.spawn().expect("the program starts"));
    let started = Instant::now();
    let metrics = of.path(out).join("metrics.jsonl");
    while !fs::read_to_string(&metrics).is_ok_and(|text| text.contains("grad_norm")) {
        let ended = job.0.try_wait().expect("it is ours");
        assert!(
            ended.is_none() && started.elapsed() < PATIENCE,
            "no step: {ended:?}"
        );
        sleep(Duration::from_millis(2));
    }
    send(job.0.id(), "STOP");
    let mut ask = Command::new(program());
    ask.current_dir(of.training.folder.path())
        .env("XDG_DATA_HOME", of.path("data"));
    ask.args(["swap", "--no-wait", "--run"])
        .arg(of.path(out))
        .args(words.split_whitespace());
    ask.env("LD_PRELOAD", faults());
    watch(&mut ask);
    let asked = Ended::of(&mut ask, PATIENCE);
    send(job.0.id(), "CONT");
    let resumed_at = Instant::now();
    let status = loop {
        if let Some(status) = job.0.try_wait().expect("it is ours") {
            break status;
        }
        let waited = resumed_at.elapsed();
        assert!(waited < PATIENCE, "asked for {words}: no end in {waited:?}");
        sleep(Duration::from_millis(2));
    };
    // A run that was finished already reports so; any other error is wrong.
    if !asked.succeeded() {
        asked.as_documented("asking for a swap");
    }
    use std::os::unix::process::ExitStatusExt;
    Ended {
        code: status.code(),
        signal: status.signal(),
        stderr: fs::read_to_string(stderr).unwrap_or_default(),
        late: false,
        took: started.elapsed(),
        worked: Duration::ZERO,
        peak_kib: 0,
    }
}

/// A job that is killed at the end of its try, stopped or not.
struct Job(Child);

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Swaps {
    /// Makes the run once, and counts the calls of a swap.
    pub fn prepare(seed: u64) -> Result<Box<dyn Attack>, String> {
        let of = scenario();
        let log = of.path("swap-calls");
        let mut command = counted(&of, "counted", 0);
        command.env("FAULT_LOG", &log);
        asked_of(&of, command, "counted", |_| ()).as_success("a swap");
        let calls = fs::read_to_string(log).expect("calls").lines().count();
        assert!(calls > 20, "{calls} calls behind a request");
        // The last of them are the run's.
        let cases =
            (0..ASKED.len()).flat_map(|asked| (1..=calls.min(150)).map(move |call| (asked, call)));
        let cases = Random::of(seed, "swaps", 0).shuffled(cases.collect());
        Ok(Box::new(Swaps { of, cases }))
    }
}

/// The run, killed at call `call` after the first one on a request.
fn counted(of: &Scenario, out: &str, call: usize) -> Command {
    let mut command = of.faulty(out, "", call, "kill");
    command.env("FAULT_FROM", "request-000001.json");
    command
}

impl Attack for Swaps {
    fn tries(&self) -> Option<u64> {
        Some(self.cases.len() as u64)
    }

    fn attempt(&self, a_try: &Try) {
        let place = |(asked, call): (usize, usize)| (call * ASKED.len() + asked) as u64;
        let at = a_try
            .at
            .unwrap_or_else(|| place(self.cases[a_try.number as usize]));
        a_try.happened.store(at, Ordering::Relaxed);
        let (asked, call) = (at as usize % ASKED.len(), at as usize / ASKED.len());
        let out = a_try.name();
        let case = format!("{}, killed at call {call} behind the request", ASKED[asked]);
        let ended = asked_for(
            &self.of,
            counted(&self.of, &out, call),
            &out,
            ASKED[asked],
            |_| (),
        );
        if ended.signal != Some(libc::SIGKILL) {
            ended.as_success(&case);
        }
        self.of.recovers(&out, &case);
    }
}
