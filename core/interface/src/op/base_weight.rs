//! A fragment -> the weight of the site that it replaces, as a param of the fragment.

use crate::adaptation::BASE_WEIGHT;
use crate::graph::{Graph, ParamId};

/// The weight of the fragment's site, as a param that any op with a weight takes; only inside an
/// adapter's fragment. Repeated calls return the same param. The core binds it: it is none of
/// [`Join::params`](crate::adaptation::Join::params).
///
/// `linear(graph, x, base_weight(graph, shape), None)` is the site's own product without its bias.
///
/// # Shapes
/// `shape` is [`Site::shape`](crate::adaptation::Site::shape).
pub fn base_weight(graph: &mut Graph, shape: [u64; 2]) -> ParamId {
    let mut params = graph.params.iter();
    match params.position(|param| param.name == BASE_WEIGHT) {
        Some(param) => param,
        None => graph.param(BASE_WEIGHT, shape),
    }
}
