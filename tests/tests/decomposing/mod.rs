//! A device -> one that lacks ops, and runs them by their decompositions.

use std::collections::{BTreeSet, HashMap};
use std::ptr::NonNull;
use std::sync::Mutex;

use espalier_compile::decompose::{BackendOps, decompose};
use espalier_compile::grad::{Backward, GradNode, Target};
use espalier_compile::params::Dtypes;
use espalier_compile::splice::UnitGraph;
use espalier_interface::graph::{Dim, Graph, ValueType};
use espalier_interface::op::{DEFINITIONS, definition};
use espalier_interface::{
    Buffer, BufferRange, DType, Decoder, Device, Event, Kernel, KernelRequest, Kernels, Launch,
    Memory, MemoryKind, OpId, Operand, ParamOperand, Prepared, Result, Stream, Streams,
    WeightLayout,
};

/// A device that runs one op by its decomposition.
pub struct Decomposing {
    device: Box<dyn Device>,
    hidden: OpId,
    /// The kernels that are sequences of others, by number.
    sequences: Mutex<HashMap<u64, Sequence>>,
}

/// A decomposed kernel.
struct Sequence {
    request: KernelRequest,
    values: Vec<Operand>,
    /// For each of its parts: kernel, operands, and whether it takes the op's scalars.
    parts: Vec<Part>,
    /// Values and params that are operands of the whole, in the order of a launch.
    whole: Vec<OperandId>,
}

struct Part {
    prepared: Prepared,
    operands: Vec<OperandId>,
    takes_scalars: bool,
}

/// What an operand is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OperandId {
    Value(usize),
    /// A param, and which of its ranges.
    Param(usize, usize),
    Gradient(usize),
}

impl Decomposing {
    /// `device` without the op `hidden`.
    pub fn new(device: Box<dyn Device>, hidden: OpId) -> Self {
        Decomposing {
            device,
            hidden,
            sequences: Mutex::default(),
        }
    }

    /// The kernels of the parts of `request`.
    fn sequence(&self, request: &KernelRequest, decoders: &[Option<Decoder>]) -> Result<Sequence> {
        let mut whole = WholeCall::of(request);
        let listed = DEFINITIONS.iter().map(|op| op.id());
        let listed = listed.filter(|op| *op != self.hidden);
        let ops = BackendOps::new("test", Some(listed.collect()));
        let (unit, backward) = (&mut whole.unit, &mut whole.backward);
        decompose(unit, backward, &ops, whole.dtypes, &mut BTreeSet::new())?;
        let values = whole.unit.graph.values.iter().map(|value| Operand {
            shape: value.shape.clone(),
            dtype: whole.dtypes.resolve(value.dtype),
        });
        let values: Vec<Operand> = values.collect();
        let nodes = whole.backward.nodes.iter();
        let operands = (&values[..], &whole.params[..], decoders);
        let parts = nodes.map(|node| self.part(node, request, operands));
        Ok(Sequence {
            request: request.clone(),
            parts: parts.collect::<Result<_>>()?,
            values,
            whole: whole.places,
        })
    }

    /// The kernel of a part of `whole`.
    fn part(
        &self,
        node: &GradNode,
        whole: &KernelRequest,
        (values, params, decoders): (&[Operand], &[ParamOperand], &[Option<Decoder>]),
    ) -> Result<Part> {
        let outputs = node.outputs.iter();
        let outputs = outputs.map(|target| of_target(target, values, params));
        let request = KernelRequest::new(node.op)
            .version(node.version)
            .attributes(node.attributes.clone())
            .inputs(node.inputs.iter().map(|&id| values[id].clone()).collect())
            .params(node.params.iter().map(|&id| params[id].clone()).collect())
            .outputs(outputs.collect())
            .limits(whole.max_tokens, whole.max_sequences);
        // As the boundary does.
        request.validate()?;
        let call = request.call().expect("a part is an op");
        let decoders: Vec<_> = node.params.iter().map(|&id| decoders[id]).collect();
        Ok(Part {
            prepared: self.device.prepare(&request, &decoders)?,
            operands: places(&node.inputs, &node.params, &node.outputs, params),
            takes_scalars: !call.definition.scalars.is_empty(),
        })
    }

    fn run(&self, sequence: &Sequence, launch: &Launch<'_>) -> Result<()> {
        let mut taken: Vec<Buffer> = Vec::new();
        let mut alloc = |bytes: u64| -> Result<BufferRange> {
            let buffer = self.device.alloc(bytes.max(1), MemoryKind::DEVICE)?;
            taken.push(buffer);
            Ok(BufferRange {
                buffer,
                offset: 0,
                bytes,
            })
        };
        let mut own: HashMap<usize, BufferRange> = HashMap::new();
        for part in &sequence.parts {
            let mut ranges = Vec::with_capacity(part.operands.len());
            for place in &part.operands {
                let given = sequence.whole.iter().position(|whole| whole == place);
                ranges.push(match (given, *place) {
                    (Some(index), _) => launch.ranges[index],
                    (None, OperandId::Value(id)) => match own.get(&id) {
                        Some(range) => *range,
                        None => {
                            let bytes = bytes(&sequence.values[id], launch);
                            let range = alloc(bytes)?;
                            own.insert(id, range);
                            range
                        }
                    },
                    (None, _) => unreachable!("params and gradients are the whole's"),
                });
            }
            let workspace = alloc(part.prepared.workspace_bytes)?;
            self.device.launch(&Launch {
                kernel: part.prepared.kernel,
                stream: launch.stream,
                ranges: &ranges,
                workspace,
                tokens: launch.tokens,
                sequences: launch.sequences,
                scalars: if part.takes_scalars {
                    launch.scalars
                } else {
                    &[]
                },
            })?;
        }
        taken
            .into_iter()
            .try_for_each(|buffer| self.device.free(buffer))
    }
}

/// A request as the only call of a unit's backward pass.
struct WholeCall {
    unit: UnitGraph,
    backward: Backward,
    dtypes: Dtypes,
    /// Params of the unit: those that are read, and those whose gradients are outputs.
    params: Vec<ParamOperand>,
    places: Vec<OperandId>,
}

impl WholeCall {
    fn of(request: &KernelRequest) -> Self {
        let mut graph = Graph::new("whole");
        let mut params = request.params.clone();
        for param in &params {
            graph.param("param", param.shape.clone());
        }
        let inputs = request
            .inputs
            .iter()
            .map(|operand| value(&mut graph, operand));
        let inputs: Vec<usize> = inputs.collect();
        let mut outputs = Vec::new();
        for operand in &request.outputs {
            if operand.shape.contains(&Dim::Tokens) {
                outputs.push(Target::Value(value(&mut graph, operand)));
                continue;
            }
            let extents = operand.shape.iter().map(|dim| match dim {
                Dim::Fixed(extent) => *extent,
                _ => 1,
            });
            let shape: Vec<u64> = extents.collect();
            params.push(ParamOperand {
                shape: shape.clone(),
                layout: WeightLayout::Dense(operand.dtype),
            });
            outputs.push(Target::Gradient(graph.param("gradient", shape)));
        }
        let read: Vec<usize> = (0..request.params.len()).collect();
        let places = places(&inputs, &read, &outputs, &params);
        let node = GradNode {
            op: definition(&request.op, request.version)
                .expect("an op of the interface")
                .name,
            version: request.version,
            inputs,
            params: read,
            outputs,
            attributes: request.attributes.clone(),
            dropout: None,
            site: None,
        };
        let reduce = reduced(request);
        let mut outputs = request.outputs.iter();
        let gradients = outputs.find(|operand| !operand.shape.contains(&Dim::Tokens));
        WholeCall {
            unit: UnitGraph {
                params: (0..graph.params.len()).collect(),
                graph,
                nodes: Vec::new(),
            },
            backward: Backward {
                nodes: vec![node],
                ..Backward::default()
            },
            dtypes: Dtypes {
                compute: request.outputs[0].dtype,
                reduce,
                params: reduce,
                gradients: gradients.map_or(reduce, |operand| operand.dtype),
            },
            params,
            places,
        }
    }
}

/// A value of the type of `operand`.
fn value(graph: &mut Graph, operand: &Operand) -> usize {
    graph.values.push(ValueType {
        shape: operand.shape.clone(),
        dtype: operand.dtype,
    });
    graph.values.len() - 1
}

/// Operands in the order of a launch: inputs, params, outputs.
fn places(
    inputs: &[usize],
    read: &[usize],
    outputs: &[Target],
    params: &[ParamOperand],
) -> Vec<OperandId> {
    let inputs = inputs.iter().map(|&id| OperandId::Value(id));
    let params = read.iter().flat_map(|&id| {
        let ranges = match &params[id].layout {
            WeightLayout::Dense(_) => 1,
            WeightLayout::Packed(format) => format.segments.len(),
        };
        (0..ranges).map(move |range| OperandId::Param(id, range))
    });
    let outputs = outputs.iter().map(|target| match *target {
        Target::Value(id) => OperandId::Value(id),
        Target::Gradient(id) => OperandId::Gradient(id),
    });
    inputs.chain(params).chain(outputs).collect()
}

fn of_target(target: &Target, values: &[Operand], params: &[ParamOperand]) -> Operand {
    match *target {
        Target::Value(id) => values[id].clone(),
        Target::Gradient(id) => Operand {
            shape: params[id].shape.iter().map(|&n| Dim::Fixed(n)).collect(),
            dtype: match params[id].layout {
                WeightLayout::Dense(dtype) => dtype,
                WeightLayout::Packed(_) => DType::F32,
            },
        },
    }
}

/// The reduce dtype of a request.
fn reduced(request: &KernelRequest) -> DType {
    let operands = || request.inputs.iter().chain(&request.outputs);
    if operands().any(|operand| operand.dtype == DType::F64) {
        DType::F64
    } else {
        DType::F32
    }
}

fn bytes(operand: &Operand, launch: &Launch<'_>) -> u64 {
    let extents = operand.shape.iter().map(|dim| match *dim {
        Dim::Tokens => launch.tokens,
        Dim::Boundaries => launch.sequences + 1,
        Dim::Fixed(extent) => extent,
    });
    extents.product::<u64>() * operand.dtype.bytes()
}

impl Memory for Decomposing {
    fn alloc(&self, bytes: u64, kind: MemoryKind) -> Result<Buffer> {
        self.device.alloc(bytes, kind)
    }

    fn free(&self, buffer: Buffer) -> Result<()> {
        self.device.free(buffer)
    }

    fn upload(&self, from: &[u8], to: BufferRange, stream: Stream) -> Result<()> {
        self.device.upload(from, to, stream)
    }

    fn download(&self, from: BufferRange, to: &mut [u8], stream: Stream) -> Result<()> {
        self.device.download(from, to, stream)
    }

    fn copy(&self, from: BufferRange, to: BufferRange, stream: Stream) -> Result<()> {
        self.device.copy(from, to, stream)
    }

    fn host_address(&self, range: BufferRange) -> Option<NonNull<u8>> {
        self.device.host_address(range)
    }
}

impl Streams for Decomposing {
    fn stream(&self) -> Result<Stream> {
        self.device.stream()
    }

    fn record(&self, stream: Stream) -> Result<Event> {
        self.device.record(stream)
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<()> {
        self.device.wait(stream, event)
    }

    fn synchronize(&self, stream: Stream) -> Result<()> {
        self.device.synchronize(stream)
    }
}

impl Kernels for Decomposing {
    fn prepare(&self, request: &KernelRequest, decoders: &[Option<Decoder>]) -> Result<Prepared> {
        let sequence = self.sequence(request, decoders)?;
        let mut sequences = self.sequences.lock().expect("no test panics within");
        let kernel = Kernel(sequences.len() as u64);
        sequences.insert(kernel.0, sequence);
        Ok(Prepared {
            kernel,
            workspace_bytes: 0,
        })
    }

    fn launch(&self, launch: &Launch<'_>) -> Result<()> {
        let sequences = self.sequences.lock().expect("no test panics within");
        let sequence = &sequences[&launch.kernel.0];
        assert!(launch.tokens <= sequence.request.max_tokens);
        self.run(sequence, launch)
    }
}
