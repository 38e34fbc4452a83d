//! An attack of the suite: how its references are made, and each try of it.

use std::sync::atomic::AtomicU64;

use crate::random::Random;

/// One try of an attack: all that happens in it follows from it.
pub struct Try {
    /// Its number, from 0.
    pub number: u64,
    /// Its draws.
    pub random: Random,
    /// Where it is to happen: what another try of that number said.
    pub at: Option<u64>,
    /// Where it happened, as a number that says so whenever the try is repeated; 0 where its draws
    /// say all.
    pub happened: AtomicU64,
}

impl Try {
    /// Try `number` of the attack `name` under `seed`.
    pub fn of(seed: u64, name: &str, number: u64, at: Option<u64>) -> Self {
        let happened = AtomicU64::new(0);
        Try {
            number,
            random: Random::of(seed, name, number),
            at,
            happened,
        }
    }

    /// A name that no other try has.
    pub fn name(&self) -> String {
        format!("try-{}", self.number)
    }
}

/// What an attack is made of once its references are there.
pub trait Attack: Sync {
    /// How many tries there are; none where there is no end of them.
    fn tries(&self) -> Option<u64> {
        None
    }

    /// Makes one. A panic is a failure and says what was wrong.
    fn attempt(&self, a_try: &Try);
}

/// An attack of the suite.
pub struct Entry {
    /// What `--only` calls it.
    pub name: &'static str,
    /// How many tries an hour of the suite makes.
    pub an_hour: u64,
    /// How many are made at once.
    pub at_once: usize,
    /// Whether the time that is left behind all attacks is spent on more of its tries.
    pub fills: bool,
    /// Makes its references under a seed; an error says why it is left out.
    pub prepare: Prepare,
}

/// Makes an attack's references under a seed; an error says why it is left out.
pub type Prepare = fn(u64) -> Result<Box<dyn Attack>, String>;

impl Entry {
    /// An attack of which two tries are made at once.
    pub const fn new(name: &'static str, an_hour: u64, prepare: Prepare) -> Self {
        Entry {
            name,
            an_hour,
            at_once: 2,
            fills: false,
            prepare,
        }
    }

    /// An attack whose tries disturb each other.
    pub const fn alone(name: &'static str, an_hour: u64, prepare: Prepare) -> Self {
        let at_once = 1;
        Entry {
            at_once,
            ..Entry::new(name, an_hour, prepare)
        }
    }

    /// An attack that also takes the time that is left behind all others.
    pub const fn filling(name: &'static str, an_hour: u64, prepare: Prepare) -> Self {
        let fills = true;
        Entry {
            fills,
            ..Entry::new(name, an_hour, prepare)
        }
    }
}
