//! A power cut after every change that a use of the program makes to files: the remaining state is
//! old or new, never mixed.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use espalier_trainer::checkpoint::{Checkpoints, ResumeFrom};

use crate::attacks::swaps;
use crate::ended::{Ended, PATIENCE};
use crate::power::{self, Change, Disk, Kind, State};
use crate::random::Random;
use crate::scenario::{Scenario, leftover, named};
use crate::suite::{Attack, Try};

/// Uses whose every prefix is replayed: saves, the end of a run, a merge, packing, and a swap in a
/// run.
const USES: [&str; 6] = ["nf4-lora", "full", "fsdp", "merge", "quantize", "swap"];

/// States of one prefix that a real run resumes from; the others are verified here.
const RESUMED: usize = 4;

/// A checked state: its record, what of it was old and new, and the hash of its files.
type Seen = (usize, [u8; 2], [u8; 32]);

/// Every prefix of every record.
pub struct PowerCuts {
    records: Vec<Recorded>,
    /// Record and number of changes made.
    cases: Vec<(usize, usize)>,
    /// States that were compared with their record.
    seen: Mutex<BTreeSet<Seen>>,
}

/// One use and all its changes.
pub struct Recorded {
    name: &'static str,
    of: Scenario,
    changes: Vec<Change>,
}

impl Recorded {
    /// Makes a use while its changes are recorded; `plant` names a bug planted into it.
    ///
    /// # Panics
    /// If it fails.
    pub fn new(name: &'static str, plant: &str) -> Self {
        let swaps = name == "swap";
        let of = if swaps {
            swaps::scenario()
        } else {
            Scenario::new(named(name))
        };
        // Alone in its folder, whose sync is recorded too.
        let folder = of.path("recorded");
        fs::create_dir(&folder).expect("created");
        let record = of.path("record");
        let watch = |command: &mut Command| {
            command
                .env("FAULT_PREFIX", &folder)
                .env("FAULT_RECORD", &record);
            command.env("FAULT_PLANT", plant);
        };
        let mut command = of.faulty("recorded/out", "", 0, "eio");
        watch(&mut command);
        if swaps {
            swaps::asked_of(&of, command, "recorded/out", watch).as_success(name)
        } else {
            Ended::of(&mut command, PATIENCE).as_success(name)
        }
        let changes = power::read(&fs::read(record).expect("a record"), &folder);
        Recorded { name, of, changes }
    }

    /// Number of changes.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Number of changes up to the first that creates `path`, or renames a created file to it.
    ///
    /// # Panics
    /// If none does.
    pub fn behind(&self, path: &str) -> usize {
        let makes = |change: &Change| match change.kind {
            Kind::MakeDirectory => change.path.ends_with(path),
            Kind::Rename => change.to.ends_with(path),
            _ => false,
        };
        1 + self
            .changes
            .iter()
            .position(makes)
            .expect("a change that makes it")
    }

    /// Possible states of the disk after `count` changes, and the name of the case.
    fn states(&self, count: usize, random: &mut Random) -> (Vec<State>, String) {
        let mut disk = Disk::default();
        self.changes[..count]
            .iter()
            .for_each(|change| disk.make(change));
        let behind = count.checked_sub(1).map(|last| &self.changes[last]);
        let behind = behind.map(|change| format!("{:?} {}", change.kind, change.path.display()));
        let case = format!(
            "{}: power cut behind change {count}, {}",
            self.name,
            behind.unwrap_or_default()
        );
        (disk.after_a_cut(|end| random.below(end)), case)
    }

    /// The step whose checkpoint must exist after `count` changes: the last before the one that is
    /// being saved.
    fn promised(&self, count: usize) -> Option<u64> {
        let is_started = |change: &&Change| change.kind == Kind::MakeDirectory;
        let started = self.changes[..count].iter().filter(is_started);
        let step = |change: &Change| {
            let name = change.path.file_name()?.to_str()?;
            name.strip_prefix("step-")?
                .strip_suffix(".partial")?
                .parse::<u64>()
                .ok()
        };
        let mut steps: Vec<u64> = started.filter_map(step).collect();
        if count < self.changes.len() {
            steps.pop();
        }
        steps.last().copied()
    }

    /// Checks that each state after `count` changes is old or new; `is_new` returns whether it was
    /// not checked before.
    ///
    /// # Panics
    /// If one is neither.
    pub fn check(
        &self,
        count: usize,
        random: &mut Random,
        is_new: impl Fn(&State, [u8; 2]) -> bool,
    ) {
        // A state checked with weaker requirements is checked again with stronger ones.
        let ended = u8::from(count == self.changes.len());
        let wanted = [self.promised(count).unwrap_or(0) as u8, ended];
        let (states, case) = self.states(count, random);
        let folder = format!("cut-{count}");
        let out = format!("{folder}/out");
        let states = random.shuffled(states.into_iter().enumerate().collect());
        for (order, (number, state)) in states.into_iter().enumerate() {
            // Always the first of them, so that a repeated try does the same.
            let resumed = order < RESUMED;
            if !is_new(&state, wanted) && !resumed {
                continue;
            }
            let case = format!("{case}, state {number}");
            power::put(&state, &self.of.path(&folder));
            self.verify(&out, count, &case);
            if resumed {
                self.of.recovers_in_place(&out, &case);
            }
            fs::remove_dir_all(self.of.path(&folder)).expect("removed");
        }
    }

    /// Expects the newest checkpoint to be whole and as new as promised, and outputs written as one
    /// piece to be complete or absent.
    fn verify(&self, out: &str, count: usize, case: &str) {
        let path = self.of.path(out);
        let ended = count == self.changes.len();
        if self.of.resumes() {
            let newest = Checkpoints::of(&path).choose(ResumeFrom::Newest);
            let newest = newest.unwrap_or_else(|error| panic!("{case}: {error}"));
            let step = newest.map(|checkpoint| checkpoint.manifest.progress.step);
            let promised = self.promised(count);
            assert!(
                step >= promised,
                "{case}: the newest is {step:?}, promised was {promised:?}"
            );
        }
        for name in ["", "adapter", "model"] {
            let made = path.join(name);
            let is_one_piece = !self.of.resumes() || !name.is_empty();
            if is_one_piece && made.exists() {
                let below = if name.is_empty() {
                    String::new()
                } else {
                    format!("{name}/")
                };
                let found = leftover(&made);
                let whole = self
                    .of
                    .whole
                    .iter()
                    .filter_map(|(path, bytes)| Some((path.strip_prefix(&below)?, bytes)));
                let mut count = 0;
                for (path, bytes) in whole {
                    count += 1;
                    assert!(
                        found.get(path) == Some(bytes),
                        "{case}: {below}{path} is there in part"
                    );
                }
                assert_eq!(found.len(), count, "{case}: files in {below}");
            }
        }
        let exported = self
            .of
            .whole
            .keys()
            .find(|path| path.contains("model.safetensors"));
        let exported = exported.expect("something is exported");
        assert!(
            !ended || path.join(exported).exists(),
            "{case}: it had ended, and {exported} is not there"
        );
    }
}

impl PowerCuts {
    /// Records every use once.
    pub fn prepare(seed: u64) -> Result<Box<dyn Attack>, String> {
        let records: Vec<Recorded> = USES.iter().map(|&name| Recorded::new(name, "")).collect();
        let mut cases = Vec::new();
        for (index, record) in records.iter().enumerate() {
            cases.extend((0..=record.len()).map(|count| (index, count)));
        }
        let cases = Random::of(seed, "power-cuts", 0).shuffled(cases);
        Ok(Box::new(PowerCuts {
            records,
            cases,
            seen: Mutex::default(),
        }))
    }
}

impl Attack for PowerCuts {
    fn tries(&self) -> Option<u64> {
        Some(self.cases.len() as u64)
    }

    fn attempt(&self, a_try: &Try) {
        let place = |(record, count): (usize, usize)| (1 + count * USES.len() + record) as u64;
        let at = a_try
            .at
            .unwrap_or_else(|| place(self.cases[a_try.number as usize]));
        a_try.happened.store(at, Ordering::Relaxed);
        let (record, count) = (
            (at as usize - 1) % USES.len(),
            (at as usize - 1) / USES.len(),
        );
        let is_new = |state: &State, wanted: [u8; 2]| {
            let key = (record, wanted, power::digest(state));
            self.seen.lock().expect("nothing panics there").insert(key)
        };
        self.records[record].check(count, &mut a_try.random.clone(), is_new);
    }
}
