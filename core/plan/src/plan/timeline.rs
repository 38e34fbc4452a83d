//! A schedule laid out, a rank's speeds and its work -> when each action of a step begins and ends: the step's time.

use espalier_interface::schedule::{Act, When};
use serde::Serialize;

use super::moved::{Moved, Mover};
use super::{Flops, Speeds, Traffic, Work};
use crate::step_plan::{Lane, StepPlan, Task};

/// What a step's time is made of, on the rank that has most to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StepTime {
    /// From the first action to the end of the update.
    pub secs: f64,
    /// Of it, matrix products at work.
    pub compute_secs: f64,
    /// Of it, everything else that kernels do: bytes that they read and write, weights that are decoded, the update. 0 where
    /// the rate of products is that of whole steps.
    pub other_secs: f64,
    /// Bytes on their way.
    pub moving_secs: f64,
    /// Of it, beside kernels at work.
    pub hidden_secs: f64,
    /// Trained and untrained tokens of all ranks a second.
    pub tokens_per_sec: f64,
    /// What the rank moves in the step.
    pub moved: Moved,
}

/// What a step's time follows from.
pub struct Timeline<'a> {
    /// What actions move.
    pub mover: Mover,
    /// The order of a step.
    pub step_plan: &'a StepPlan,
    /// Operations of each unit's forward and backward action.
    pub flops: Vec<[Flops; 2]>,
    /// Bytes that their kernels read and write.
    pub traffic: Vec<[Traffic; 2]>,
    /// Bytes that squares of gradients and an update read and write, for each unit.
    pub updates: Vec<[u64; 2]>,
    /// How fast.
    pub speeds: Speeds,
    /// How much.
    pub work: Work,
}

/// When both lanes are free, and what was done so far.
#[derive(Clone, Copy, Default)]
struct Clock {
    lanes: [f64; 2],
    time: StepTime,
}

impl Clock {
    /// Both lanes wait for the later one.
    fn join(&mut self) {
        self.lanes = [self.end(); 2];
    }

    fn end(&self) -> f64 {
        self.lanes[0].max(self.lanes[1])
    }

    /// The time after `others` more rounds like the one from `before` to here.
    fn repeated(&self, before: &Clock, others: u64) -> Clock {
        let times = others as f64;
        let grown = |now: f64, then: f64| now + times * (now - then);
        let moved = self.time.moved + self.time.moved.since(before.time.moved) * others;
        Clock {
            lanes: [grown(self.end(), before.end()); 2],
            time: StepTime {
                compute_secs: grown(self.time.compute_secs, before.time.compute_secs),
                other_secs: grown(self.time.other_secs, before.time.other_secs),
                moving_secs: grown(self.time.moving_secs, before.time.moving_secs),
                moved,
                ..self.time
            },
        }
    }
}

impl Timeline<'_> {
    /// The time of a step. What a lane does follows each other; a task begins when what it waits for is done.
    pub fn step(&self) -> StepTime {
        let tasks = &self.step_plan.micro_batch;
        let rounds = self.work.micro_batches.max(1);
        let mut clock = Clock::default();
        let round = |clock: Clock, first: bool, last: bool| {
            self.run(clock, tasks, |when| match when {
                When::Every => true,
                When::First => first,
                When::Last => last,
            })
        };
        clock = round(clock, true, rounds == 1);
        if rounds > 2 {
            let before = clock;
            clock = round(clock, false, false).repeated(&before, rounds - 3);
        }
        if rounds > 1 {
            clock = round(clock, false, true);
        }
        clock = self.run(clock, &self.step_plan.update, |_| true);
        let mut time = clock.time;
        time.secs = clock.end();
        let busy = time.compute_secs + time.other_secs + time.moving_secs;
        time.hidden_secs = (busy - time.secs).max(0.0);
        time.tokens_per_sec = if time.secs > 0.0 {
            self.work.step_tokens as f64 / time.secs
        } else {
            0.0
        };
        time
    }

    fn run(&self, mut clock: Clock, tasks: &[Task], takes_place: impl Fn(When) -> bool) -> Clock {
        let mut done = Vec::with_capacity(tasks.len());
        for task in tasks {
            let lane = match task.lane {
                Lane::Compute => 0,
                Lane::Move => 1,
            };
            let waited = task.waits.map_or(0.0, |other| done[other]);
            let mut end = clock.lanes[lane].max(waited);
            if takes_place(task.action.when) {
                let computing = self.compute_secs(task);
                let other = self.other_secs(task);
                let moved = self.mover.moved(&task.action);
                let moving = self.moving_secs(moved);
                clock.time.compute_secs += computing;
                clock.time.other_secs += other;
                clock.time.moving_secs += moving;
                clock.time.moved += moved;
                end += computing + other + moving;
                clock.lanes[lane] = end;
            }
            done.push(end);
        }
        clock.join();
        clock
    }

    fn compute_secs(&self, task: &Task) -> f64 {
        let pass = match task.action.act {
            Act::Forward => 0,
            Act::Backward => 1,
            _ => return 0.0,
        };
        let flops = &self.flops[task.action.unit][pass];
        flops.times(self.work.tokens, self.work.pairs) / self.speeds.flops
    }

    fn other_secs(&self, task: &Task) -> f64 {
        let Some(memory) = self.speeds.memory else {
            return 0.0;
        };
        let unit = task.action.unit;
        let bytes = match task.action.act {
            Act::Forward => self.traffic[unit][0].of_tokens(self.work.tokens),
            Act::Backward => self.traffic[unit][1].of_tokens(self.work.tokens),
            Act::Norm => self.updates[unit][0] as f64,
            Act::Optimize => self.updates[unit][1] as f64,
            _ => 0.0,
        };
        bytes / memory
    }

    /// Directions of a link are taken one after the other: a lane does one thing at a time.
    fn moving_secs(&self, moved: Moved) -> f64 {
        let over_link = (moved.host_to_device + moved.device_to_host) as f64 / self.speeds.link;
        let between_ranks = moved.between_ranks as f64 / self.speeds.peers;
        let ranks = self.mover.ranks_per_machine() as f64;
        let between_machines = ranks * moved.between_machines as f64 / self.speeds.network;
        over_link + between_ranks + between_machines
    }
}
