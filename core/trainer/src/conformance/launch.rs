//! One product on a device, from arrays to arrays.

use espalier_compile::params::Dtypes;
use espalier_engine::device_graph::{DeviceGraph, DeviceParam, GraphKernels, GraphLimits};
use espalier_interface::graph::{Attributes, Dim, Graph, Source, ValueType};
use espalier_interface::{DType, Result};

/// The dtypes of a product.
const DTYPES: Dtypes = Dtypes::all(DType::F64);

/// A weight and its bytes.
pub struct Weight {
    /// `[N, M]`.
    pub shape: [u64; 2],
    /// Its layout in memory and its bytes.
    pub param: DeviceParam,
}

/// Launches `op` in f64 on `x`, `[T, width]`, and `weight`; the result is `[T, out_width]`.
///
/// # Errors
/// Errors of the device.
pub fn product(
    kernels: &GraphKernels,
    op: &str,
    (x, width): (&[f64], u64),
    weight: &Weight,
    out_width: u64,
) -> Result<Vec<f64>> {
    let rows = |width: u64| ValueType {
        shape: vec![Dim::Tokens, Dim::Fixed(width)],
        dtype: DType::F64,
    };
    let mut graph = Graph::new("product");
    let source = Source::Previous("input".to_owned());
    let input = graph.input(source, rows(width).shape, DType::F64);
    let param = graph.param("weight", weight.shape);
    let attributes = Attributes::new();
    let output = graph.node(op, &[input], &[param], vec![rows(out_width)], attributes);
    let tokens = x.len() as u64 / width;
    let limits = GraphLimits {
        max_tokens: tokens,
        dtypes: DTYPES,
    };
    let graph = DeviceGraph::new(kernels, &graph, [weight.param.clone()], limits)?;
    let bytes: Vec<u8> = x.iter().flat_map(|x| x.to_le_bytes()).collect();
    graph.write(input, &bytes)?;
    for node in 0..graph.graph().nodes.len() {
        graph.launch(node, tokens)?;
    }
    graph.read(output, tokens)
}
