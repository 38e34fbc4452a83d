//! `linear`, `linear_input_backward` and `linear_weight_backward`, over dense and packed weights.
#![allow(unsafe_code)] // A plugin's decode function is called.

mod gradient;

use espalier_host_device::{Asked, Call, Callback, Epilogue, MOST_RANGES, Made, Number};
use espalier_interface::format::{Decoding, Format};
use espalier_interface::{Result, WeightLayout};
use espalier_kernels::added::Added;
use espalier_kernels::decode::{CallbackDecoder, FormatDecoder, Packed};
use espalier_kernels::element::Element;
use espalier_kernels::linear::{self as kernel, Adapter, Onto};
use espalier_kernels::matmul::{Dense, Isa, Rows, Scalar, Sum};
use half::{bf16, f16};

use self::gradient::Gradient;
use super::{Op, Setting, added};
use crate::dispatch::{compute, stored};

pub const OPS: &[Op] = &[
    Op {
        name: "linear",
        prepare: forward,
    },
    Op {
        name: "linear_input_backward",
        prepare: input_backward,
    },
    Op {
        name: "linear_weight_backward",
        prepare: weight_backward,
    },
];

/// Version 2 of the same: with `added` and `alpha`, which version 1 does not have.
pub const FUSED: &[Op] = OPS;

/// Version 3: with a residual, and of both gradients.
pub const FUSED_3: &[Op] = &[
    Op {
        name: "linear",
        prepare: forward,
    },
    Op {
        name: "linear_input_backward",
        prepare: both_backward,
    },
];

/// Version 4: with a low-rank product.
pub const FUSED_4: &[Op] = &[
    Op {
        name: "linear",
        prepare: adapted,
    },
    Op {
        name: "linear_input_backward",
        prepare: adapted_backward,
    },
];

/// How a launch reads a weight `[rows, cols]`.
pub(super) struct Weight {
    size: (usize, usize),
    kind: Kind,
    /// Index of its first range among the params' ranges.
    first: usize,
    /// Number of its ranges.
    ranges: usize,
}

enum Kind {
    F32,
    Bf16,
    F16,
    F64,
    Described(Box<FormatDecoder>),
    Callback(Callback),
}

impl Weight {
    /// Param `index`, whose first range is `first`.
    pub fn new(
        asked: &Asked<'_>,
        setting: &Setting<'_>,
        index: usize,
        first: usize,
    ) -> Result<Self> {
        let param = &asked.request.params[index];
        let [rows, cols] = asked.matrix(index)?;
        let kind = match &param.layout {
            WeightLayout::Dense(dtype) => stored!(asked, *dtype, W => Ok(W::KIND))?,
            WeightLayout::Packed(format) => packed(asked, format, setting, index)?,
        };
        let ranges = match &param.layout {
            WeightLayout::Dense(_) => 1,
            WeightLayout::Packed(format) => format.segments.len(),
        };
        Ok(Weight {
            size: (rows, cols),
            kind,
            first,
            ranges,
        })
    }

    /// Rows and columns; a vector is one row.
    pub fn size(&self) -> (usize, usize) {
        self.size
    }

    /// Calls `body` with the weight of a launch.
    pub fn with<S: Scalar>(&self, call: &Call<'_>, body: impl FnOnce(&dyn Rows<S>)) -> Result<()> {
        let (rows, cols) = self.size;
        match &self.kind {
            Kind::F32 => body(&Dense::new(call.param::<f32>(self.first), rows, cols)),
            Kind::Bf16 => body(&Dense::new(call.param::<bf16>(self.first), rows, cols)),
            Kind::F16 => body(&Dense::new(call.param::<f16>(self.first), rows, cols)),
            Kind::F64 => body(&Dense::new(call.param::<f64>(self.first), rows, cols)),
            Kind::Described(decoder) => {
                let mut segments = [&[][..]; MOST_RANGES];
                body(&Packed(&decoder.weight(self.segments(call, &mut segments))));
            }
            Kind::Callback(callback) => {
                let mut segments = [&[][..]; MOST_RANGES];
                let segments = self.segments(call, &mut segments);
                // SAFETY: the host keeps the decoder alive as long as the kernel, which was
                // prepared for segments of these lengths.
                let weight = unsafe { CallbackDecoder::new(callback.decoder, segments, self.size) };
                body(&Packed(&weight));
                if let Some(code) = weight.failure() {
                    return Err(callback.failed(code));
                }
            }
        }
        Ok(())
    }

    fn segments<'c, 'a: 'c>(
        &self,
        call: &'a Call<'_>,
        space: &'c mut [&'a [u8]; MOST_RANGES],
    ) -> &'c [&'a [u8]] {
        for (i, segment) in space[..self.ranges].iter_mut().enumerate() {
            *segment = call.segment(self.first + i);
        }
        &space[..self.ranges]
    }
}

/// The weight representation of a stored dtype.
trait Stored {
    const KIND: Kind;
}

impl Stored for f32 {
    const KIND: Kind = Kind::F32;
}

impl Stored for bf16 {
    const KIND: Kind = Kind::Bf16;
}

impl Stored for f16 {
    const KIND: Kind = Kind::F16;
}

impl Stored for f64 {
    const KIND: Kind = Kind::F64;
}

/// How to read a packed weight.
fn packed(asked: &Asked<'_>, format: &Format, setting: &Setting<'_>, index: usize) -> Result<Kind> {
    if format.decoding != Decoding::Callback {
        return Ok(Kind::Described(Box::new(FormatDecoder::new(format)?)));
    }
    let callback = Callback::of(asked, setting.decoders, index, &format.quantizer)?;
    Ok(Kind::Callback(callback))
}

fn workspace_bytes<E: Element>(
    epilogue: Epilogue,
    isa: Isa,
    threads: usize,
    most: [usize; 3],
) -> usize
where
    E::Acc: Scalar,
{
    if epilogue.is_product() {
        kernel::workspace_bytes::<E>(isa, threads, most)
    } else {
        kernel::sum_workspace_bytes::<E>(isa, threads, most)
    }
}

/// The launch's output, and what the product is added to.
fn onto<'c, E: Element + Number>(epilogue: Epilogue, call: &'c Call<'_>) -> Onto<'c, E> {
    let added = epilogue.added.map(|index| added(call, index));
    let added = added.unwrap_or(Added::Nothing);
    let residual = epilogue.residual.map(|index| call.input(index));
    let alpha = epilogue.alpha;
    Onto {
        values: call.output(0),
        sum: Sum {
            alpha,
            added,
            residual,
        },
        adapter: None,
    }
}

/// Calls `body` with the bias of a launch, where there is one.
fn with_bias<S: Scalar>(
    bias: Option<&Weight>,
    call: &Call<'_>,
    body: impl FnOnce(Option<&dyn Rows<S>>) -> Result<()>,
) -> Result<()> {
    let Some(bias) = bias else {
        return body(None);
    };
    let mut made = Ok(());
    bias.with(call, |bias| made = body(Some(bias)))?;
    made
}

fn forward(asked: &Asked<'_>, setting: &Setting<'_>) -> Result<Made> {
    let weight = Weight::new(asked, setting, 0, 0)?;
    let bias = match asked.request.params.len() {
        2 => Some(Weight::new(asked, setting, 1, weight.ranges)?),
        _ => None,
    };
    let (isa, epilogue) = (setting.isa, Epilogue::after(1, asked));
    let (n, m) = weight.size();
    let most = [asked.max_tokens(), n, m];
    compute!(asked, asked.input(0).dtype, E => {
        let run = Made::new(move |call| {
            let x = call.input::<E>(0);
            with_bias(bias.as_ref(), call, |bias| {
                let (y, space) = (onto(epilogue, call), call.workspace_bytes());
                weight.with(call, |weight| kernel::forward(isa, call.services, x, weight, bias, y, space))
            })
        });
        let bytes = workspace_bytes::<E>(epilogue, isa, setting.threads, most);
        let run = run.with_workspace(bytes);
        Ok(epilogue.in_place(run))
    })
}

/// The weight's product, and a low-rank one that is added to it.
fn adapted(asked: &Asked<'_>, setting: &Setting<'_>) -> Result<Made> {
    let weight = Weight::new(asked, setting, 0, 0)?;
    let up = Weight::new(asked, setting, 1, weight.ranges)?;
    let bias = match asked.request.params.len() {
        3 => Some(Weight::new(asked, setting, 2, weight.ranges + up.ranges)?),
        _ => None,
    };
    let (isa, alpha) = (setting.isa, asked.alpha());
    let has_residual = asked.request.inputs.len() > 2;
    let ((n, m), (_, rank)) = (weight.size(), up.size());
    let most = [asked.max_tokens(), n, m];
    compute!(asked, asked.input(0).dtype, E => {
        let run = Made::new(move |call| {
            let x = call.input::<E>(0);
            let sum = Sum {
                alpha,
                added: Added::Output,
                residual: has_residual.then(|| call.input(2)),
            };
            let mut made = Ok(());
            up.with(call, |up| {
                made = with_bias(bias.as_ref(), call, |bias| {
                    let adapter = Adapter { narrow: call.input(1), weight: up, sum };
                    let y = Onto { adapter: Some(adapter), ..Onto::product(call.output(0)) };
                    let space = call.workspace_bytes();
                    weight.with(call, |weight| kernel::forward(isa, call.services, x, weight, bias, y, space))
                });
            })?;
            made
        });
        let bytes = kernel::adapted_workspace_bytes::<E>(isa, setting.threads, most, rank);
        Ok(run.with_workspace(bytes))
    })
}

/// The gradient of the input by both weights, then that of the low-rank one in the same workspace.
fn adapted_backward(asked: &Asked<'_>, setting: &Setting<'_>) -> Result<Made> {
    let weight = Weight::new(asked, setting, 0, 0)?;
    let down = Weight::new(asked, setting, 1, weight.ranges)?;
    let (isa, epilogue) = (setting.isa, Epilogue::after(3, asked));
    let ((n, m), (rank, _)) = (weight.size(), down.size());
    let tokens = asked.max_tokens();
    let gradient = Gradient::of(asked, 1, (rank, m), epilogue.alpha)?;
    compute!(asked, asked.input(0).dtype, E => {
        let run = Made::new(move |call| {
            let (dy, dh, x) = (call.input::<E>(0), call.input::<E>(1), call.input(2));
            let space = call.workspace_bytes();
            let mut made = Ok(());
            down.with(call, |down| {
                let Onto { values, sum, .. } = onto(epilogue, call);
                let adapter = Some(Adapter { narrow: dh, weight: down, sum });
                let sum = Sum { added: Added::Output, ..Sum::PRODUCT };
                let dx = Onto { values, sum, adapter };
                made = weight.with(call, |weight| {
                    kernel::input_backward(isa, call.services, dy, weight, dx, &mut *space);
                });
            })?;
            made?;
            gradient.add(isa, call, [dh, x], space);
            Ok(())
        });
        let of_input = kernel::adapted_workspace_bytes::<E>(isa, setting.threads, [tokens, m, n], rank);
        let of_weight = gradient.workspace_bytes::<E>(isa, setting.threads, tokens);
        Ok(epilogue.in_place(run.with_workspace(of_input.max(of_weight))))
    })
}

fn input_backward(asked: &Asked<'_>, setting: &Setting<'_>) -> Result<Made> {
    let weight = Weight::new(asked, setting, 0, 0)?;
    let (isa, epilogue) = (setting.isa, Epilogue::after(1, asked));
    let (n, m) = weight.size();
    let most = [asked.max_tokens(), m, n];
    compute!(asked, asked.input(0).dtype, E => {
        let run = Made::new(move |call| {
            let (dy, dx) = (call.input::<E>(0), onto(epilogue, call));
            let space = call.workspace_bytes();
            weight.with(call, |weight| {
                kernel::input_backward(isa, call.services, dy, weight, dx, space);
            })
        });
        let bytes = workspace_bytes::<E>(epilogue, isa, setting.threads, most);
        let run = run.with_workspace(bytes);
        Ok(epilogue.in_place(run))
    })
}

/// Both gradients, one after the other in the same workspace.
fn both_backward(asked: &Asked<'_>, setting: &Setting<'_>) -> Result<Made> {
    let weight = Weight::new(asked, setting, 0, 0)?;
    let (isa, epilogue) = (setting.isa, Epilogue::after(2, asked));
    let (n, m) = weight.size();
    let tokens = asked.max_tokens();
    let gradient = Gradient::of(asked, 1, (n, m), epilogue.alpha)?;
    compute!(asked, asked.input(0).dtype, E => {
        let run = Made::new(move |call| {
            let (dy, x) = (call.input::<E>(0), call.input(1));
            let dx = onto(epilogue, call);
            let space = call.workspace_bytes();
            weight.with(call, |weight| {
                kernel::input_backward(isa, call.services, dy, weight, dx, &mut *space);
            })?;
            gradient.add(isa, call, [dy, x], space);
            Ok(())
        });
        let of_input = workspace_bytes::<E>(epilogue, isa, setting.threads, [tokens, m, n]);
        let of_weight = gradient.workspace_bytes::<E>(isa, setting.threads, tokens);
        Ok(epilogue.in_place(run.with_workspace(of_input.max(of_weight))))
    })
}

fn weight_backward(asked: &Asked<'_>, setting: &Setting<'_>) -> Result<Made> {
    let (dy, x) = (asked.input(0), asked.input(1));
    let (n, m) = (asked.columns(dy), asked.columns(x));
    let (isa, tokens) = (setting.isa, asked.max_tokens());
    let gradient = Gradient::of(asked, 0, (n, m), asked.alpha())?;
    compute!(asked, dy.dtype, E => {
        let run = Made::new(move |call| {
            let (dy, x) = (call.input::<E>(0), call.input(1));
            gradient.add(isa, call, [dy, x], call.workspace_bytes());
            Ok(())
        });
        Ok(run.with_workspace(gradient.workspace_bytes::<E>(isa, setting.threads, tokens)))
    })
}

#[cfg(test)]
mod tests;
