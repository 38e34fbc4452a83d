//! A linear's shape -> the graph of its DoRA.
//!
//! `n` `[N]` are the norms of the rows of `W + s B A`, constants for the gradient as in PEFT; `m`
//! `[N]` the magnitudes.

use espalier_interface::DType;
use espalier_interface::adaptation::Site;
use espalier_interface::graph::{Dim, Graph, Source};
use espalier_interface::op;

use super::{dropped, params};
use crate::settings::Settings;

/// Local name of the magnitudes, as the saved key ends.
pub const MAGNITUDE: &str = "lora_magnitude_vector";

/// `y = base(x) + (m / n - 1) W x' + (m / n) s B A x'` with `x' = dropout(x)`. Where nothing is
/// dropped and the site adds no bias, `W x'` is `base(x)`: `y = (m / n) (base(x) + s B A x)`.
pub fn linear(site: &Site, settings: &Settings) -> Graph {
    let [rows, cols] = site.shape;
    let mut graph = Graph::new("dora.linear");
    let shape = [Dim::Tokens, Dim::Fixed(cols)];
    let x = graph.input(Source::Previous("input".to_owned()), shape, DType::COMPUTE);
    let weight = op::base_weight(&mut graph, site.shape);
    let [a, b] = params(&mut graph, site, settings);
    let m = graph.param(MAGNITUDE, [rows]);
    let factor = settings.factor(site);
    let norms = op::adapted_row_norms(&mut graph, weight, a, b, factor);
    let magnitudes = op::param_value(&mut graph, m, DType::REDUCE);
    let factors = op::div(&mut graph, magnitudes, norms);
    let base = op::base(&mut graph, x, rows);
    let kept = dropped(&mut graph, x, settings);
    let narrow = op::linear(&mut graph, kept, a, None);
    let update = op::linear(&mut graph, narrow, b, None);
    let out = if kept == x && !site.has_bias {
        let sum = op::add(&mut graph, base, update, factor);
        op::scale_by(&mut graph, sum, factors)
    } else {
        let product = op::linear(&mut graph, kept, weight, None);
        // m / n - 1, without the rounding of a quotient near 1.
        let excess = op::add(&mut graph, magnitudes, norms, -1.0);
        let excess = op::div(&mut graph, excess, norms);
        let turned = op::scale_by(&mut graph, product, excess);
        let update = op::scale_by(&mut graph, update, factors);
        let adapted = op::add(&mut graph, turned, update, factor);
        op::add(&mut graph, base, adapted, 1.0)
    };
    graph.output("output", out);
    graph
}
