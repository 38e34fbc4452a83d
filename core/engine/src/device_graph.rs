//! A graph, its params and its inputs -> its values, computed on a device node by node.
//!
//! An op that the backend lacks runs by its decomposition. The op `base` stands for the operation
//! of an adapter's site: no backend has it, and the caller computes it.
//!
//! Legend: `T` tokens of a launch, which are one sequence.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use espalier_compile::decompose::{BackendOps, decompose};
use espalier_compile::factors;
use espalier_compile::grad::Backward;
use espalier_compile::params::Dtypes;
use espalier_compile::splice::{Placed, UnitGraph};
use espalier_interface::graph::{Dim, Graph, Node, ValueId};
use espalier_interface::{
    BufferRange, Decoder, Device, Kernel, KernelRequest, Launch, MemoryKind, Operand, ParamOperand,
    PluginError, Prepared, Result, Stream, WeightLayout,
};
use espalier_numeric::numbers;

use crate::executor::Allocation;
use crate::kernel_cache::KernelCache;

/// A device and the kernels of graphs on it, which are released on drop.
pub struct GraphKernels {
    device: Arc<dyn Device>,
    ops: BackendOps,
    cache: RefCell<KernelCache>,
}

impl GraphKernels {
    /// No kernel yet; `ops` are those of the backend of `device`.
    pub fn new(device: Arc<dyn Device>, ops: BackendOps) -> Self {
        GraphKernels {
            cache: RefCell::new(KernelCache::new(&device)),
            device,
            ops,
        }
    }

    fn prepare(&self, request: &KernelRequest, decoders: &[Option<Decoder>]) -> Result<Prepared> {
        let mut cache = self.cache.borrow_mut();
        cache.prepare(&self.ops, request, decoders)
    }
}

impl Drop for GraphKernels {
    fn drop(&mut self) {
        // A failure to wait cannot be handled here. The cache releases the kernels.
        let _ = self.device.synchronize(Stream(0));
    }
}

/// A param of a graph with its bytes.
#[derive(Clone, Debug)]
pub struct DeviceParam {
    /// Its layout in memory.
    pub layout: WeightLayout,
    /// Its bytes: one array if dense, one a segment if packed.
    pub bytes: Vec<Vec<u8>>,
    /// For a format that describes no decoding.
    pub decoder: Option<Decoder>,
}

/// The sizes and dtypes of a graph's values.
#[derive(Clone, Copy, Debug)]
pub struct GraphLimits {
    /// Largest `T`.
    pub max_tokens: u64,
    /// The dtypes that the graph leaves open.
    pub dtypes: Dtypes,
}

/// A graph with its params on a device.
pub struct DeviceGraph<'a> {
    kernels: &'a GraphKernels,
    /// Its nodes are those that the backend has, and `base`.
    graph: Graph,
    /// The kernel of each node; none of `base`.
    prepared: Vec<Option<Kernel>>,
    limits: GraphLimits,
    /// The ranges of each param.
    params: Vec<Vec<Arc<Allocation>>>,
    /// The memory of each value that a node or an output uses.
    values: Vec<Option<Arc<Allocation>>>,
    workspace: Arc<Allocation>,
}

impl<'a> DeviceGraph<'a> {
    /// Prepares the kernels of `graph` and uploads `params`, one at a time in the graph's order.
    ///
    /// # Errors
    /// `UNSUPPORTED` for an op that the backend lacks and that cannot be decomposed, and for a
    /// value whose size is neither fixed nor `T` rows; errors of the device.
    pub fn new(
        kernels: &'a GraphKernels,
        graph: &Graph,
        params: impl IntoIterator<Item = DeviceParam>,
        limits: GraphLimits,
    ) -> Result<Self> {
        let graph = decomposed(graph, &kernels.ops, limits.dtypes)?;
        let device = &kernels.device;
        let mut ranges = Vec::with_capacity(graph.params.len());
        let mut layouts = Vec::with_capacity(graph.params.len());
        for param in params {
            let segments = param.bytes.iter().map(|bytes| {
                let memory = Allocation::new(device, bytes.len() as u64, MemoryKind::DEVICE)?;
                device.upload(bytes, part(&memory, bytes.len() as u64), Stream(0))?;
                Ok(memory)
            });
            ranges.push(segments.collect::<Result<_>>()?);
            layouts.push((param.layout, param.decoder));
        }
        let mut values = vec![None; graph.values.len()];
        let of_nodes = graph.nodes.iter();
        let of_nodes = of_nodes.flat_map(|node| node.inputs.iter().chain(&node.outputs));
        let outputs = graph.outputs.iter().map(|output| &output.value);
        for &value in of_nodes.chain(outputs) {
            if values[value].is_none() {
                let bytes = bytes(&graph, limits.dtypes, value, limits.max_tokens)?;
                values[value] = Some(Allocation::new(device, bytes, MemoryKind::DEVICE)?);
            }
        }
        let mut workspace_bytes = 0;
        let mut prepared = Vec::with_capacity(graph.nodes.len());
        for node in &graph.nodes {
            if is_base(node) {
                prepared.push(None);
                continue;
            }
            let request = request(&graph, node, &layouts, limits);
            let decoders = node.params.iter().map(|&param| layouts[param].1);
            let made = kernels.prepare(&request, &decoders.collect::<Vec<_>>())?;
            workspace_bytes = workspace_bytes.max(made.workspace_bytes);
            prepared.push(Some(made.kernel));
        }
        Ok(DeviceGraph {
            workspace: Allocation::new(device, workspace_bytes, MemoryKind::DEVICE)?,
            kernels,
            graph,
            prepared,
            limits,
            params: ranges,
            values,
        })
    }

    /// The graph as it runs: decomposed where the backend lacks an op.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Writes the first rows of a value, or all of it. A value that nothing reads has no memory.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn write(&self, value: ValueId, bytes: &[u8]) -> Result<()> {
        let Some(memory) = &self.values[value] else {
            return Ok(());
        };
        let range = part(memory, bytes.len() as u64);
        self.kernels.device.upload(bytes, range, Stream(0))
    }

    /// Computes node number `index` for `tokens` tokens.
    ///
    /// # Errors
    /// Errors of the device.
    ///
    /// # Panics
    /// For a node `base`.
    pub fn launch(&self, index: usize, tokens: u64) -> Result<()> {
        let node = &self.graph.nodes[index];
        let kernel = self.prepared[index].expect("the caller computes `base`");
        let mut ranges = Vec::new();
        for &value in &node.inputs {
            ranges.push(self.range(value, tokens)?);
        }
        let params = node.params.iter().flat_map(|&param| &self.params[param]);
        ranges.extend(params.map(|memory| memory.whole()));
        for &value in &node.outputs {
            ranges.push(self.range(value, tokens)?);
        }
        self.kernels.device.launch(&Launch {
            kernel,
            stream: Stream(0),
            ranges: &ranges,
            workspace: self.workspace.whole(),
            tokens,
            sequences: 1,
            scalars: &[],
        })
    }

    /// The value's elements for `tokens` tokens, row major.
    ///
    /// # Errors
    /// Errors of the device, of the earlier launches too.
    pub fn read(&self, value: ValueId, tokens: u64) -> Result<Vec<f64>> {
        let bytes = self.read_bytes(value, tokens)?;
        let dtype = self.graph.values[value].dtype;
        Ok(numbers(&bytes, self.limits.dtypes.resolve(dtype)))
    }

    /// The bytes of a value for `tokens` tokens.
    ///
    /// # Errors
    /// As [`DeviceGraph::read`].
    pub fn read_bytes(&self, value: ValueId, tokens: u64) -> Result<Vec<u8>> {
        let range = self.range(value, tokens)?;
        let mut bytes = vec![0; range.bytes as usize];
        let device = &self.kernels.device;
        device.download(range, &mut bytes, Stream(0))?;
        Ok(bytes)
    }

    /// The first `tokens` rows of a value; all of one whose size is fixed.
    fn range(&self, value: ValueId, tokens: u64) -> Result<BufferRange> {
        let bytes = bytes(&self.graph, self.limits.dtypes, value, tokens)?;
        let memory = self.values[value].as_ref();
        Ok(part(memory.expect("values in use have memory"), bytes))
    }
}

impl Drop for DeviceGraph<'_> {
    fn drop(&mut self) {
        // After a failed call launches may still use the memory that is freed now.
        let _ = self.kernels.device.synchronize(Stream(0));
    }
}

/// Whether the caller computes the node.
fn is_base(node: &Node) -> bool {
    node.op == "base"
}

/// `graph` with the ops that are not among `ops` decomposed, except `base`.
fn decomposed(graph: &Graph, ops: &BackendOps, dtypes: Dtypes) -> Result<Graph> {
    let mut unit = UnitGraph {
        graph: Graph {
            nodes: Vec::new(),
            ..graph.clone()
        },
        nodes: Vec::new(),
        params: (0..graph.params.len()).collect(),
    };
    let mut nodes = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        if is_base(node) {
            nodes.push(node.clone());
            continue;
        }
        unit.nodes.push(Placed {
            node: node.clone(),
            dropout: None,
            site: None,
        });
        let no_backward = &mut Backward::default();
        factors::round(&mut unit, no_backward, dtypes)?;
        decompose(&mut unit, no_backward, ops, dtypes, &mut BTreeSet::new())?;
        nodes.extend(unit.nodes.drain(..).map(|placed| placed.node));
    }
    Ok(Graph {
        nodes,
        ..unit.graph
    })
}

/// The request for the kernel of `node`.
fn request(
    graph: &Graph,
    node: &Node,
    layouts: &[(WeightLayout, Option<Decoder>)],
    limits: GraphLimits,
) -> KernelRequest {
    let operand = |&value: &ValueId| Operand {
        shape: graph.values[value].shape.clone(),
        dtype: limits.dtypes.resolve(graph.values[value].dtype),
    };
    let param = |&param: &usize| ParamOperand {
        shape: graph.params[param].shape.clone(),
        layout: layouts[param].0.clone(),
    };
    KernelRequest::new(&node.op)
        .version(node.version)
        .attributes(node.attributes.clone())
        .inputs(node.inputs.iter().map(operand).collect())
        .params(node.params.iter().map(param).collect())
        .outputs(node.outputs.iter().map(operand).collect())
        .limits(limits.max_tokens, 1)
}

/// Bytes of `value` for `tokens` tokens.
fn bytes(graph: &Graph, dtypes: Dtypes, value: ValueId, tokens: u64) -> Result<u64> {
    let ty = &graph.values[value];
    let extents = ty.shape.iter().enumerate().map(|(axis, dim)| match dim {
        Dim::Fixed(extent) => Some(*extent),
        Dim::Tokens if axis == 0 => Some(tokens),
        // All tokens of a launch are one sequence.
        Dim::Boundaries if axis == 0 => Some(2),
        _ => None,
    });
    match extents.collect::<Option<Vec<u64>>>() {
        Some(extents) => Ok(extents.iter().product::<u64>() * dtypes.resolve(ty.dtype).bytes()),
        None => Err(PluginError::unsupported(format!(
            "a value of shape {:?} and dtype {} is no row of numbers for each token",
            ty.shape, ty.dtype
        ))),
    }
}

fn part(memory: &Allocation, bytes: u64) -> BufferRange {
    BufferRange {
        bytes,
        ..memory.whole()
    }
}
