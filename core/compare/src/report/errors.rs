//! The encoding error of each weight -> the relative error by layer, one curve per arm.

use std::collections::BTreeMap;

use espalier_report::chart::{Chart, Curve, Style, Upward};
use espalier_report::series::Point;

use super::findings::Findings;
use super::row::relative_error;
use crate::record::WeightError;

/// The chart; `colour` maps an arm to its colour.
pub fn by_layer(findings: &Findings, colour: impl Fn(usize) -> usize) -> Chart {
    let mut chart = Chart::new("Weight error by layer", "relative, squared");
    (chart.upward, chart.over, chart.wide) = (Upward::Logarithmic, "layer", true);
    for (place, arm) in findings.arms.iter().enumerate() {
        let weights = arm.base.as_ref().map_or(&[][..], |base| &base.weights);
        chart = chart.with_curve(Curve {
            name: arm.arm.name.clone(),
            style: Style::Points,
            colour: Some(colour(place)),
            points: points(weights),
            band: Vec::new(),
        });
    }
    chart
}

fn points(weights: &[WeightError]) -> Vec<Point> {
    let mut layers: BTreeMap<u64, Vec<&WeightError>> = BTreeMap::new();
    for weight in weights {
        if let Some(layer) = weight.layer {
            layers.entry(layer).or_default().push(weight);
        }
    }
    let point = |(layer, weights): (u64, Vec<&WeightError>)| {
        let error = relative_error(weights).filter(|error| *error > 0.0)?;
        Some((layer as f64, error))
    };
    layers.into_iter().filter_map(point).collect()
}
