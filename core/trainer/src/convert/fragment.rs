//! An adapter's fragment and rows of its input -> rows of its output, on the device, in f32.
//!
//! Legend: `T` rows at once, `N x M` the site's weight.

use std::cell::RefCell;
use std::collections::HashMap;

use espalier_engine::executor::numbers;
use espalier_interface::graph::{Dim, Graph, Node, ValueId};
use espalier_interface::{
    Buffer, BufferRange, DType, Device, KernelRequest, Launch, MemoryKind, Operand, ParamOperand,
    PluginError, Prepared, Result, Stream, WeightLayout,
};

/// Kernels by their requests, so that equal ones are prepared once.
#[derive(Default)]
pub struct Kernels(RefCell<HashMap<String, Prepared>>);

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
pub struct Fragment<'a> {
    device: &'a dyn Device,
    kernels: &'a Kernels,
    graph: &'a Graph,
    /// Frees all buffers on drop.
    _memory: Memory<'a>,
    params: Vec<BufferRange>,
    values: Vec<Option<BufferRange>>,
    /// For each value, the one that it is: a dropout lets everything pass.
    same_as: Vec<ValueId>,
    max_rows: u64,
}

/// Refuses a graph with inputs other than its site's.
///
/// # Errors
/// Such a graph, and an incomplete one.
pub fn check(graph: &Graph) -> Result<()> {
    graph.validate()?;
    let same_as = same_as(graph);
    let own = graph.inputs.first().map(|input| input.value);
    let foreign = |value: &ValueId| {
        let value = same_as[*value];
        Some(value) != own && graph.inputs.iter().any(|input| input.value == value)
    };
    let mut nodes = graph.nodes.iter().filter(|node| node.op != "dropout");
    match nodes.find(|node| node.inputs.iter().any(foreign)) {
        None => Ok(()),
        Some(node) => Err(PluginError::unsupported(format!(
            "its op `{}` reads the position of a token, which a weight cannot hold",
            node.op
        ))),
    }
}

/// For each value, the one that it is: a dropout lets everything pass.
fn same_as(graph: &Graph) -> Vec<ValueId> {
    let mut same_as: Vec<ValueId> = (0..graph.values.len()).collect();
    for node in graph.nodes.iter().filter(|node| node.op == "dropout") {
        same_as[node.outputs[0]] = same_as[node.inputs[0]];
    }
    same_as
}

impl<'a> Fragment<'a> {
    /// Uploads `params`, in the graph's order, to the device; `max_rows` is the largest `T`.
    ///
    /// # Errors
    /// A graph that is incomplete or has other inputs than its site's, a value that is neither
    /// rows of numbers nor of a fixed size; errors of the device.
    pub fn new(
        device: &'a dyn Device,
        kernels: &'a Kernels,
        graph: &'a Graph,
        params: &[Vec<f32>],
        max_rows: u64,
    ) -> Result<Self> {
        check(graph)?;
        let mut memory = Memory {
            device,
            buffers: Vec::new(),
        };
        let mut ranges = Vec::with_capacity(params.len());
        for values in params {
            let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
            let range = memory.alloc(bytes.len() as u64)?;
            device.upload(&bytes, range, Stream(0))?;
            ranges.push(range);
        }
        let same_as = same_as(graph);
        let read: Vec<ValueId> = graph
            .nodes
            .iter()
            .filter(|node| node.op != "dropout")
            .flat_map(|node| node.inputs.iter().chain(&node.outputs))
            .map(|&value| same_as[value])
            .collect();
        let mut values = vec![None; graph.values.len()];
        for value in read {
            if values[value].is_none() {
                let elements = elements(graph, value, max_rows)?;
                values[value] = Some(memory.alloc(elements * 4)?);
            }
        }
        Ok(Fragment {
            device,
            kernels,
            graph,
            _memory: memory,
            params: ranges,
            values,
            same_as,
            max_rows,
        })
    }

    /// The output for `count` rows, `[T, N]`.
    ///
    /// # Errors
    /// What the device reports.
    pub fn run(
        &mut self,
        rows: &InputRows<'_>,
        count: u64,
        base: &ComputeBase<'_>,
    ) -> Result<Vec<f32>> {
        let own = self.graph.inputs[0].value;
        let bytes: Vec<u8> = match rows {
            InputRows::Vectors(values) => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
            InputRows::Tokens(tokens) => tokens.iter().flat_map(|x| x.to_le_bytes()).collect(),
        };
        if let Some(range) = self.values[own] {
            let range = part(range, bytes.len() as u64);
            self.device.upload(&bytes, range, Stream(0))?;
        }
        for node in self.graph.nodes.iter().filter(|node| node.op != "dropout") {
            match node.op.as_str() {
                "base" => self.base(node, own, count, base)?,
                _ => self.launch(node, count)?,
            }
        }
        self.download(self.graph.outputs[0].value, count)
    }

    fn base(&self, node: &Node, own: ValueId, count: u64, base: &ComputeBase<'_>) -> Result<()> {
        let input = self.same_as[node.inputs[0]];
        let out = if input == own {
            base(BaseInput::Own)
        } else {
            base(BaseInput::Computed(&self.download(input, count)?))
        };
        let bytes: Vec<u8> = out.iter().flat_map(|x| x.to_le_bytes()).collect();
        let range = self.range(node.outputs[0], count)?;
        self.device.upload(&bytes, range, Stream(0))
    }

    fn launch(&self, node: &Node, count: u64) -> Result<()> {
        let operand = |&value: &ValueId| {
            let ty = &self.graph.values[self.same_as[value]];
            Operand {
                shape: ty.shape.clone(),
                dtype: concrete(ty.dtype),
            }
        };
        let request = KernelRequest {
            op: node.op.clone(),
            version: node.version,
            attributes: node.attributes.clone(),
            inputs: node.inputs.iter().map(operand).collect(),
            params: node
                .params
                .iter()
                .map(|&param| ParamOperand {
                    shape: self.graph.params[param].shape.clone(),
                    layout: WeightLayout::Dense(DType::F32),
                })
                .collect(),
            outputs: node.outputs.iter().map(operand).collect(),
            max_tokens: self.max_rows,
            max_sequences: 1,
        };
        let prepared = self.kernels.prepare(self.device, &request)?;
        let mut ranges = Vec::new();
        for &value in &node.inputs {
            ranges.push(self.range(value, count)?);
        }
        ranges.extend(node.params.iter().map(|&param| self.params[param]));
        for &value in &node.outputs {
            ranges.push(self.range(value, count)?);
        }
        let mut workspace = Memory {
            device: self.device,
            buffers: Vec::new(),
        };
        self.device.launch(&Launch {
            kernel: prepared.kernel,
            stream: Stream(0),
            ranges: &ranges,
            workspace: workspace.alloc(prepared.workspace_bytes)?,
            tokens: count,
            sequences: 1,
            scalars: &[],
        })?;
        self.device.synchronize(Stream(0))
    }

    fn download(&self, value: ValueId, count: u64) -> Result<Vec<f32>> {
        let range = self.range(value, count)?;
        let mut bytes = vec![0; range.bytes as usize];
        self.device.download(range, &mut bytes, Stream(0))?;
        let values = numbers(&bytes, DType::F32).into_iter();
        Ok(values.map(|x| x as f32).collect())
    }

    /// The first `count` rows of a value; all of one whose size is fixed.
    fn range(&self, value: ValueId, count: u64) -> Result<BufferRange> {
        let value = self.same_as[value];
        let elements = elements(self.graph, value, count)?;
        let range = self.values[value].expect("every value that a node has, has a place");
        Ok(part(range, elements * 4))
    }
}

impl Kernels {
    fn prepare(&self, device: &dyn Device, request: &KernelRequest) -> Result<Prepared> {
        let key = serde_json::to_string(request).expect("a request is plain data");
        if let Some(prepared) = self.0.borrow().get(&key) {
            return Ok(*prepared);
        }
        let decoders = vec![None; request.params.len()];
        let prepared = device.prepare(request, &decoders)?;
        self.0.borrow_mut().insert(key, prepared);
        Ok(prepared)
    }
}

/// Buffers that are freed together.
struct Memory<'a> {
    device: &'a dyn Device,
    buffers: Vec<Buffer>,
}

impl Memory<'_> {
    fn alloc(&mut self, bytes: u64) -> Result<BufferRange> {
        let bytes = bytes.max(1);
        let buffer = self.device.alloc(bytes, MemoryKind::DEVICE)?;
        self.buffers.push(buffer);
        Ok(BufferRange {
            buffer,
            offset: 0,
            bytes,
        })
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        for &buffer in &self.buffers {
            // A buffer that cannot be freed is ignored; the process ends soon.
            let _ = self.device.free(buffer);
        }
    }
}

fn part(range: BufferRange, bytes: u64) -> BufferRange {
    BufferRange { bytes, ..range }
}

/// Elements of `value` for `rows` tokens; all dtypes of a merge have four bytes.
fn elements(graph: &Graph, value: ValueId, rows: u64) -> Result<u64> {
    let ty = &graph.values[value];
    let extents = ty.shape.iter().enumerate().map(|(axis, dim)| match dim {
        Dim::Fixed(extent) => Some(*extent),
        Dim::Tokens if axis == 0 => Some(rows),
        _ => None,
    });
    let extents = extents.collect::<Option<Vec<u64>>>();
    match extents.filter(|_| concrete(ty.dtype).bytes() == 4) {
        Some(extents) => Ok(extents.into_iter().product()),
        None => Err(PluginError::unsupported(format!(
            "a value of shape {:?} and dtype {} is no row of numbers for each token",
            ty.shape, ty.dtype
        ))),
    }
}

/// f32 for the dtypes that a run sets.
fn concrete(dtype: DType) -> DType {
    match dtype {
        DType::COMPUTE | DType::REDUCE => DType::F32,
        other => other,
    }
}
