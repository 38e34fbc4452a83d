//! A range of values -> round numbers along it.

use super::number::significant;

/// A range and the round numbers in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The value at its beginning.
    pub low: f64,
    /// The value at its end; greater.
    pub high: f64,
    /// Round numbers in between.
    pub ticks: Vec<f64>,
}

impl Axis {
    /// From `low` to `high` as they are, with about `count` ticks.
    pub fn exact(low: f64, high: f64, count: usize) -> Self {
        let high = if high > low { high } else { low + 1.0 };
        let step = round_step((high - low) / count as f64);
        let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
        let ticks = (first..=last).map(|i| i as f64 * step).collect();
        Axis { low, high, ticks }
    }

    /// From a round number at or below `low` to one at or above `high`.
    pub fn rounded(low: f64, high: f64, count: usize) -> Self {
        let wide = high - low > low.abs().max(high.abs()) * 1e-9;
        // A flat curve runs through the middle.
        let margin = if wide { 0.0 } else { low.abs().max(1.0) * 0.5 };
        let (low, high) = (low - margin, high + margin);
        let step = round_step((high - low) / count as f64);
        let (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
        Axis::exact(low, high, count)
    }

    /// Where `value` lies: 0 at the beginning, 1 at the end.
    pub fn at(&self, value: f64) -> f64 {
        (value - self.low) / (self.high - self.low)
    }

    /// A tick as text, as exact as the distance to the next one asks.
    pub fn label(&self, tick: f64) -> String {
        let most = self.low.abs().max(self.high.abs());
        let step = match self.ticks[..] {
            [first, second, ..] => second - first,
            _ => most,
        };
        if tick.abs() < step * 1e-6 {
            return "0".to_owned();
        }
        if most < 1e-2 {
            return format!("{:e}", significant(tick, 3).parse().unwrap_or(tick));
        }
        if most >= 1e4 {
            return format!("{}k", significant(tick / 1e3, 4));
        }
        let decimals = (2.0 - step.log10()).clamp(0.0, 6.0) as usize;
        significant((tick * 1e6).round() / 1e6, 6 + decimals)
    }
}

/// The least of 1, 2, 2.5 or 5 times a power of ten that is not below `least`.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let factors = [1.0, 2.0, 2.5, 5.0, 10.0];
    let enough = |factor: &f64| factor * power >= least * (1.0 - 1e-9);
    factors.into_iter().find(enough).unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<String> {
        axis.ticks.iter().map(|tick| axis.label(*tick)).collect()
    }

    #[test]
    fn ticks_are_round_and_cover_the_range() {
        let axis = Axis::rounded(4.26, 5.91, 4);
        assert_eq!(labels(&axis), ["4", "4.5", "5", "5.5", "6"]);
        assert_eq!(
            labels(&Axis::rounded(0.0, 0.003, 3)),
            ["0", "1e-3", "2e-3", "3e-3"]
        );
        assert_eq!(
            labels(&Axis::exact(1.0, 120.0, 5)),
            ["25", "50", "75", "100"]
        );
        assert_eq!(
            labels(&Axis::exact(1.0, 100_000.0, 4)),
            ["25k", "50k", "75k", "100k"]
        );
    }

    #[test]
    fn a_flat_curve_runs_through_the_middle() {
        let axis = Axis::rounded(3.0, 3.0, 4);
        assert_eq!(axis.at(3.0), 0.5);
        assert_eq!(Axis::exact(1.0, 1.0, 5).at(1.0), 0.0);
    }
}
