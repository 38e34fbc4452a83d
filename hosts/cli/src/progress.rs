//! Shows a run on standard error: a bar on a terminal, plain lines otherwise.

use std::io::{self, IsTerminal};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use espalier_trainer::bytes::Bytes;
use espalier_trainer::observer::{EvalMetrics, Event, Observer, PlanSummary, StepMetrics};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// Least time between two plain lines about steps.
const LINE_EVERY: Duration = Duration::from_secs(1);
/// Weight of the newest step in the running mean of step times.
const NEWEST: f64 = 0.1;

/// Shows the events of a run.
pub struct Progress {
    bars: MultiProgress,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The bar that is shown, on a terminal.
    bar: Option<ProgressBar>,
    total_steps: u64,
    mean_step_secs: Option<f64>,
    last_line: Option<Instant>,
}

impl Progress {
    /// Shows on `bars` where standard error is a terminal, and in lines where it is not.
    pub fn new(bars: &MultiProgress) -> Self {
        Progress {
            bars: bars.clone(),
            state: Mutex::default(),
        }
    }

    fn line(&self, text: &str) {
        self.bars.suspend(|| eprintln!("{text}"));
    }

    /// Replaces the bar by one of `length`.
    fn start_bar(&self, state: &mut State, length: u64) {
        if let Some(bar) = state.bar.take() {
            bar.finish_and_clear();
        }
        if io::stderr().is_terminal() {
            let style = ProgressStyle::with_template("{bar:24} {msg}").expect("a fixed template");
            let bar = self.bars.add(ProgressBar::new(length));
            state.bar = Some(bar.with_style(style));
        }
    }

    fn loading(&self, state: &mut State, param: &str, done: u64, total: u64) {
        if done <= 1 || (state.bar.is_none() && io::stderr().is_terminal()) {
            self.start_bar(state, total);
        }
        match &state.bar {
            Some(bar) => {
                bar.set_position(done);
                bar.set_message(format!("loading {done}/{total}  {param}"));
            }
            None if done == total => self.line(&format!("loaded {total} weights")),
            None => {}
        }
    }

    /// Shows one of `total` steps of something that stands by itself.
    fn went_on(&self, state: &mut State, what: &str, done: u64, total: u64) {
        if done <= 1 {
            self.start_bar(state, total);
        }
        if let Some(bar) = &state.bar {
            bar.set_position(done);
            bar.set_message(format!("{what} {done}/{total}"));
            if done == total {
                bar.finish_and_clear();
            }
        }
    }

    fn step(&self, state: &mut State, step: &StepMetrics) {
        let mean = match state.mean_step_secs {
            Some(mean) => mean + NEWEST * (step.step_secs - mean),
            None => {
                self.start_bar(state, state.total_steps);
                step.step_secs
            }
        };
        state.mean_step_secs = Some(mean);
        let left = mean * state.total_steps.saturating_sub(step.step) as f64;
        let text = step_line(step, state.total_steps, left);
        match &state.bar {
            Some(bar) => {
                bar.set_position(step.step);
                bar.set_message(text);
                if step.step >= state.total_steps {
                    bar.abandon();
                }
            }
            None => {
                let due = state
                    .last_line
                    .is_none_or(|last| last.elapsed() >= LINE_EVERY);
                if due || step.step >= state.total_steps {
                    state.last_line = Some(Instant::now());
                    self.line(&text);
                }
            }
        }
    }
}

impl Observer for Progress {
    fn observe(&self, event: &Event<'_>) {
        let mut state = match self.state.lock() {
            Ok(state) => state,
            Err(poisoned) => poisoned.into_inner(),
        };
        match event {
            Event::RunStarted(plan) => {
                state.total_steps = plan.total_steps;
                self.line(&plan_lines(plan));
            }
            Event::LoadProgress { param, done, total } => {
                self.loading(&mut state, param, *done, *total);
            }
            Event::StepFinished(step) => self.step(&mut state, step),
            Event::EvalProgress { done, total } => {
                self.went_on(&mut state, "evaluating", *done, *total);
            }
            Event::WriteProgress { done, total, .. } => {
                self.went_on(&mut state, "writing", *done, *total);
            }
            Event::Evaluated(eval) => self.line(&eval_line(eval)),
            Event::Saved(path) => self.line(&format!("saved {}", path.display())),
            Event::Note(text) => self.line(&format!("note: {text}")),
            _ => {}
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        let state = match self.state.get_mut() {
            Ok(state) => state,
            Err(poisoned) => poisoned.into_inner(),
        };
        if let Some(bar) = state.bar.take() {
            bar.abandon();
        }
    }
}

fn plan_lines(plan: &PlanSummary) -> String {
    let device = match plan.peak_device_bytes {
        Bytes(0) => String::new(),
        bytes => format!(", {bytes} on the device"),
    };
    format!(
        "{} with {}: {} of {} parameters trained, {} steps, peak {} on the host{device}",
        plan.model,
        plan.plugins.join(", "),
        plan.num_trained_params,
        plan.num_params,
        plan.total_steps,
        plan.peak_host_bytes,
    )
}

/// Loss, speed, memory and time left; `left_secs` in seconds.
fn step_line(step: &StepMetrics, total_steps: u64, left_secs: f64) -> String {
    let light = match step.speed_of_light {
        Some(share) => format!("  {:.0} % of light", share * 100.0),
        None => String::new(),
    };
    let memory = Bytes(step.peak_host_bytes.max(step.peak_device_bytes));
    format!(
        "step {}/{total_steps}  loss {:.4}  {:.0} tokens/s{light}  {memory}  {} left",
        step.step,
        step.loss,
        step.tokens_per_sec,
        clock(left_secs),
    )
}

fn eval_line(eval: &EvalMetrics) -> String {
    format!(
        "eval after step {}: loss {:.4}, perplexity {:.2}, token accuracy {:.1} %",
        eval.step,
        eval.eval_loss,
        eval.eval_perplexity,
        eval.eval_token_accuracy * 100.0
    )
}

/// Seconds as `m:ss` or `h:mm:ss`.
fn clock(secs: f64) -> String {
    let secs = secs.max(0.0).round() as u64;
    let (hours, minutes, secs) = (secs / 3600, secs / 60 % 60, secs % 60);
    match hours {
        0 => format!("{minutes}:{secs:02}"),
        _ => format!("{hours}:{minutes:02}:{secs:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_one_line() {
        let mut step = StepMetrics {
            step: 3,
            loss: 1.5,
            tokens_per_sec: 1234.5,
            peak_host_bytes: 3 << 29,
            speed_of_light: Some(0.42),
            ..StepMetrics::default()
        };
        let line = step_line(&step, 10, 61.0);
        let expected = "step 3/10  loss 1.5000  1234 tokens/s  42 % of light  1.50 GiB  1:01 left";
        assert_eq!(line, expected);
        step.speed_of_light = None;
        assert!(!step_line(&step, 10, 61.0).contains("light"));
    }

    #[test]
    fn time_left_is_shown_as_a_clock() {
        assert_eq!(clock(0.4), "0:00");
        assert_eq!(clock(59.6), "1:00");
        assert_eq!(clock(3661.0), "1:01:01");
        assert_eq!(clock(-1.0), "0:00");
    }
}
