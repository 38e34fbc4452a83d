//! Recorded shares of peak and the peaks measured over time -> shares of the highest peak, and its
//! source.
//!
//! A step faster than the peak shows that the peak was measured too low. All shares are therefore
//! of the highest rate of the same devices. None exceeds 100 %.

use espalier_engine::measure::{self, Cause, PeakRate};
use espalier_system::number::{percent, significant};
use serde::Serialize;

use super::record::MachineRecord;
use super::run_metrics::RunMetrics;
use super::series::{Point, quantile};

/// The shares of a run's steps.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SharesOfPeak {
    /// The median over the steps.
    pub median: Option<f64>,
    /// The peak of the last steps, operations per second of all ranks.
    pub flops_per_sec: Option<f64>,
    /// Its source, and when it was measured.
    pub how: Option<String>,
    /// By step; not a number where a step has none.
    #[serde(skip)]
    pub by_step: Vec<Point>,
}

/// Peaks of the same devices.
struct Stretch {
    peaks: Vec<PeakRate>,
    /// The greatest share of its steps, converted to the highest peak.
    most: f64,
}

impl Stretch {
    fn highest(&self) -> f64 {
        let rates = self.peaks.iter().map(|peak| peak.flops_per_sec);
        rates.fold(0.0, |most, rate| if rate > most { rate } else { most })
    }
}

impl SharesOfPeak {
    /// The shares of the steps of `metrics` on `machine`.
    pub fn of(metrics: &RunMetrics, machine: &MachineRecord) -> Self {
        let mut stretches = stretches(machine);
        let recorded: Vec<(u64, f64, usize)> = metrics
            .steps
            .iter()
            .map(|step| {
                let (place, factor) = in_force(&stretches, step.step);
                let share = step.speed_of_light.unwrap_or(f64::NAN) * factor;
                (step.step, share, place)
            })
            .collect();
        for (_, share, place) in &recorded {
            if let Some(stretch) = stretches.get_mut(*place)
                && *share > stretch.most
            {
                stretch.most = *share;
            }
        }
        let by_step: Vec<Point> = recorded
            .iter()
            .map(|(step, share, place)| {
                // A difference within rounding does not count as higher.
                let most = stretches.get(*place).map_or(1.0, |stretch| stretch.most);
                (*step as f64, share / most.max(1.0))
            })
            .collect();
        let last = stretches.last().filter(|_| !by_step.is_empty());
        SharesOfPeak {
            median: quantile(by_step.iter().map(|(_, share)| *share), 0.5),
            flops_per_sec: last.map(|stretch| stretch.highest() * stretch.most.max(1.0)),
            how: last.map(how),
            by_step,
        }
    }
}

/// The recorded peaks by device; the only one of an older record.
fn stretches(machine: &MachineRecord) -> Vec<Stretch> {
    let mut peaks = machine.peak_rates.0.clone();
    if peaks.is_empty() && machine.gemm_flops_per_sec > 0.0 {
        peaks.push(PeakRate {
            from_step: 1,
            flops_per_sec: machine.gemm_flops_per_sec,
            cause: Cause::Start,
        });
    }
    let mut stretches: Vec<Stretch> = Vec::new();
    for peak in peaks {
        match stretches.last_mut() {
            Some(stretch) if matches!(peak.cause, Cause::Again | Cause::Step) => {
                stretch.peaks.push(peak);
            }
            _ => stretches.push(Stretch {
                peaks: vec![peak],
                most: 0.0,
            }),
        }
    }
    if stretches.is_empty() {
        // Shares of an unknown peak.
        stretches.push(Stretch {
            peaks: Vec::new(),
            most: 0.0,
        });
    }
    stretches
}

/// The index of a step's peak, and its share of the highest peak of the same devices.
fn in_force(stretches: &[Stretch], step: u64) -> (usize, f64) {
    let has_started =
        |stretch: &Stretch| stretch.peaks.first().is_some_and(|p| p.from_step <= step);
    let place = stretches.iter().rposition(has_started).unwrap_or(0);
    let Some(stretch) = stretches.get(place) else {
        return (place, 1.0);
    };
    let mut peaks = stretch.peaks.iter();
    let last = peaks.rfind(|peak| peak.from_step <= step);
    let rate = last.map(|peak| peak.flops_per_sec);
    (place, rate.map_or(1.0, |rate| rate / stretch.highest()))
}

/// The source of a peak, as a sentence.
fn how(stretch: &Stretch) -> String {
    let giga = |rate: f64| format!("{} GFLOP/s", significant(rate / 1e9, 3));
    let mut parts: Vec<String> = stretch
        .peaks
        .iter()
        .map(|peak| {
            let (rate, step) = (giga(peak.flops_per_sec), peak.from_step);
            match peak.cause {
                Cause::Start => format!("{rate} before step {step} ({})", measure::HOW),
                Cause::Swap => {
                    format!(
                        "{rate} on the new backend before step {step} ({})",
                        measure::HOW
                    )
                }
                Cause::Again => format!("{rate} measured again after step {step} had beaten that"),
                Cause::Step => format!("{rate} in step {step} itself, which was faster still"),
            }
        })
        .collect();
    // A little more is rounding.
    if stretch.most > 1.0 + 1e-9 {
        let rate = if stretch.peaks.is_empty() {
            String::new()
        } else {
            format!("{} in ", giga(stretch.highest() * stretch.most))
        };
        parts.push(format!(
            "{rate}the fastest step, which reached {} of what had been measured: the machine was \
             busy then",
            percent(stretch.most)
        ));
    }
    if parts.is_empty() {
        "The peak is not on record.".to_owned()
    } else {
        format!(
            "Shares are of the highest rate known: {}.",
            parts.join("; ")
        )
    }
}

#[cfg(test)]
mod tests;
