//! A pool of processes that render the conversations of several threads, each bounded in memory and
//! time.
//!
//! Only the system can bound memory reliably: minijinja checks nothing before it doubles a text. So
//! the program starts itself once more for an untrusted template, and keeps that process for all
//! rows.

use std::ffi::OsString;
use std::sync::{Mutex, PoisonError};

use super::bounds::{self, Bound, Line, Met, SECS, STEPS};
use super::exchange::{Limits, Opened, Opening, Request, Response};
use super::locate::{self, Attempt};
use super::rendering::{Answer, Conversation, Fault, Job};
use super::worker::Worker;

/// Processor time of a rendering that searches for the slow line.
const ATTEMPT_MILLIS: u64 = 300;

/// The processes of one template.
pub(super) struct Workers {
    program: OsString,
    opening: Opening,
    /// Idle processes.
    idle: Mutex<Vec<Worker>>,
}

impl Workers {
    /// Starts the first process, which compiles the template.
    pub fn open(program: OsString, opening: Opening) -> Result<Self, Fault> {
        let workers = Workers {
            program,
            opening,
            idle: Mutex::new(Vec::new()),
        };
        let first = workers.start()?;
        workers.put_back(first);
        Ok(workers)
    }

    /// The answers to `jobs` for `conversation`.
    pub fn answers(&self, conversation: &Conversation, jobs: &[Job]) -> Result<Vec<Answer>, Fault> {
        let bytes = conversation.bytes;
        let limits = Limits {
            steps: STEPS,
            millis: SECS * 1000,
            memory_bytes: bounds::memory_bytes(bytes),
            text_bytes: bounds::text_bytes(bytes),
        };
        let request = |jobs, limits| Request {
            conversation,
            jobs,
            limits,
        };
        let mut met = match self.ask(&request(jobs, limits))? {
            Err(Fault::Met(met)) => met,
            answered => return answered,
        };
        if met.line.is_none() && self.opening.source.trim_end().lines().count() <= 1 {
            met.line = Some(Line::At(1));
        }
        let limits = |steps| Limits {
            steps,
            millis: match met.bound {
                Bound::Time => ATTEMPT_MILLIS,
                _ => limits.millis,
            },
            ..limits
        };
        let line_of = |job| {
            locate::line(|steps| {
                match self.ask(&request(std::slice::from_ref(job), limits(steps))) {
                    Ok(Err(Fault::Met(Met {
                        bound: Bound::Steps,
                        line,
                    }))) => Attempt::Stopped(line),
                    Ok(Err(Fault::Met(_))) | Err(_) => Attempt::Met,
                    Ok(Ok(_) | Err(Fault::Raised(_))) => Attempt::Finished,
                }
            })
        };
        let line = met.line.or_else(|| jobs.iter().find_map(line_of));
        Err(Fault::Met(Met { line, ..met }))
    }

    /// Asks an idle process or a new one. The outer error is a failed start.
    fn ask(&self, request: &Request<'_>) -> Result<Response, Fault> {
        let free = self.idle().pop();
        let mut was_idle = free.is_some();
        let mut worker = free.map_or_else(|| self.start(), Ok)?;
        loop {
            match worker.ask(request, request.limits.memory_bytes) {
                Ok(response) => {
                    self.put_back(worker);
                    return Ok(response);
                }
                // It may have been killed while it was idle.
                Err(Bound::Ended { .. }) if was_idle => {
                    was_idle = false;
                    worker = self.start()?;
                }
                Err(bound) => return Ok(Err(Fault::Met(Met { bound, line: None }))),
            }
        }
    }

    fn start(&self) -> Result<Worker, Fault> {
        let unstarted = |error| format!("the process that renders it cannot be started: {error}");
        let mut worker = Worker::start(&self.program).map_err(unstarted)?;
        let opened: Result<Opened, Bound> = worker.ask(&self.opening, bounds::memory_bytes(0));
        opened.map_err(|bound| Fault::Met(Met { bound, line: None }))??;
        Ok(worker)
    }

    fn put_back(&self, worker: Worker) {
        self.idle().push(worker);
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Worker>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
