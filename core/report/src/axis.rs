//! A range of values -> round numbers along it.

use espalier_system::number::significant;
use serde::Serialize;

use super::series::quantile;

/// A signed axis is linear up to this many times the smallest width that must stay visible.
const LINEAR: f64 = 30.0;

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scale {
    Linear,
    Logarithmic,
    /// Linear well within this distance from 0, logarithmic well beyond it.
    Signed(f64),
}

impl Scale {
    fn of(self, value: f64) -> f64 {
        match self {
            Scale::Linear => value,
            Scale::Logarithmic => value.ln(),
            Scale::Signed(near) => (value / near).asinh(),
        }
    }
}

/// A labelled position on an axis.
#[derive(Clone, Debug, Serialize)]
pub struct Tick {
    /// Its position in percent of the axis.
    pub percent: f64,
    /// The number.
    pub text: String,
}

/// A range and the round numbers in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    scale: Scale,
    /// The least value.
    pub low: f64,
    /// The greatest value; above `low`.
    pub high: f64,
    /// Round numbers in between.
    pub ticks: Vec<f64>,
}

impl Axis {
    /// From exactly `low` to exactly `high`, with about `count` ticks.
    pub fn exact(low: f64, high: f64, count: usize) -> Self {
        let high = if high > low { high } else { low + 1.0 };
        let step = round_step((high - low) / count as f64);
        let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
        let ticks = (first..=last).map(|i| i as f64 * step).collect();
        let scale = Scale::Linear;
        Axis {
            scale,
            low,
            high,
            ticks,
        }
    }

    /// As [`Axis::exact`], for integers.
    pub fn whole(low: f64, high: f64, count: usize) -> Self {
        let mut axis = Axis::exact(low, high, count);
        axis.ticks.retain(|tick| (tick - tick.round()).abs() < 1e-6);
        axis
    }

    /// Logarithmic, from a round number at or below `low` to one at or above `high`; `low` is above
    /// 0.
    pub fn logarithmic(low: f64, high: f64) -> Self {
        let around = |value: f64| {
            let power = 10f64.powf(value.log10().floor());
            [0.5, 1.0, 2.0, 5.0, 10.0, 20.0].map(|factor| factor * power)
        };
        // A value within rounding error of a round number counts as that number.
        let slack = 1.0 + 1e-9;
        let below = around(low)
            .into_iter()
            .rev()
            .find(|round| *round < low * slack);
        let above = around(high).into_iter().find(|round| *round > high / slack);
        let (low, high) = (below.unwrap_or(low), above.unwrap_or(high));
        let (low, high) = if high > low * 1.5 {
            (low, high)
        } else {
            (low / 2.0, high * 2.0)
        };
        let factors: &[f64] = if high / low > 300.0 {
            &[1.0]
        } else {
            &[1.0, 2.0, 5.0]
        };
        Axis::spread(Scale::Logarithmic, [low, high], factors)
    }

    /// Logarithmic, with a tick at each power of 2.
    pub fn doubling(low: f64, high: f64) -> Self {
        let powers = (low.log2().ceil() as i32)..=(high.log2().floor() as i32);
        Axis {
            scale: Scale::Logarithmic,
            low,
            high,
            ticks: powers.map(|power| 2f64.powi(power)).collect(),
        }
    }

    /// An axis that includes 0, for values of both signs. It is logarithmic away from 0 where some
    /// of `widths`, which must stay visible, would be too small beside the largest of `values`.
    pub fn signed(values: &[f64], widths: &[f64]) -> Self {
        let finite = || values.iter().copied().filter(|value| value.is_finite());
        let (low, high) =
            finite().fold((0.0f64, 0.0f64), |(low, high), x| (low.min(x), high.max(x)));
        let most = high.max(-low);
        let near = quantile(widths.iter().copied(), 0.25)
            .unwrap_or(most)
            .max(most * 1e-4);
        if most <= LINEAR * near {
            return Axis::rounded(low, high, 5);
        }
        // The same margin on both sides.
        let scale = Scale::Signed(near);
        let room = 0.04 * (scale.of(high) - scale.of(low));
        let beyond = |value: f64, room: f64| (scale.of(value) + room).sinh() * near;
        Axis::spread(scale, [beyond(low, -room), beyond(high, room)], &[1.0])
    }

    /// With ticks at `factors` times the powers of 10 in it.
    fn spread(scale: Scale, [low, high]: [f64; 2], factors: &[f64]) -> Self {
        let most = high.abs().max(low.abs());
        let least = match scale {
            Scale::Signed(near) => near,
            _ => low,
        };
        let powers = least.log10().floor() as i32..=most.log10().ceil() as i32;
        let sizes =
            powers.flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)));
        let sizes: Vec<f64> = sizes.filter(|size| *size >= least * (1.0 - 1e-9)).collect();
        let negative = sizes.iter().rev().map(|size| -size);
        let ticks = negative.chain([0.0]).chain(sizes.iter().copied());
        let within = |tick: &f64| {
            *tick >= low * (1.0 - 1e-9 * low.signum())
                && *tick <= high * (1.0 + 1e-9 * high.signum())
        };
        Axis {
            scale,
            low,
            high,
            ticks: ticks.filter(within).collect(),
        }
    }

    /// The tick at `value`.
    pub fn tick(&self, value: f64) -> Tick {
        Tick {
            percent: self.percent(value),
            text: self.label(value),
        }
    }

    /// Position of `value` in percent, to two digits.
    pub fn percent(&self, value: f64) -> f64 {
        (self.at(value) * 1e4).round() / 1e2
    }

    /// From a round number at or below `low` to one at or above `high`.
    pub fn rounded(low: f64, high: f64, count: usize) -> Self {
        let wide = high - low > low.abs().max(high.abs()) * 1e-9;
        // A flat curve is centred.
        let margin = if wide { 0.0 } else { low.abs().max(1.0) * 0.5 };
        let (low, high) = (low - margin, high + margin);
        let step = round_step((high - low) / count as f64);
        let (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
        Axis::exact(low, high, count)
    }

    /// Position of `value`: 0 at `low`, 1 at `high`.
    pub fn at(&self, value: f64) -> f64 {
        let [value, low, high] = [value, self.low, self.high].map(|value| self.scale.of(value));
        (value - low) / (high - low)
    }

    /// A tick as text, with the digits that separate it from the next one.
    pub fn label(&self, tick: f64) -> String {
        let most = self.low.abs().max(self.high.abs());
        let step = match self.ticks[..] {
            [first, second, ..] => second - first,
            _ => most,
        };
        if tick.abs() < step * 1e-6 || tick == 0.0 {
            return "0".to_owned();
        }
        if self.scale != Scale::Linear {
            return significant(tick, 2);
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
mod tests;
