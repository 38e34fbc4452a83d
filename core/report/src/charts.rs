//! A run's metrics -> the charts of its report.

use espalier_engine::observer::StepMetrics;

use super::chart::{Chart, Style, Upward};
use super::peak::SharesOfPeak;
use super::run_metrics::{EvalPoint, RunMetrics};
use super::series::Point;

/// From this ratio of the greatest loss to the least on, the axis is logarithmic.
const DECADE: f64 = 10.0;

/// The charts that have something to show; `planned_bytes` is the planned peak of memory, where it
/// is known.
pub fn charts(metrics: &RunMetrics, peak: &SharesOfPeak, planned_bytes: Option<u64>) -> Vec<Chart> {
    let steps = |of: &dyn Fn(&StepMetrics) -> f64| -> Vec<Point> {
        let points = metrics
            .steps
            .iter()
            .map(|step| (step.step as f64, of(step)));
        points.collect()
    };
    let evals = |of: fn(&EvalPoint) -> Option<f64>| -> Vec<Point> {
        let value = |eval: &EvalPoint| Some((eval.step as f64, of(eval)?));
        metrics.evals.iter().filter_map(value).collect()
    };
    let mut loss = Chart::new("Loss", "")
        .with_noisy("training, ", &steps(&|step| step.loss))
        .with("held out", Style::Points, &evals(|eval| eval.loss));
    loss.wide = true;
    if spans_a_decade(&loss) {
        (loss.upward, loss.unit) = (Upward::Logarithmic, "nats, log scale".to_owned());
    } else {
        loss.upward = Upward::Free;
    }
    let answers = Chart::new("Held-out accuracy", "%")
        .with(
            "token accuracy",
            Style::Points,
            &evals(|eval| eval.token_accuracy.map(|share| share * 100.0)),
        )
        .with(
            "exact match",
            Style::Others,
            &evals(|eval| eval.exact_match.map(|share| share * 100.0)),
        );
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let held = |step: &StepMetrics| match step.peak_device_bytes {
        0 => mebibytes(step.peak_host_bytes),
        device => mebibytes(device),
    };
    let planned = planned_bytes.map(|bytes| steps(&|_| mebibytes(bytes)));
    let planned = planned.unwrap_or_default();
    let shares: Vec<Point> = peak
        .by_step
        .iter()
        .map(|(step, share)| (*step, share * 100.0))
        .collect();
    let memory = Chart::new("Memory held at most", "MiB")
        .with("planned", Style::Raw, &planned)
        .with("held so far", Style::Line, &steps(&held));
    let charts = [
        loss,
        answers,
        learning_rates(metrics),
        Chart::new("Throughput", "tokens/s").with_noisy("", &steps(&|step| step.tokens_per_sec)),
        Chart::new("Share of peak", "%").with_noisy("", &shares),
        Chart::new("Gradient norm before clipping", "")
            .with_noisy("", &steps(&|step| step.grad_norm)),
        memory,
    ];
    charts
        .into_iter()
        .filter(|chart| !chart.curves.is_empty())
        .collect()
}

/// Whether a linear axis would hide most of the curves: smoothed ones and points, not the noise of
/// single steps.
fn spans_a_decade(chart: &Chart) -> bool {
    let curves = chart.curves.iter();
    let told = curves.filter(|curve| curve.style != Style::Raw);
    let values = told.flat_map(|curve| curve.points.iter().map(|(_, y)| *y));
    let finite = values.filter(|y| y.is_finite());
    let (low, high) = finite.fold((f64::INFINITY, 0.0f64), |(low, high), y| {
        (low.min(y), high.max(y))
    });
    low > 0.0 && high >= DECADE * low
}

/// The learning rates: the run's, or where groups of params have their own, each group's.
fn learning_rates(metrics: &RunMetrics) -> Chart {
    let chart = Chart::new("Learning rate", "");
    let points = |rate: &dyn Fn(&StepMetrics) -> Option<f64>| -> Vec<Point> {
        let steps = metrics.steps.iter();
        steps
            .map(|step| (step.step as f64, rate(step).unwrap_or(f64::NAN)))
            .collect()
    };
    let groups = metrics
        .steps
        .iter()
        .map(|step| step.group_learning_rates.len());
    match groups.max().unwrap_or(0) {
        0 => {
            let run = points(&|step| Some(step.learning_rate));
            chart.with("learning rate", Style::Line, &run)
        }
        groups => (0..groups).fold(chart, |chart, group| {
            let own = points(&|step| step.group_learning_rates.get(group).copied());
            chart.with(&format!("group {}", group + 1), Style::Line, &own)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The loss chart of a run whose loss goes down by a constant factor.
    fn loss(first: f64, last: f64, held_out: &[f64]) -> Chart {
        let step = |index: u64| StepMetrics {
            step: index + 1,
            loss: first * (last / first).powf(index as f64 / 199.0),
            ..StepMetrics::default()
        };
        let eval = |(step, loss): (u64, &f64)| EvalPoint {
            step,
            loss: Some(*loss),
            ..EvalPoint::default()
        };
        let metrics = RunMetrics {
            steps: (0..200).map(step).collect(),
            evals: (0..).zip(held_out).map(eval).collect(),
            ..RunMetrics::default()
        };
        let peak = SharesOfPeak::of(&metrics, &crate::record::MachineRecord::default());
        let charts = charts(&metrics, &peak, None);
        charts.into_iter().next().expect("the loss comes first")
    }

    #[test]
    fn a_loss_over_a_decade_has_a_logarithmic_axis() {
        for (first, last, held_out, scale) in [
            (10.8, 0.07, &[10.7, 0.27][..], Upward::Logarithmic),
            (2.1, 1.4, &[2.0, 1.5], Upward::Free),
            (2.1, 1.4, &[2.0, 0.1], Upward::Logarithmic),
            // A logarithm has no 0.
            (2.1, 1.4, &[2.0, 0.0], Upward::Free),
        ] {
            let chart = loss(first, last, held_out);
            assert_eq!(chart.upward, scale, "{first} to {last}");
            let named = chart.unit.contains("log scale");
            assert_eq!(named, scale == Upward::Logarithmic);
        }
    }
}
