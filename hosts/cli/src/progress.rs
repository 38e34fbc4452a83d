//! Shows a run on standard error, with bars on a terminal and in plain lines otherwise. Writes the
//! lines to its log.

mod download;
mod pace;
mod text;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use espalier_engine::observer::{EvalMetrics, Event, Observer, PlanSummary, StepMetrics};
use espalier_system::number::duration;
use espalier_trainer::bytes::Bytes;
use indicatif::{ProgressBar, ProgressStyle};

use crate::display;

pub use download::DownloadProgress;
use pace::{LinePace, Pace};

/// The bar of the steps, with the numbers in a line below; both are cut to the terminal's width.
const STEPS: &str =
    "{spinner:.green} step {pos}/{len}  {wide_bar:.green/dim}  {prefix}\n  {wide_msg}";
/// The bar of work before and between the steps.
const WORK: &str = "{spinner:.green} {prefix}  {wide_bar:.green/dim}  {msg}";
/// Time between two turns of a bar's spinner, which shows that a long step is running.
const TURN: Duration = Duration::from_millis(200);

/// Prints the events of a run.
pub struct Progress {
    sink: Sink,
    /// Prefix of its lines, where it is one of several runs.
    name: Option<String>,
    begin: Instant,
    state: Mutex<State>,
}

/// Where events are printed.
enum Sink {
    /// On standard error, with bars.
    Bars,
    /// On standard error, in lines.
    Lines,
    /// In the output directory's log, which is opened at the start of a run.
    Log,
}

#[derive(Default)]
struct State {
    /// The bar of the steps, where bars are drawn.
    steps: Option<ProgressBar>,
    /// Reading, loading or evaluating.
    work: Option<Work>,
    /// The work that ended last, with its total: its end may be reported twice.
    ended: Option<(&'static str, u64)>,
    total_steps: u64,
    planned: Bytes,
    held_out: Option<f64>,
    pace: Pace,
    lines: LinePace,
}

/// Work with a total.
struct Work {
    name: &'static str,
    begin: Instant,
    /// Where bars are drawn.
    bar: Option<ProgressBar>,
    lines: LinePace,
}

impl Progress {
    /// Shows on standard error.
    pub fn shown() -> Self {
        Progress::with_sink(if display::draws() {
            Sink::Bars
        } else {
            Sink::Lines
        })
    }

    /// Writes to the output directory's log.
    pub fn kept() -> Self {
        Progress::with_sink(Sink::Log)
    }

    /// The same, of the run called `name` of several.
    pub fn of(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    fn with_sink(sink: Sink) -> Self {
        Progress {
            sink,
            name: None,
            begin: Instant::now(),
            state: Mutex::default(),
        }
    }

    fn line(&self, text: &str) {
        let text = self.with_name(text);
        match &self.sink {
            Sink::Bars | Sink::Lines => display::show(&text),
            Sink::Log => display::keep(&text),
        }
    }

    fn draws(&self) -> bool {
        matches!(self.sink, Sink::Bars)
    }

    fn with_name(&self, text: &str) -> String {
        match &self.name {
            Some(name) => format!("{name}: {text}"),
            None => text.to_owned(),
        }
    }

    /// A bar of `length` below those that are shown; none without a terminal.
    fn bar(&self, template: &str, length: u64) -> Option<ProgressBar> {
        let style = ProgressStyle::with_template(template).expect("a fixed template");
        self.draws().then(|| {
            let bar = display::add(ProgressBar::new(length));
            bar.set_style(style.progress_chars("━╸─"));
            bar.enable_steady_tick(TURN);
            bar
        })
    }

    /// `done` of `total` of the work `name`; `text` formats it, given the seconds it has taken.
    fn work(
        &self,
        state: &mut State,
        name: &'static str,
        [done, total]: [u64; 2],
        text: impl Fn(f64) -> String,
    ) {
        if state.work.is_none() && done >= total && state.ended == Some((name, total)) {
            return;
        }
        if state.work.as_ref().is_none_or(|work| work.name != name) {
            self.end_work(state);
            state.work = Some(Work {
                name,
                begin: Instant::now(),
                bar: self.bar(WORK, total),
                lines: LinePace::default(),
            });
        }
        let Some(work) = &mut state.work else { return };
        let text = text(work.begin.elapsed().as_secs_f64());
        match &work.bar {
            Some(bar) => {
                bar.set_prefix(self.with_name(name));
                bar.set_position(done);
                bar.set_message(text);
            }
            // Short work gets one line: its last.
            None => {
                let now = work.begin.elapsed();
                let long = now >= Duration::from_secs(1);
                if done >= total || (long && work.lines.due(now, done, total)) {
                    self.line(&format!("{name} {text}"));
                }
            }
        }
        if done >= total {
            self.end_work(state);
            state.ended = Some((name, total));
        }
    }

    fn end_work(&self, state: &mut State) {
        if let Some(bar) = state.work.take().and_then(|work| work.bar) {
            bar.finish_and_clear();
        }
    }

    fn started(&self, state: &mut State, plan: &PlanSummary) {
        if let Sink::Log = self.sink {
            display::open_log();
        }
        self.end_work(state);
        state.total_steps = plan.total_steps;
        state.planned = match plan.peak_device_bytes {
            Bytes(0) => plan.peak_host_bytes,
            device => device,
        };
        self.line(&text::plan(plan));
    }

    fn step(&self, state: &mut State, step: &StepMetrics) {
        self.end_work(state);
        state.pace.take(step);
        let total = state.total_steps;
        let left = state.pace.secs(total.saturating_sub(step.step));
        if state.steps.is_none() {
            state.steps = self.bar(STEPS, total);
        }
        let loss = state.pace.loss();
        let last = step.step >= total;
        if let Some(bar) = &state.steps {
            let percent = 100 * step.step / total.max(1);
            bar.set_prefix(self.with_name(&format!("{percent} %  {} left", duration(left))));
            bar.set_position(step.step);
            bar.set_message(text::step_beside_bar(
                step,
                loss,
                state.held_out,
                state.planned,
            ));
        }
        let shown = state.steps.is_some();
        let due = !shown && state.lines.due(self.begin.elapsed(), step.step, total);
        if last {
            self.end_steps(state);
        }
        if due || last {
            self.line(&text::step(step, total, loss, left));
        }
    }

    fn end_steps(&self, state: &mut State) {
        if let Some(bar) = state.steps.take() {
            bar.finish_and_clear();
        }
    }

    fn evaluated(&self, state: &mut State, eval: &EvalMetrics) {
        self.end_work(state);
        state.held_out = Some(eval.eval_loss);
        self.line(&text::eval(eval));
    }
}

impl Observer for Progress {
    fn observe(&self, event: &Event<'_>) {
        let mut state = match self.state.lock() {
            Ok(state) => state,
            Err(poisoned) => poisoned.into_inner(),
        };
        let state = &mut *state;
        match *event {
            Event::RunStarted(plan) => self.started(state, plan),
            Event::ReadProgress {
                rows,
                bytes,
                total_bytes,
            } => self.work(state, "reading", [bytes, total_bytes], |secs| {
                let rate = text::rate(bytes, secs);
                format!(
                    "{rows} rows  {} of {}{rate}",
                    Bytes(bytes),
                    Bytes(total_bytes)
                )
            }),
            Event::LoadProgress {
                done,
                total,
                bytes,
                total_bytes,
                ..
            } => self.work(state, "loading", [done, total], |secs| {
                let rate = text::rate(bytes, secs);
                let (bytes, total_bytes) = (Bytes(bytes), Bytes(total_bytes));
                format!("{done}/{total} weights  {bytes} of {total_bytes}{rate}")
            }),
            Event::CalibrationProgress { unit, done, total } => {
                self.work(state, "calibrating", [done, total], |secs| {
                    let left = match done {
                        0 => String::new(),
                        _ => format!(
                            "  {} left",
                            duration(secs / done as f64 * (total - done) as f64)
                        ),
                    };
                    format!("{done}/{total} units  {unit}{left}")
                });
            }
            Event::StepFinished(step) => self.step(state, step),
            Event::WriteProgress { done, total, .. } => {
                self.work(state, "writing", [done, total], |_| {
                    format!("{done}/{total} tensors")
                });
            }
            Event::EvalProgress { done, total } if self.draws() => {
                self.work(state, "evaluating", [done, total], |_| {
                    format!("{done}/{total}")
                });
            }
            Event::AnswerProgress { done, total } if self.draws() => {
                self.work(state, "answering", [done, total], |_| {
                    format!("{done}/{total}")
                });
            }
            Event::OptionMeasured {
                site,
                option,
                done,
                total,
            } => self.work(state, "measuring", [done, total], |secs| {
                let left = secs / done.max(1) as f64 * total.saturating_sub(done) as f64;
                let left = duration(left);
                format!("{done}/{total}  {option} on {site}  {left} left")
            }),
            Event::Evaluated(eval) => self.evaluated(state, eval),
            Event::Saved(path) => self.line(&format!("saved {}", path.display())),
            Event::Note(text) => self.line(&format!("note: {text}")),
            Event::Warning(text) => self.line(&format!("warning: {text}")),
            _ => {}
        }
    }
}

/// Shows only the warnings of a run.
pub struct Warnings;

impl Observer for Warnings {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Warning(text) = event {
            display::show(&format!("warning: {text}"));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        let state = match self.state.get_mut() {
            Ok(state) => state,
            Err(poisoned) => poisoned.into_inner(),
        };
        let work = state.work.take().and_then(|work| work.bar);
        for bar in work.into_iter().chain(state.steps.take()) {
            bar.finish_and_clear();
        }
    }
}
