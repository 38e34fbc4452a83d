//! The ops by name, and their expressions.
//!
//! Legend: `T` tokens, `D` width, `H` heads, `J` key/value heads, `K` head width, `V` vocabulary,
//! `N x M` a weight `[out, in]`.

mod adamw8bit;
mod arithmetic;
mod attention;
mod cross_entropy;
mod elementwise;
mod embedding;
mod expand;
mod flat;
mod gelu;
mod indexed;
mod layer_norm;
mod linear;
mod matmul;
mod optimizers;
mod param_value;
mod random;
mod rms_norm;
mod rope;
mod rounding;
mod rows;
mod scale_channels;
mod slice_columns;
mod swiglu;

use espalier_host_device::{Asked, Setting};
use espalier_interface::Result;

use crate::Tensors;
use crate::launch::Launch;

/// Computes a launch.
pub type Run<L> = Box<dyn Fn(&Launch<'_, L>) -> Result<()> + Send + Sync>;

/// A prepared expression.
pub struct Kernel<L> {
    /// Computes it.
    pub run: Run<L>,
    /// Bytes of workspace.
    pub workspace_bytes: usize,
    /// Bytes of tensors beside those that [`Temporaries`] count.
    pub temporary_bytes: u64,
    /// Blocks of logits that each thread has, if it has any.
    pub logits: Option<Logits>,
    /// Index of the input over which output 0 may be written.
    pub in_place_of: Option<usize>,
}

/// Tensors of blocks of logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logits {
    /// How many exist at once.
    pub copies: u64,
    /// Logits of one query, which a block has at least.
    pub of_query: u64,
}

impl<L: Tensors> Kernel<L> {
    /// An expression.
    pub fn new(run: impl Fn(&Launch<'_, L>) -> Result<()> + Send + Sync + 'static) -> Self {
        Kernel {
            run: Box::new(run),
            workspace_bytes: 0,
            temporary_bytes: 0,
            logits: None,
            in_place_of: None,
        }
    }

    /// With `bytes` of workspace.
    pub fn with_workspace(self, bytes: usize) -> Self {
        Kernel {
            workspace_bytes: bytes,
            ..self
        }
    }

    /// With `bytes` more of tensors.
    pub fn with_temporaries(self, bytes: u64) -> Self {
        Kernel {
            temporary_bytes: bytes,
            ..self
        }
    }

    /// With blocks of logits.
    pub fn with_logits(self, logits: Logits) -> Self {
        Kernel {
            logits: Some(logits),
            ..self
        }
    }

    /// With its first output over input `index`, if there is one.
    pub fn in_place_of(self, index: Option<usize>) -> Self {
        Kernel {
            in_place_of: index,
            ..self
        }
    }
}

/// The float dtypes of an op's inputs and outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtypes {
    /// f32 and bf16.
    Computed,
    /// Also f16.
    Stored,
    /// Any.
    Any,
}

/// The numbers of a launch that exist at once beside its ranges, in copies of what is computed at
/// once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Temporaries {
    /// So many of all operands together.
    Whole(u64),
    /// So many of all inputs and outputs, without params.
    Values(u64),
    /// So many of the largest operand's part, in each thread.
    Parts(u64),
}

/// An op, and the function that prepares it.
pub struct Op<L> {
    /// Name.
    pub name: &'static str,
    /// Version.
    pub version: u32,
    /// Its dtypes.
    pub dtypes: Dtypes,
    /// Its temporaries.
    pub temporaries: Temporaries,
    /// Prepares it.
    pub prepare: Prepare<L>,
}

/// Prepares an op.
pub type Prepare<L> = fn(&Asked<'_>, &Setting<'_>) -> Result<Kernel<L>>;

impl<L> Op<L> {
    /// Version 1 of an op on rows or runs, computed in parts.
    fn new(name: &'static str, prepare: Prepare<L>) -> Self {
        Op {
            name,
            version: 1,
            dtypes: Dtypes::Computed,
            temporaries: Temporaries::Parts(16),
            prepare,
        }
    }

    /// Computed at once.
    fn whole(self) -> Self {
        Op {
            temporaries: Temporaries::Whole(3),
            ..self
        }
    }

    fn version(self, version: u32) -> Self {
        Op { version, ..self }
    }

    fn of(self, dtypes: Dtypes) -> Self {
        Op { dtypes, ..self }
    }
}

/// All ops.
pub fn all<L: Tensors>() -> Vec<Op<L>> {
    let families = [
        adamw8bit::ops(),
        arithmetic::ops(),
        attention::ops(),
        cross_entropy::ops(),
        elementwise::ops(),
        embedding::ops(),
        expand::ops(),
        flat::ops(),
        gelu::ops(),
        indexed::ops(),
        layer_norm::ops(),
        linear::ops(),
        matmul::ops(),
        optimizers::ops(),
        param_value::ops(),
        random::ops(),
        rms_norm::ops(),
        rope::ops(),
        scale_channels::ops(),
        slice_columns::ops(),
        swiglu::ops(),
    ];
    families.into_iter().flatten().collect()
}
