//! An adapter's fragment and rows of its input -> rows of its output, on the device, in f32.
//!
//! Legend: `T` rows at once, `N x M` the site's weight.

use espalier_compile::params::Dtypes;
use espalier_engine::device_graph::{DeviceGraph, DeviceParam, GraphKernels, GraphLimits};
use espalier_interface::graph::{Graph, Node, ValueId};
use espalier_interface::{DType, PluginError, Result, WeightLayout};
use espalier_numeric::{widen, write_numbers};

/// The dtypes of a merge.
const DTYPES: Dtypes = Dtypes::all(DType::F32);

/// The input of a fragment in one run.
pub enum InputRows<'a> {
    /// `[T, M]`, row major.
    Vectors(&'a [f32]),
    /// Token ids, `[T]`.
    Tokens(&'a [i32]),
}

/// Computes the site's own operation: from its input to `[T, N]`, row major.
pub type ComputeBase<'a> = dyn Fn(BaseInput<'_>) -> Vec<f32> + 'a;

/// The input of the site's own operation.
pub enum BaseInput<'a> {
    /// The fragment's own input, unchanged.
    Own,
    /// Other numbers, `[T, M]`, computed by the fragment.
    Computed(&'a [f32]),
}

/// A fragment with its params on a device.
pub struct Fragment<'a>(DeviceGraph<'a>);

/// Refuses a graph with inputs other than its site's.
///
/// # Errors
/// Such a graph, and an incomplete one.
pub fn check(graph: &Graph) -> Result<()> {
    graph.validate()?;
    let graph = without_dropout(graph);
    let own = graph.inputs.first().map(|input| input.value);
    let foreign = |value: &ValueId| {
        Some(*value) != own && graph.inputs.iter().any(|input| input.value == *value)
    };
    let mut nodes = graph.nodes.iter();
    match nodes.find(|node| node.inputs.iter().any(foreign)) {
        None => Ok(()),
        Some(node) => Err(PluginError::unsupported(format!(
            "its op `{}` reads the position of a token, which a weight cannot hold",
            node.op
        ))),
    }
}

/// The graph in which each dropout lets everything pass.
fn without_dropout(graph: &Graph) -> Graph {
    let mut same_as: Vec<ValueId> = (0..graph.values.len()).collect();
    let mut nodes = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        let inputs: Vec<ValueId> = node.inputs.iter().map(|&value| same_as[value]).collect();
        if node.op == "dropout" {
            same_as[node.outputs[0]] = inputs[0];
        } else {
            nodes.push(Node {
                inputs,
                ..node.clone()
            });
        }
    }
    let mut outputs = graph.outputs.clone();
    for output in &mut outputs {
        output.value = same_as[output.value];
    }
    Graph {
        nodes,
        outputs,
        ..graph.clone()
    }
}

impl<'a> Fragment<'a> {
    /// Uploads `params`, in the graph's order, to the device; `max_rows` is the largest `T`.
    ///
    /// # Errors
    /// A graph that is incomplete or has other inputs than its site's, a value that is neither
    /// rows of numbers nor of a fixed size, an op that the backend lacks and that cannot be
    /// decomposed; errors of the device.
    pub fn new(
        kernels: &'a GraphKernels,
        graph: &Graph,
        params: &[Vec<f32>],
        max_rows: u64,
    ) -> Result<Self> {
        check(graph)?;
        let graph = without_dropout(graph);
        check_dtypes(&graph)?;
        let params = params.iter().map(|values| DeviceParam {
            layout: WeightLayout::Dense(DType::F32),
            bytes: vec![bytes_of(values)],
            decoder: None,
        });
        let limits = GraphLimits {
            max_tokens: max_rows,
            dtypes: DTYPES,
        };
        DeviceGraph::new(kernels, &graph, params, limits).map(Fragment)
    }

    /// The output for `count` rows, `[T, N]`.
    ///
    /// # Errors
    /// What the device reports.
    pub fn run(
        &self,
        rows: &InputRows<'_>,
        count: u64,
        base: &ComputeBase<'_>,
    ) -> Result<Vec<f32>> {
        let graph = self.0.graph();
        let own = graph.inputs[0].value;
        let bytes: Vec<u8> = match rows {
            InputRows::Vectors(values) => bytes_of(values),
            InputRows::Tokens(tokens) => tokens.iter().flat_map(|x| x.to_le_bytes()).collect(),
        };
        self.0.write(own, &bytes)?;
        for (index, node) in graph.nodes.iter().enumerate() {
            match node.op.as_str() {
                "base" => self.base(node, own, count, base)?,
                _ => self.0.launch(index, count)?,
            }
        }
        self.read(graph.outputs[0].value, count)
    }

    fn base(&self, node: &Node, own: ValueId, count: u64, base: &ComputeBase<'_>) -> Result<()> {
        let input = node.inputs[0];
        let out = if input == own {
            base(BaseInput::Own)
        } else {
            base(BaseInput::Computed(&self.read(input, count)?))
        };
        self.0.write(node.outputs[0], &bytes_of(&out))
    }

    fn read(&self, value: ValueId, count: u64) -> Result<Vec<f32>> {
        let bytes = self.0.read_bytes(value, count)?;
        let mut values = vec![0.0; bytes.len() / 4];
        widen(&bytes, DType::F32, &mut values);
        Ok(values)
    }
}

fn bytes_of(values: &[f32]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4 * values.len());
    write_numbers(values, DType::F32, &mut bytes);
    bytes
}

/// Refuses a value in use whose elements do not have four bytes, as all of a merge have.
fn check_dtypes(graph: &Graph) -> Result<()> {
    let used = graph.nodes.iter();
    let used = used.flat_map(|node| node.inputs.iter().chain(&node.outputs));
    let mut types = used.map(|&value| &graph.values[value]);
    match types.find(|ty| DTYPES.resolve(ty.dtype).bytes() != 4) {
        None => Ok(()),
        Some(ty) => Err(PluginError::unsupported(format!(
            "a value of shape {:?} and dtype {} is no row of numbers for each token",
            ty.shape, ty.dtype
        ))),
    }
}
