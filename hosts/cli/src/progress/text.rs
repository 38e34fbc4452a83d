//! Events of a run -> lines of text: stable, one fact after the other, easy to search.

use std::path::Path;

use espalier_engine::observer::{EvalMetrics, PlanSummary, StepMetrics};
use espalier_system::number::duration;
use espalier_trainer::bytes::Bytes;

/// Seconds before which no rate is shown.
const LEAST_SECS: f64 = 0.1;

/// The plan of a run at its start.
pub fn plan(plan: &PlanSummary) -> String {
    let device = match plan.peak_device_bytes {
        Bytes(0) => String::new(),
        bytes => format!(", {bytes} on each rank's device"),
    };
    let work = match (plan.num_trained_params, plan.num_params) {
        (0, all) => format!("{all} parameters"),
        (trained, all) => format!(
            "{trained} of {all} parameters trained, {} steps",
            plan.total_steps
        ),
    };
    let model = espalier_report::repository(Path::new(&plan.model));
    format!(
        "{} with {}: {work}, peak {} on the host{}{device}",
        model.as_ref().unwrap_or(&plan.model),
        plan.plugins.join(", "),
        plan.peak_host_bytes,
        plan.memory,
    )
}

/// A step as a separate line; `left_secs` in seconds.
pub fn step(step: &StepMetrics, total_steps: u64, mean_loss: f64, left_secs: f64) -> String {
    format!(
        "step {}/{total_steps}  loss {:.4} (mean {mean_loss:.4})  {}  {}  {} left",
        step.step,
        step.loss,
        speed(step),
        held(step),
        duration(left_secs),
    )
}

/// A step beside a bar, the most important numbers first; `held_out` is the last held-out loss.
pub fn step_beside_bar(
    step: &StepMetrics,
    mean_loss: f64,
    held_out: Option<f64>,
    planned: Bytes,
) -> String {
    let held_out = held_out.map_or_else(String::new, |loss| format!("  held-out {loss:.4}"));
    let held = held(step);
    format!(
        "loss {mean_loss:.4}{held_out}  {}  {held} of {planned}",
        speed(step)
    )
}

/// Peak memory: the device's where it has its own.
fn held(step: &StepMetrics) -> Bytes {
    match step.peak_device_bytes {
        0 => Bytes(step.peak_host_bytes),
        device => Bytes(device),
    }
}

fn speed(step: &StepMetrics) -> String {
    let peak = match step.speed_of_light {
        Some(share) => format!("  {:.0} % of peak", share * 100.0),
        None => String::new(),
    };
    format!("{:.0} tokens/s{peak}", step.tokens_per_sec)
}

/// The result on the held-out rows.
pub fn eval(eval: &EvalMetrics) -> String {
    let answered = eval.exact_match();
    let answered = answered.map(|answered| format!(", exact match {answered}"));
    let answered = answered.unwrap_or_default();
    format!(
        "eval after step {}: loss {:.4}, perplexity {:.2}, token accuracy {:.1} %{answered}",
        eval.step,
        eval.eval_loss,
        eval.eval_perplexity,
        eval.eval_token_accuracy * 100.0
    )
}

/// Bytes per second, after two spaces; empty before [`LEAST_SECS`].
pub fn rate(bytes: u64, secs: f64) -> String {
    if bytes > 0 && secs >= LEAST_SECS {
        format!("  {}/s", Bytes((bytes as f64 / secs) as u64))
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_one_line() {
        let mut metrics = StepMetrics {
            step: 3,
            loss: 1.5,
            tokens_per_sec: 1234.5,
            peak_host_bytes: 3 << 29,
            speed_of_light: Some(0.42),
            ..StepMetrics::default()
        };
        let line = step(&metrics, 10, 1.625, 61.0);
        let expected = "step 3/10  loss 1.5000 (mean 1.6250)  1234 tokens/s  42 % of peak  \
                        1.50 GiB  1 min 01 s left";
        assert_eq!(line, expected);
        let beside = step_beside_bar(&metrics, 1.625, Some(2.0), Bytes(1 << 31));
        let expected = "loss 1.6250  held-out 2.0000  1234 tokens/s  42 % of peak  \
                        1.50 GiB of 2.00 GiB";
        assert_eq!(beside, expected);
        metrics.speed_of_light = None;
        assert!(!step(&metrics, 10, 1.5, 61.0).contains("peak"));
    }

    #[test]
    fn rates_are_shown_once_they_are_known() {
        assert_eq!(rate(3 << 20, 2.0), "  1.50 MiB/s");
        assert_eq!(rate(0, 2.0) + &rate(1, 0.01), "");
    }
}
