//! Signals that request the end of a run, once and twice: it saves, reports it, and resumes to the
//! same bits.

use std::thread::sleep;
use std::time::Duration;

use crate::ended::{Ended, PATIENCE, send};
use crate::scenario::{Scenario, named};
use crate::suite::{Attack, Try};

/// Enough steps for a signal to reach a running run, without a save meanwhile.
const LONG: &str =
    "--set run.max_steps=90 --set run.epochs=60 --set run.save_every=1000 --set run.eval_every=30";

/// Runs of one rank and of two.
pub struct Signals(Vec<Scenario>);

impl Signals {
    /// Makes them once.
    pub fn prepare(_: u64) -> Result<Box<dyn Attack>, String> {
        let of = |name| Scenario::with(named(name), LONG);
        Ok(Box::new(Signals(vec![of("nf4-lora"), of("fsdp")])))
    }
}

impl Attack for Signals {
    fn attempt(&self, a_try: &Try) {
        let mut random = a_try.random.clone();
        let of = random.of_all(&self.0);
        let signal = *random.of_all(&[("INT", 2), ("TERM", 15), ("HUP", 1)]);
        let second = *random.of_all(&[None, None, Some("INT"), Some("TERM")]);
        let (pause, between) = (
            of.takes.mul_f64(random.share()),
            Duration::from_millis(random.below(40) as u64),
        );
        let out = a_try.name();
        let case = format!(
            "{}: {} after {pause:?}, then {second:?} after {between:?}",
            of.of.name, signal.0
        );
        let mut command = of.command(&out, "");
        command
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::piped());
        let ended = Ended::of_while(&mut command, PATIENCE, |process| {
            sleep(pause);
            send(process, signal.0);
            if let Some(second) = second {
                sleep(between);
                send(process, second);
            }
        });
        let started = of
            .path(&out)
            .join("metrics.jsonl")
            .metadata()
            .is_ok_and(|file| file.len() > 0);
        match ended.signal {
            // Before a run starts, and after a second signal, it has its default effect.
            Some(_) => assert!(
                !started || second.is_some(),
                "{case}: it did not save: {ended:?}"
            ),
            // After a second signal, nothing more is printed.
            None if second.is_some() && [129, 130, 143].contains(&ended.code.unwrap_or(0)) => {}
            None => ended.as_documented(&case),
        }
        if ended.succeeded() {
            of.is_whole(&out, &case);
        } else if ended.signal.is_none() && second.is_none() {
            assert_eq!(ended.code, Some(128 + signal.1), "{case}: {}", ended.stderr);
        }
        of.recovers(&out, &case);
    }
}
