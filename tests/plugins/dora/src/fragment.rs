//! A linear's shape -> the graph that takes its place.
//!
//! Legend: `T` tokens, `M` width in, `N` width out, `R` rank. `n` `[N]` are the norms of the rows
//! of `W + s B A`, constants for the gradient as in PEFT; `m` `[N]` the magnitudes.

use espalier_interface::DType;
use espalier_interface::adaptation::Site;
use espalier_interface::graph::{Dim, Graph, Source};
use espalier_interface::op;

use crate::Dora;

/// The fragment of a site. Sites of one shape give equal fragments, but for a bias.
///
/// `y = base(x) + (m / n - 1) W x' + (m / n) s B A x'` with `x' = dropout(x)`. Where nothing is
/// dropped and the site adds no bias, `W x'` is `base(x)`: `y = (m / n) (base(x) + s B A x)`.
pub fn build(site: &Site, dora: &Dora) -> Graph {
    let [rows, cols] = site.shape;
    let mut graph = Graph::new("dora");
    let shape = [Dim::Tokens, Dim::Fixed(cols)];
    let x = graph.input(Source::Previous("input".to_owned()), shape, DType::COMPUTE);
    let weight = op::base_weight(&mut graph, site.shape);
    let a = graph.param("lora_A.weight", [dora.rank, cols]);
    let b = graph.param("lora_B.weight", [rows, dora.rank]);
    let m = graph.param("lora_magnitude_vector", [rows]);
    let norms = op::adapted_row_norms(&mut graph, weight, a, b, dora.factor());
    let magnitudes = op::param_value(&mut graph, m, DType::REDUCE);
    let factors = op::div(&mut graph, magnitudes, norms);
    let base = op::base(&mut graph, x, rows);
    let dropped = if dora.dropout > 0.0 {
        op::dropout(&mut graph, x, dora.dropout)
    } else {
        x
    };
    let down = op::linear(&mut graph, dropped, a, None);
    let up = op::linear(&mut graph, down, b, None);
    let out = if dropped == x && !site.has_bias {
        let sum = op::add(&mut graph, base, up, dora.factor());
        op::scale_by(&mut graph, sum, factors)
    } else {
        let product = op::linear(&mut graph, dropped, weight, None);
        // m / n - 1, without the rounding of a quotient near 1.
        let excess = op::add(&mut graph, magnitudes, norms, -1.0);
        let excess = op::div(&mut graph, excess, norms);
        let turned = op::scale_by(&mut graph, product, excess);
        let up = op::scale_by(&mut graph, up, factors);
        let adapted = op::add(&mut graph, turned, up, dora.factor());
        op::add(&mut graph, base, adapted, 1.0)
    };
    graph.output("output", out);
    graph
}
