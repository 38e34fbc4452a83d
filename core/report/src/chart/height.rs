//! The values of a chart -> its vertical axis.

use super::{Chart, Upward};
use crate::axis::Axis;
use crate::series::quantile;

/// A value that exceeds this many times the curve's usual height is cut off at the top.
const OUTLIER: f64 = 4.0;
/// The share of values that make up the usual height.
const USUAL: f64 = 0.99;

impl Chart {
    /// The vertical axis, and how many values it leaves out.
    pub(super) fn vertical(&self) -> (Axis, usize) {
        let values = || {
            let curves = self.curves.iter();
            let all = curves.flat_map(|curve| {
                let ends = curve.band.iter().flat_map(|(_, low, high)| [*low, *high]);
                curve.points.iter().map(|(_, y)| *y).chain(ends)
            });
            all.filter(|y| y.is_finite())
        };
        let (low, high) = values().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), y| {
            (low.min(y), high.max(y))
        });
        match self.upward {
            Upward::Logarithmic => {
                let positive = values().filter(|y| *y > 0.0).fold(f64::INFINITY, f64::min);
                return (Axis::logarithmic(positive.min(high), high), 0);
            }
            Upward::Signed => {
                let all: Vec<f64> = values().collect();
                let sizes: Vec<f64> = all.iter().map(|y| y.abs()).filter(|y| *y > 0.0).collect();
                return (Axis::signed(&all, &sizes), 0);
            }
            Upward::FromZero | Upward::Free => (),
        }
        let low = if self.upward == Upward::FromZero {
            low.min(0.0)
        } else {
            low
        };
        let usual = quantile(values(), USUAL).unwrap_or(high);
        let top = if high - low > OUTLIER * (usual - low) && usual > low {
            usual + (usual - low) * 0.25
        } else {
            high
        };
        let axis = Axis::rounded(low, top, 4);
        let cut_off = values().filter(|y| *y > axis.high).count();
        (axis, cut_off)
    }
}
