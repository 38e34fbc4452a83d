//! Steps -> prepared kernels with resolved operands, and the launch itself.

use std::cell::RefCell;
use std::collections::HashMap;

use espalier_interface::format::Decoding;
use espalier_interface::graph::{Attributes, Dim};
use espalier_interface::{
    BufferRange, DType, Decoder, Device, ErrorCode, Kernel, KernelRequest, Launch, Operand,
    PluginError, Quantizer, Result, Stream, WeightLayout,
};

use super::{Executor, Storage};
use crate::Error;
use crate::answer::MOST_BYTES;
use crate::decoder::Callback;
use crate::error::BackendCall;
use crate::params::{Dtypes, Param};
use crate::program::{Extent, OperandPlace, Program, Region, Scalars, Step};
use crate::select::Chosen;

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

/// Kernels on all gradients at once.
pub(super) struct GradientKernels {
    pub(super) zero: Kernel,
    pub(super) sum_squares: Kernel,
}

/// All kernels of a run.
pub struct Prepared {
    pub(super) units: Vec<PreparedUnit>,
    /// Units of what generates beside the program.
    pub(super) generator: Vec<PreparedUnit>,
    /// None where nothing is trained.
    pub(super) gradients: Option<GradientKernels>,
    /// One for each unit that has something to train.
    pub(super) adamw: Vec<Option<Kernel>>,
    /// What kernels call for weights that only their quantizer decodes.
    pub(super) callbacks: Vec<&'static Callback>,
    /// Bytes of workspace that the hungriest kernel needs.
    pub workspace_bytes: u64,
}

impl Prepared {
    /// Asks `device` for every kernel of a program, and of what generates beside it; equal requests share one.
    ///
    /// # Errors
    /// What the backend refuses, op named.
    pub fn new(
        device: &dyn Device,
        (program, generator): (&Program, Option<&Program>),
        params: &[Param],
        dtypes: Dtypes,
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
        let flat = |count: u64, dtype: DType| Operand {
            shape: vec![Dim::Fixed(count)],
            dtype,
        };
        let gradients = match Storage::trainable_elements(params) {
            0 => None,
            all => {
                let all = flat(all, dtypes.reduce);
                let norm = vec![flat(1, DType::F64)];
                Some(GradientKernels {
                    zero: maker.flat("zero", vec![], vec![all.clone()])?,
                    sum_squares: maker.flat("sum_squares", vec![all], norm)?,
                })
            }
        };
        let mut adamw = Vec::with_capacity(program.units.len());
        for unit in 0..program.units.len() {
            let count = Storage::unit_elements(params, unit);
            adamw.push(match count {
                0 => None,
                _ => {
                    let state = flat(count, dtypes.reduce);
                    let updated = vec![flat(count, dtypes.params), state.clone(), state.clone()];
                    Some(maker.flat("adamw", vec![state], updated)?)
                }
            });
        }
        Ok(Prepared {
            units,
            generator,
            gradients,
            adamw,
            callbacks: maker.callbacks,
            workspace_bytes: maker.workspace_bytes,
        })
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
    /// Launches a unit's step for a window of the micro-batch.
    pub(super) fn launch(
        &self,
        step: &PreparedStep,
        numbers: &Numbers,
        window: Window,
    ) -> crate::Result<()> {
        thread_local! {
            /// The ranges of the launch at hand; reused, so that a step allocates nothing.
            static RANGES: RefCell<Vec<BufferRange>> = const { RefCell::new(Vec::new()) };
        }
        RANGES.with_borrow_mut(|ranges| {
            ranges.clear();
            for operand in &step.operands {
                match *operand {
                    OperandPlace::Param(param) => ranges.extend(self.storage.param(param)),
                    OperandPlace::Gradient(param) => ranges.push(self.storage.gradient(param)),
                    OperandPlace::Value(place) => {
                        let bytes = place.extent.bytes(window.tokens, numbers.sequences);
                        let skipped = match place.extent {
                            Extent::PerToken(each) if place.by_chunk => each * window.first,
                            _ => 0,
                        };
                        let offset = place.offset + skipped;
                        ranges.push(match place.region {
                            Region::Arena => self.storage.arena_range(offset, bytes),
                            Region::Batch(tensor) => {
                                self.storage.batch_range(tensor, offset, bytes)
                            }
                        });
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

    /// Launches an op on flat runs.
    pub(super) fn launch_flat(
        &self,
        kernel: &Kernel,
        ranges: &[BufferRange],
        scalars: &[f64],
    ) -> crate::Result<()> {
        let launched = self.device.launch(&Launch {
            kernel: *kernel,
            stream: Stream(0),
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
        decode.unwrap_or_else(|| Error::plugin("backend", "launch", error))
    }
}
