//! Swaps of plugins between two steps: requested ones, and recorded ones that a resumed run
//! repeats.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use espalier_engine::measure::{self, Cause};
use espalier_engine::observer::{Event, Observer};
use espalier_interface::{Device, Role};
use espalier_plan::plan;
use espalier_registry::PluginIdentity;
use espalier_system::failure::UsageError;
use espalier_system::files::{self, WeightsError};

use super::runner::Runner;
use crate::Error;
use crate::export::EXPORTED;
use crate::swap::{Attempt, Mailbox, Outcome, Stage, Swap, SwapAnswer, SwapRecord, SwapRequest};

/// Time between two progress reports of a swap.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);

/// A line of `metrics.jsonl`.
#[derive(serde::Serialize)]
struct Line<'a> {
    step: u64,
    swap: &'a SwapRecord,
}

/// Reports the progress of loading to the sender of the request.
struct LoadingReporter<'a> {
    observer: &'a dyn Observer,
    report: &'a (dyn Fn(Stage) + Sync),
    last: Mutex<Instant>,
}

impl Runner<'_> {
    /// Makes the swaps that are due before the next step. A stop request has precedence: no further
    /// swap is started.
    ///
    /// # Errors
    /// A recorded swap that cannot be repeated; a failure to write the record.
    pub(super) fn swap_if_due(&mut self, total: u64) -> Result<(), Error> {
        let step = self.progress.step;
        if step >= total {
            return Ok(());
        }
        let due = |swap: &&Swap| swap.record.step <= step;
        while let Some(swap) = self.later_swaps.front().filter(due).cloned() {
            if !self.repeat(&swap)? {
                return Ok(());
            }
        }
        while self.stop.requested().is_none() {
            match self.mailbox.next(step + 1) {
                None => break,
                Some((number, Ok(request))) => self.serve(number, &request)?,
                Some((number, Err(error))) => {
                    let record = SwapRecord {
                        step,
                        ..SwapRecord::default()
                    };
                    self.refuse(number, record, &error)?;
                }
            }
        }
        Ok(())
    }

    /// Answers the pending requests: the run has ended.
    pub(super) fn answer_pending(&self) {
        let step = self.progress.step;
        for number in self.mailbox.waiting() {
            let error = Error::Usage(UsageError {
                message: format!("the run ended after step {step}, before it came to this"),
                next_step: "start another run, or continue this one (--resume) and ask again"
                    .to_owned(),
            });
            let record = SwapRecord {
                step,
                ..SwapRecord::default()
            };
            self.respond(number, &SwapAnswer::refused(record, &error));
        }
    }

    /// Writes `run.json` with completed swaps, swaps still to be repeated, and exported files.
    pub(super) fn put_on_record(&mut self) -> Result<(), Error> {
        self.run["swaps"] = self.swaps.to_json();
        let mut run = self.run.clone();
        let mut all = self.swaps.clone();
        all.0.extend(self.later_swaps.iter().cloned());
        run["swaps"] = all.to_json();
        run[EXPORTED] = serde_json::to_value(&self.exported).expect("hashes are plain data");
        Ok(files::write_json(&self.run_json, &run)?)
    }

    /// Repeats the first of the recorded swaps; false if a stop request came first.
    fn repeat(&mut self, swap: &Swap) -> Result<bool, Error> {
        let expected = swap.record.to.as_ref();
        let (record, made) = self.attempt(&swap.request, expected, &|_| {})?;
        match made {
            Err(_) if self.stop.requested().is_some() => return Ok(false),
            other => other?,
        }
        if self.live.plan_sha256() != swap.plan_sha256 {
            return Err(Error::Weights(WeightsError {
                path: self.run_json.clone(),
                message: format!(
                    "the swap of {} on record led to another plan",
                    swap.record.shown()
                ),
            }));
        }
        self.later_swaps.pop_front();
        self.taken(&swap.request, record)?;
        Ok(true)
    }

    /// Fulfils request `number`, or answers with the reason of the refusal.
    fn serve(&mut self, number: u64, request: &SwapRequest) -> Result<(), Error> {
        let asked = request.assignment();
        self.note(&format!("swap {asked}, asked by {}", request.asked_by));
        let mailbox: Mailbox = self.mailbox.clone();
        // The sender waits for the answer, not for progress reports.
        let report = move |stage: Stage| drop(mailbox.report(number, &stage));
        let (record, made) = self.attempt(request, None, &report)?;
        match made {
            Ok(()) => {
                let record = self.taken(request, record)?;
                self.respond(number, &SwapAnswer::taken(record));
                Ok(())
            }
            Err(_) if self.stop.requested().is_some() => Ok(()),
            Err(error) => self.refuse(number, record, &error),
        }
    }

    /// Tries a swap. The outer error ends the run.
    fn attempt(
        &mut self,
        request: &SwapRequest,
        expected: Option<&PluginIdentity>,
        report: &(dyn Fn(Stage) + Sync),
    ) -> Result<(SwapRecord, Result<(), Error>), Error> {
        let step = self.progress.step;
        let mut record = SwapRecord {
            step,
            outcome: Outcome::Taken,
            asked: request.assignment(),
            changed: request.set.clone(),
            ..SwapRecord::default()
        };
        let next = self.data.train.step(step)?;
        let reporter = LoadingReporter {
            observer: self.observer,
            report,
            last: Mutex::new(Instant::now()),
        };
        let attempt = Attempt {
            request,
            at: [step, self.config.run.seed],
            next: &next,
            expected,
            observer: &reporter,
            progress: report,
        };
        let made = self.live.swap(&attempt, &mut record);
        Ok((record, made))
    }

    /// Records a completed swap.
    fn taken(&mut self, request: &SwapRequest, record: SwapRecord) -> Result<SwapRecord, Error> {
        if request.role == Role::BACKEND.0 {
            let ranks = self.live.team.executors().iter();
            let devices: Vec<_> = ranks.map(|rank| rank.device().0).collect();
            let devices: Vec<&dyn Device> = devices.iter().map(AsRef::as_ref).collect();
            let compute = plan::dtypes(&self.config).compute;
            let rate = measure::gemm_rate_of_all(&devices, compute)?;
            self.peaks.push(record.step + 1, rate, Cause::Swap);
            self.run["machine"]["peak_rates"] =
                serde_json::to_value(&self.peaks).expect("rates are plain data");
        }
        self.note(&format!("swapped {}", record.shown()));
        self.line(&record)?;
        self.swaps.0.push(self.live.on_record(request, &record));
        self.forget_best();
        self.put_on_record()?;
        Ok(record)
    }

    fn refuse(&mut self, number: u64, record: SwapRecord, error: &Error) -> Result<(), Error> {
        let answer = SwapAnswer::refused(record, error);
        self.note(&answer.record.shown());
        self.line(&answer.record)?;
        self.respond(number, &answer);
        Ok(())
    }

    fn line(&mut self, record: &SwapRecord) -> Result<(), Error> {
        self.metrics.append(&Line {
            step: record.step,
            swap: record,
        })
    }

    fn respond(&self, number: u64, answer: &SwapAnswer) {
        if let Err(error) = self.mailbox.respond(number, answer) {
            self.note(&format!(
                "request {number} stays without an answer: {error}"
            ));
        }
    }

    fn note(&self, text: &str) {
        self.observer.observe(&Event::Note(text));
    }
}

impl Observer for LoadingReporter<'_> {
    fn observe(&self, event: &Event<'_>) {
        if let Event::LoadProgress { done, total, .. } = *event {
            let mut last = match self.last.lock() {
                Ok(last) => last,
                Err(poisoned) => poisoned.into_inner(),
            };
            if last.elapsed() >= REPORT_INTERVAL {
                (self.report)(Stage::Loading { done, total });
                *last = Instant::now();
            }
        }
        self.observer.observe(event);
    }
}
