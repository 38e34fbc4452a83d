//! Steps -> prepared kernels with resolved operands, and the launch itself.

use std::cell::RefCell;
use std::collections::HashMap;

use espalier_compile::params::{Dtypes, Param};
use espalier_compile::program::{Extent, OperandPlace, Program, Region, Scalars, Step};
use espalier_interface::format::Decoding;
use espalier_interface::graph::{Attributes, Dim};
use espalier_interface::{
    BufferRange, DType, Decoder, Device, ErrorCode, Kernel, KernelRequest, Launch, Operand,
    PluginError, Quantizer, Result, Stream, WeightLayout,
};
use espalier_plan::shard_layout::ShardLayout;
use espalier_plan::step_plan::{self, RegionKind};
use espalier_registry::answer::MOST_BYTES;
use espalier_registry::{Chosen, PluginFailure};

use super::Executor;
use super::storage::part;
use crate::Error;
use crate::decoder::Callback;
use crate::error::BackendCall;

/// Numbers of a micro-batch that launches take.
#[derive(Clone, Copy)]
pub(super) struct Numbers {
    pub(super) tokens: u64,
    pub(super) sequences: u64,
    pub(super) seed: u64,
    pub(super) step: u64,
    pub(super) loss_factor: f64,
    /// Dropout lets everything pass.
    pub(super) evaluate: bool,
}

/// A run of tokens that one launch works on.
#[derive(Clone, Copy)]
pub(super) struct Window {
    pub(super) first: u64,
    pub(super) tokens: u64,
}

impl Window {
    pub(super) fn whole(tokens: u64) -> Self {
        Window { first: 0, tokens }
    }
}

impl Numbers {
    /// The micro-batch in windows of at most `most` tokens.
    pub(super) fn windows(&self, most: u64) -> impl Iterator<Item = Window> + use<> {
        let tokens = self.tokens;
        (0..tokens.div_ceil(most.max(1))).map(move |index| Window {
            first: index * most,
            tokens: most.min(tokens - index * most),
        })
    }
}

/// A kernel and where its operands lie.
pub(super) struct PreparedStep {
    kernel: Kernel,
    operands: Vec<OperandPlace>,
    scalars: Scalars,
}

/// The launches of a unit.
pub(super) struct PreparedUnit {
    pub(super) forward: Vec<PreparedStep>,
    pub(super) backward: Vec<PreparedStep>,
}

/// Kernels on what is trained of a unit.
pub(super) struct TrainedKernels {
    /// On the gradients of a micro-batch, before they are reduced.
    pub(super) zero: Kernel,
    /// On the gradients that this rank keeps.
    pub(super) sum_squares: Kernel,
    /// On all that this rank keeps.
    pub(super) adamw: Kernel,
}

/// All kernels of a run.
pub struct PreparedKernels {
    pub(super) units: Vec<PreparedUnit>,
    /// Units of what generates beside the program.
    pub(super) generator: Vec<PreparedUnit>,
    /// Sets the gradients that are not cut to zero; none where there are none.
    pub(super) zero_whole: Option<Kernel>,
    /// One for each unit that has something to train.
    pub(super) trained: Vec<Option<TrainedKernels>>,
    /// Casts of gradients by dtypes and elements.
    pub(super) casts: HashMap<([DType; 2], u64), Kernel>,
    /// What kernels call for weights that only their quantizer decodes.
    pub(super) callbacks: Vec<&'static Callback>,
    /// Bytes of workspace that the hungriest kernel needs.
    pub workspace_bytes: u64,
}

impl PreparedKernels {
    /// Asks `device` for every kernel of a program, and of what generates beside it; equal requests share one.
    ///
    /// # Errors
    /// What the backend refuses, op named.
    pub fn new(
        device: &dyn Device,
        (program, generator): (&Program, Option<&Program>),
        params: &[Param],
        dtypes: Dtypes,
        shard_layout: &ShardLayout,
        quantizers: &HashMap<usize, Chosen<dyn Quantizer>>,
    ) -> Result<Self> {
        let mut maker = Maker {
            device,
            params,
            quantizers,
            callbacks: Vec::new(),
            made: HashMap::new(),
            workspace_bytes: 0,
        };
        let units = maker.units(program)?;
        let generator = generator.map_or(Ok(Vec::new()), |program| maker.units(program))?;
        let [gradients, _] = shard_layout.whole_elements();
        let zero_whole = match gradients {
            0 => None,
            all => Some(maker.flat("zero", vec![], vec![flat(all, dtypes.reduce)])?),
        };
        let mut trained = Vec::with_capacity(program.units.len());
        for unit in 0..program.units.len() {
            trained.push(match shard_layout.runs[unit].elements {
                0 => None,
                _ => Some(maker.trained(shard_layout, unit, dtypes)?),
            });
        }
        let mut casts = HashMap::new();
        for (dtypes, count) in shard_layout.casts(dtypes) {
            let [from, to] = dtypes.map(|dtype| vec![flat(count, dtype)]);
            casts.insert((dtypes, count), maker.flat("cast", from, to)?);
        }
        Ok(PreparedKernels {
            units,
            generator,
            zero_whole,
            trained,
            casts,
            callbacks: maker.callbacks,
            workspace_bytes: maker.workspace_bytes,
        })
    }

    /// The cast of `count` elements.
    pub(super) fn cast(&self, dtypes: [DType; 2], count: u64) -> Option<Kernel> {
        self.casts.get(&(dtypes, count)).copied()
    }
}

/// A run of `count` elements.
fn flat(count: u64, dtype: DType) -> Operand {
    Operand {
        shape: vec![Dim::Fixed(count)],
        dtype,
    }
}

/// Prepares kernels and remembers them by their request.
struct Maker<'a> {
    device: &'a dyn Device,
    params: &'a [Param],
    quantizers: &'a HashMap<usize, Chosen<dyn Quantizer>>,
    callbacks: Vec<&'static Callback>,
    made: HashMap<String, Kernel>,
    workspace_bytes: u64,
}

impl Maker<'_> {
    fn units(&mut self, program: &Program) -> Result<Vec<PreparedUnit>> {
        let units = program.units.iter().map(|unit| {
            Ok(PreparedUnit {
                forward: self.steps(&unit.forward)?,
                backward: self.steps(&unit.backward)?,
            })
        });
        units.collect()
    }

    fn steps(&mut self, steps: &[Step]) -> Result<Vec<PreparedStep>> {
        steps
            .iter()
            .map(|step| {
                let params = step.operands.iter().filter_map(|operand| match operand {
                    OperandPlace::Param(param) => Some(*param),
                    _ => None,
                });
                let params: Vec<usize> = params.collect();
                let kernel = self.kernel(&step.request, &params)?;
                Ok(PreparedStep {
                    kernel,
                    operands: step.operands.clone(),
                    scalars: step.scalars,
                })
            })
            .collect()
    }

    /// The kernels on what is trained of a unit.
    fn trained(
        &mut self,
        shard_layout: &ShardLayout,
        unit: usize,
        dtypes: Dtypes,
    ) -> Result<TrainedKernels> {
        let own = shard_layout.own_elements(unit);
        let all = if shard_layout.is_cut(unit) {
            own * shard_layout.parts
        } else {
            own
        };
        let state = flat(own, dtypes.reduce);
        let updated = vec![flat(own, dtypes.params), state.clone(), state.clone()];
        let sum = vec![flat(1, DType::F64)];
        Ok(TrainedKernels {
            zero: self.flat("zero", vec![], vec![flat(all, dtypes.reduce)])?,
            sum_squares: self.flat("sum_squares", vec![state.clone()], sum)?,
            adamw: self.flat("adamw", vec![state], updated)?,
        })
    }

    fn flat(&mut self, op: &str, inputs: Vec<Operand>, outputs: Vec<Operand>) -> Result<Kernel> {
        let request = KernelRequest {
            op: op.to_owned(),
            version: 1,
            attributes: Attributes::new(),
            inputs,
            params: vec![],
            outputs,
            max_tokens: 0,
            max_sequences: 0,
        };
        self.kernel(&request, &[])
    }

    fn kernel(&mut self, request: &KernelRequest, params: &[usize]) -> Result<Kernel> {
        let decoders: Vec<Option<Decoder>> = request
            .params
            .iter()
            .zip(params)
            .map(|(operand, param)| match &operand.layout {
                WeightLayout::Packed(format) if format.decoding == Decoding::Callback => {
                    let quantizer = self.quantizers.get(param)?;
                    let name = &self.params[*param].name;
                    let callback = Callback::new(quantizer, name, format.shape);
                    self.callbacks.push(callback);
                    Some(callback.decoder())
                }
                _ => None,
            })
            .collect();
        let shared = decoders.iter().all(Option::is_none);
        let key = serde_json::to_string(request).expect("a request is plain data");
        if let (true, Some(&kernel)) = (shared, self.made.get(&key)) {
            return Ok(kernel);
        }
        let prepared = self.device.prepare(request, &decoders)?;
        if prepared.workspace_bytes > MOST_BYTES {
            let message = format!(
                "a kernel of op `{}` asks for {} bytes of workspace",
                request.op, prepared.workspace_bytes
            );
            return Err(PluginError::new(ErrorCode::PROTOCOL, message));
        }
        self.workspace_bytes = self.workspace_bytes.max(prepared.workspace_bytes);
        if shared {
            self.made.insert(key, prepared.kernel);
        }
        Ok(prepared.kernel)
    }
}

impl Executor {
    /// Launches a unit's step for a window of the micro-batch; what is not whole on the device between steps lies in
    /// `regions`.
    pub(super) fn launch(
        &self,
        step: &PreparedStep,
        numbers: &Numbers,
        window: Window,
        regions: &[step_plan::Region],
    ) -> crate::Result<()> {
        self.peers.beat();
        thread_local! {
            /// The ranges of the launch at hand; reused, so that a step allocates nothing.
            static RANGES: RefCell<Vec<BufferRange>> = const { RefCell::new(Vec::new()) };
        }
        RANGES.with_borrow_mut(|ranges| {
            ranges.clear();
            for operand in &step.operands {
                match *operand {
                    OperandPlace::Param(param) => self.param(param, regions, ranges)?,
                    OperandPlace::Gradient(param) => {
                        ranges.push(self.gradient(param, regions)?);
                    }
                    OperandPlace::Value(place) => {
                        let bytes = place.extent.bytes(window.tokens, numbers.sequences);
                        let skipped = match place.extent {
                            Extent::PerToken(each) if place.by_chunk => each * window.first,
                            _ => 0,
                        };
                        let offset = place.offset + skipped;
                        ranges.push(self.value(place.region, offset, bytes, regions));
                    }
                }
            }
            if numbers.evaluate && matches!(step.scalars, Scalars::Dropout(_)) {
                let (from, to) = (ranges[0], *ranges.last().expect("a dropout has an output"));
                let copied = self.device.copy(from, to, Stream(0));
                return copied.during("copy");
            }
            let seed = [numbers.seed as u32, (numbers.seed >> 32) as u32].map(f64::from);
            let dropout;
            let factor;
            let scalars: &[f64] = match step.scalars {
                Scalars::None => &[],
                Scalars::Dropout(number) => {
                    dropout = [seed[0], seed[1], numbers.step as f64, number as f64];
                    &dropout
                }
                Scalars::LossFactor => {
                    factor = [numbers.loss_factor];
                    &factor
                }
            };
            let launched = self.device.launch(&Launch {
                kernel: step.kernel,
                stream: Stream(0),
                ranges,
                workspace: self.storage.workspace(),
                tokens: window.tokens,
                sequences: numbers.sequences,
                scalars,
            });
            launched.map_err(|error| self.launch_failed(error))
        })
    }

    /// `bytes` bytes of a value from byte `offset` of its region on.
    pub(super) fn value(
        &self,
        region: Region,
        offset: u64,
        bytes: u64,
        regions: &[step_plan::Region],
    ) -> BufferRange {
        match region {
            Region::Arena => self.storage.arena_range(offset, bytes),
            Region::Batch(tensor) => self.storage.batch_range(tensor, offset, bytes),
            Region::Saved(unit) => {
                let mut regions = regions.iter();
                let brought = regions.find(|one| one.unit == unit && one.held == RegionKind::Saved);
                match brought {
                    Some(region) => self.storage.region(region.offset + offset, bytes),
                    None => {
                        let at = self.shard_layout.saved[unit].stays_at;
                        let at = at.expect("a block that leaves has a region");
                        let behind = self.program.arena.bytes() + at;
                        self.storage.arena_range(behind + offset, bytes)
                    }
                }
            }
        }
    }

    /// The ranges of a param, where it is whole.
    fn param(
        &self,
        param: usize,
        regions: &[step_plan::Region],
        ranges: &mut Vec<BufferRange>,
    ) -> crate::Result<()> {
        let resident = self.storage.param(param);
        if !resident.is_empty() {
            ranges.extend(resident);
            return Ok(());
        }
        let unit = self.params[param].unit;
        let runs = &self.shard_layout.runs[unit];
        if self.params[param].trainable {
            let run = self.whole(unit, RegionKind::Trainable, regions)?;
            ranges.push(part(
                run,
                runs.elements_of(param),
                self.dtypes.params.bytes(),
            ));
        } else {
            let run = self.whole(unit, RegionKind::Frozen, regions)?;
            let segments = runs.segments_of(param).iter();
            ranges.extend(segments.map(|bytes| part(run, bytes, 1)));
        }
        Ok(())
    }

    /// The gradient that a micro-batch adds to.
    fn gradient(&self, param: usize, regions: &[step_plan::Region]) -> crate::Result<BufferRange> {
        if let Some(resident) = self.storage.gradient(param) {
            return Ok(resident);
        }
        let unit = self.params[param].unit;
        let run = self.whole(unit, RegionKind::Gradients, regions)?;
        let elements = self.shard_layout.runs[unit].elements_of(param);
        Ok(part(run, elements, self.dtypes.reduce.bytes()))
    }

    /// The region of a unit that holds `held`.
    fn whole(
        &self,
        unit: usize,
        held: RegionKind,
        regions: &[step_plan::Region],
    ) -> crate::Result<BufferRange> {
        let mut regions = regions.iter();
        let found = regions.find(|region| region.unit == unit && region.held == held);
        match found {
            Some(region) => Ok(self.storage.region(region.offset, region.bytes)),
            None => Err(PluginError::unsupported(format!(
                "unit `{}` is not on the device as a whole: this needs a run on one rank without offload \
                 (`--plugins single`)",
                self.program.units[unit].name
            ))
            .into()),
        }
    }

    /// Launches an op on flat runs.
    pub(super) fn launch_flat(
        &self,
        kernel: &Kernel,
        ranges: &[BufferRange],
        scalars: &[f64],
    ) -> crate::Result<()> {
        self.launch_on(Stream(0), kernel, ranges, scalars)
    }

    /// Launches an op on flat runs that needs no workspace, or is on the compute stream.
    pub(super) fn launch_on(
        &self,
        stream: Stream,
        kernel: &Kernel,
        ranges: &[BufferRange],
        scalars: &[f64],
    ) -> crate::Result<()> {
        let launched = self.device.launch(&Launch {
            kernel: *kernel,
            stream,
            ranges,
            workspace: self.storage.workspace(),
            tokens: 0,
            sequences: 0,
            scalars,
        });
        launched.map_err(|error| self.launch_failed(error))
    }

    /// A launch fails where the quantizer of its weight fails to decode; else it is the backend's failure.
    fn launch_failed(&self, error: PluginError) -> Error {
        let mut callbacks = self.prepared.callbacks.iter();
        let decode = callbacks.find_map(|callback| callback.failure());
        decode.unwrap_or_else(|| Error::from(PluginFailure::new("backend", "launch", error)))
    }
}
