//! A step plan, a rank's speeds and its work -> the begin and end of each action, and so the step's
//! time.

use espalier_interface::schedule::{Act, When};
use serde::Serialize;

use super::moved::{Moved, Mover};
use super::{Flops, Speeds, Traffic, Work};
use crate::step_plan::{StepPlan, Task};

/// The parts of a step's time, on the rank with the most work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StepTime {
    /// Seconds from the first action to the end of the update.
    pub secs: f64,
    /// Seconds of matrix products.
    pub compute_secs: f64,
    /// Seconds of everything else that kernels do: memory traffic, decoding of weights, the update.
    /// 0 where the rate of products is that of whole steps.
    pub other_secs: f64,
    /// Seconds in which bytes move.
    pub moving_secs: f64,
    /// Seconds of `moving_secs` in which kernels run, too.
    pub hidden_secs: f64,
    /// Tokens per second of all ranks, trained or not.
    pub tokens_per_sec: f64,
    /// Bytes that the rank moves in the step.
    pub moved: Moved,
}

/// Predicts the time of a step.
pub struct Timeline<'a> {
    /// Bytes that actions move.
    pub mover: Mover,
    /// The tasks of a step in order, those of a micro-batch for a whole sweep.
    pub step_plan: &'a StepPlan,
    /// Operations of each unit's forward and backward action.
    pub flops: Vec<[Flops; 2]>,
    /// Bytes that the kernels of each action read and write.
    pub traffic: Vec<[Traffic; 2]>,
    /// For each unit, bytes that the norm of its gradients and its update read and write.
    pub updates: Vec<[u64; 2]>,
    /// Speeds of the rank.
    pub speeds: Speeds,
    /// Work of the rank.
    pub work: Work,
}

/// The time at which each lane is free, and the sums so far.
#[derive(Clone)]
struct Clock {
    lanes: Vec<f64>,
    time: StepTime,
}

impl Clock {
    fn new(lanes: usize) -> Self {
        Clock {
            lanes: vec![0.0; lanes],
            time: StepTime::default(),
        }
    }

    /// Makes all lanes wait for the last one.
    fn join(&mut self) {
        let end = self.end();
        self.lanes.fill(end);
    }

    fn end(&self) -> f64 {
        self.lanes.iter().copied().fold(0.0, f64::max)
    }

    /// The state after `others` further rounds like the one from `before` to now.
    fn repeated(&self, before: &Clock, others: u64) -> Clock {
        let times = others as f64;
        let grown = |now: f64, then: f64| now + times * (now - then);
        let moved = self.time.moved + self.time.moved.since(before.time.moved) * others;
        Clock {
            lanes: vec![grown(self.end(), before.end()); self.lanes.len()],
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
    /// The time of a step. The tasks of a lane run one after the other; a task begins when the task
    /// that it waits for is done.
    pub fn step(&self) -> StepTime {
        let tasks = &self.step_plan.micro_batch;
        let rounds = self.sweeps();
        let mut clock = Clock::new(self.step_plan.lanes());
        // The round of a sweep, which is the first, the last, both or neither.
        let round = |clock: Clock, kinds: &[When]| {
            self.run(clock, tasks, |when| {
                when == When::Every || kinds.contains(&when)
            })
        };
        if rounds == 1 {
            clock = round(clock, &[When::First, When::Last]);
        } else {
            clock = round(clock, &[When::First]);
            if rounds > 2 {
                let before = clock.clone();
                clock = round(clock, &[]).repeated(&before, rounds - 3);
            }
            clock = round(clock, &[When::Last]);
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

    /// Sweeps of the step.
    fn sweeps(&self) -> u64 {
        self.work.micro_batches.max(1).div_ceil(self.mover.sweep())
    }

    /// Micro-batches of a sweep, on average.
    fn of_sweep(&self) -> f64 {
        self.work.micro_batches.max(1) as f64 / self.sweeps() as f64
    }

    fn run(&self, mut clock: Clock, tasks: &[Task], takes_place: impl Fn(When) -> bool) -> Clock {
        let mut done = Vec::with_capacity(tasks.len());
        for task in tasks {
            let lane = task.lane.0;
            let waited = task.waits.iter().map(|&other| done[other]);
            let mut end = waited.fold(clock.lanes[lane], f64::max);
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
        self.of_sweep() * self.work.micro_batch_flops(flops) / self.speeds.flops
    }

    fn other_secs(&self, task: &Task) -> f64 {
        let Some(rates) = &self.speeds.kernels else {
            return 0.0;
        };
        let unit = task.action.unit;
        let traffic = |pass: usize| {
            let of_one = self.traffic[unit][pass].secs(&self.work, rates);
            self.of_sweep() * of_one
        };
        match task.action.act {
            Act::Forward => traffic(0),
            Act::Backward => traffic(1),
            Act::Norm => self.updates[unit][0] as f64 / rates.elementwise,
            Act::Optimize => self.updates[unit][1] as f64 / rates.elementwise,
            _ => 0.0,
        }
    }

    /// Seconds of a move. Directions of a link are not overlapped: a lane does one thing at a time.
    fn moving_secs(&self, moved: Moved) -> f64 {
        let over_link = (moved.host_to_device + moved.device_to_host) as f64 / self.speeds.link;
        let between_ranks = moved.between_ranks as f64 / self.speeds.peers;
        let ranks = self.mover.ranks_per_machine() as f64;
        let between_machines = ranks * moved.between_machines as f64 / self.speeds.network;
        over_link + between_ranks + between_machines
    }
}
