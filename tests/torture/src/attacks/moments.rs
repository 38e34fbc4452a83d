//! A kill at any moment, several in a row.

use std::fs;
use std::sync::atomic::Ordering;
use std::thread::sleep;

use crate::ended::{Ended, PATIENCE, send};
use crate::scenario::Scenario;
use crate::suite::{Attack, Try};

/// All uses.
pub struct Moments(Vec<Scenario>);

impl Moments {
    /// Makes every use once.
    pub fn prepare(_: u64) -> Result<Box<dyn Attack>, String> {
        Ok(Box::new(Moments(Scenario::of_all())))
    }
}

impl Attack for Moments {
    fn attempt(&self, a_try: &Try) {
        let mut random = a_try.random.clone();
        let of = random.of_all(&self.0);
        let out = a_try.name();
        let rounds = if of.resumes() { 1 + random.below(4) } else { 1 };
        let mut case = of.of.name.to_owned();
        for round in 0..rounds {
            let pause = of.takes.mul_f64(random.share());
            let more = if round == 0 { "" } else { "--resume" };
            case += &format!(", killed after {pause:?}");
            if let (0, Some(call)) = (round, a_try.at) {
                Ended::of(&mut of.faulty(&out, more, call as usize, "kill"), PATIENCE);
                continue;
            }
            let log = of.path(&format!("{out}.calls-{round}"));
            let mut command = of.faulty(&out, more, 0, "eio");
            command
                .env("FAULT_LOG", &log)
                .stderr(std::process::Stdio::null());
            command.stdout(std::process::Stdio::null());
            let ended = Ended::of_while(&mut command, PATIENCE, |process| {
                sleep(pause);
                send(process, "KILL");
            });
            if round == 0 {
                let calls = fs::read_to_string(log).unwrap_or_default().lines().count();
                a_try.happened.store(calls as u64 + 1, Ordering::Relaxed);
            }
            if ended.signal.is_none() {
                break;
            }
        }
        of.recovers(&out, &case);
    }
}
