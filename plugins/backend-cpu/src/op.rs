//! The ops of this backend, by name, and their prepared kernels.

mod adamw;
mod arithmetic;
mod attention;
mod bias;
mod cross_entropy;
mod dropout;
mod elementwise;
mod embedding;
mod expand;
mod flat;
mod linear;
mod matmul;
mod param_value;
mod reduce;
#[cfg(test)]
mod refusals;
mod rms_norm;
mod rope;
mod row_norms;
mod rows;
mod scale_channels;
mod sgd;
mod sinusoids;
mod swiglu;
#[cfg(test)]
mod tests;

use espalier_interface::{Decoder, OpId, Result};
use espalier_kernels::matmul::Isa;

use crate::call::{Call, Overlap};
use crate::request::Asked;

/// Runs a prepared kernel.
pub type Run = Box<dyn Fn(&Call<'_>) -> Result<()> + Send + Sync>;

/// A prepared kernel.
pub struct Made {
    /// Runs it.
    pub run: Run,
    /// Bytes of workspace that each launch needs.
    pub workspace_bytes: u64,
    /// Overlaps that its ranges may have.
    pub overlap: Overlap,
}

impl Made {
    /// A kernel without workspace.
    pub fn new(run: impl Fn(&Call<'_>) -> Result<()> + Send + Sync + 'static) -> Self {
        Made {
            run: Box::new(run),
            workspace_bytes: 0,
            overlap: Overlap::None,
        }
    }

    /// The kernel with `bytes` of workspace.
    pub fn with_workspace(self, bytes: usize) -> Self {
        Made {
            workspace_bytes: bytes as u64,
            ..self
        }
    }

    /// The kernel, which may write its first output over its first input.
    pub fn in_place(self) -> Self {
        Made {
            overlap: Overlap::InPlace,
            ..self
        }
    }
}

/// Further inputs of a kernel's preparation.
pub struct Setting<'a> {
    /// Decoders of the params, where their formats are callbacks.
    pub decoders: &'a [Option<Decoder>],
    /// The host's threads.
    pub threads: usize,
    /// The instruction set of products.
    pub isa: Isa,
}

/// An op: its name, and the function that prepares it.
pub struct Op {
    name: &'static str,
    prepare: fn(&Asked<'_>, &Setting<'_>) -> Result<Made>,
}

const OPS: &[&[Op]] = &[
    adamw::OPS,
    arithmetic::OPS,
    attention::OPS,
    bias::OPS,
    cross_entropy::OPS,
    dropout::OPS,
    elementwise::OPS,
    embedding::OPS,
    expand::OPS,
    flat::OPS,
    linear::OPS,
    matmul::OPS,
    param_value::OPS,
    reduce::OPS,
    rms_norm::OPS,
    rope::OPS,
    row_norms::OPS,
    rows::OPS,
    scale_channels::OPS,
    sgd::OPS,
    sinusoids::OPS,
    swiglu::OPS,
];

/// Version of all ops here.
const VERSION: u32 = 1;

/// The ops that every device has.
pub fn ids() -> Vec<OpId> {
    let all = OPS.iter().copied().flatten();
    all.map(|op| OpId {
        name: op.name.to_owned(),
        version: VERSION,
    })
    .collect()
}

/// Prepares a requested kernel.
///
/// # Errors
/// `UNSUPPORTED` for an op, version, dtype or layout that this backend does not have, `INVALID` for
/// a request that contradicts its op.
pub fn prepare(asked: &Asked<'_>, setting: &Setting<'_>) -> Result<Made> {
    let all = || OPS.iter().copied().flatten();
    let Some(op) = all().find(|op| op.name == asked.request.op) else {
        let names: Vec<_> = all().map(|op| op.name).collect();
        return Err(asked.unsupported(format!("not known here; known are {}", names.join(", "))));
    };
    if asked.request.version != VERSION {
        let found = asked.request.version;
        return Err(asked.unsupported(format!("version {found}, expected {VERSION}")));
    }
    (op.prepare)(asked, setting)
}
