//! Attention of bf16 on tensor cores: which requests it serves, and its launches.

use espalier_host_device::Place;
use espalier_interface::Result;

use super::Shape;
use crate::arguments::Arguments;
use crate::kit::Kit;
use crate::modules::{Function, THREADS};
use crate::sources::{FLASH_BACKWARD, FLASH_FORWARD, Source};

/// Rows of queries or keys that a block keeps, as `kernels/cuda/attention/flash.cuh` has it.
const ROWS: usize = THREADS as usize / 2;

/// The widest head, and what head sizes are multiples of.
const MOST_WIDTH: usize = 128;
const WIDTH_STEP: usize = 16;

/// Whether the kernels serve a head size.
pub fn serves(width: usize) -> bool {
    width <= MOST_WIDTH && width.is_multiple_of(WIDTH_STEP)
}

/// What stands before the kernels of a head size that go through tiles of `step` rows.
fn definitions(width: usize, has_softcap: bool, step: usize) -> String {
    let softcap = u8::from(has_softcap);
    format!("#define HEAD_DIM {width}\n#define SOFTCAP {softcap}\n#define STEP {step}\n")
}

/// A source, what may stand before it, and what that is for.
pub type Compilation = (Source, String, String);

/// Head sizes of models, of those that are served.
const USUAL_WIDTHS: [usize; 4] = [32, 64, 96, 128];

/// The compilations of the kernels for [`USUAL_WIDTHS`].
pub fn compilations() -> Vec<Compilation> {
    let mut all = Vec::new();
    for width in USUAL_WIDTHS {
        for has_softcap in [false, true] {
            let softcap = if has_softcap { ", softcap" } else { "" };
            let kernels = [
                (FLASH_FORWARD, FORWARD_STEP),
                (FLASH_BACKWARD, backward_step(width)),
            ];
            for (source, step) in kernels {
                let text = definitions(width, has_softcap, step);
                all.push((source, text, format!("heads of {width}{softcap}")));
            }
        }
    }
    all
}

/// Rows of the backward pass's tiles. Four stages of tiles fit beside two tiles that stay, in the
/// 99 KiB that a block may have.
fn backward_step(width: usize) -> usize {
    if width > 64 { 32 } else { 64 }
}

/// A kernel of a head size, and its shared memory.
struct Kernel {
    function: Function,
    shared: u32,
}

impl Kernel {
    /// The kernel `name`. A block keeps `kept` tiles and goes through two stages of two tiles of
    /// `step` rows; `more` is what else it has in shared memory, in bytes.
    fn new(
        kit: &Kit,
        (source, name): (Source, &str),
        shape: &Shape,
        [kept, step, more]: [usize; 3],
    ) -> Result<Self> {
        let definitions = definitions(shape.width as usize, shape.softcap != 0.0, step);
        let shared = ((kept * ROWS + 4 * step) * shape.width as usize * 2 + more) as u32;
        let function = kit.modules.function(source, &definitions, name)?;
        Ok(Kernel {
            function: function.with_shared(shared)?,
            shared,
        })
    }

    /// Puts a block for each of `heads` and each part of each sequence on this thread's stream.
    fn launch(
        &self,
        heads: i32,
        [tokens, sequences]: [usize; 2],
        arguments: &Arguments,
    ) -> Result<()> {
        if tokens == 0 {
            return Ok(());
        }
        let parts = tokens / ROWS + sequences;
        let grid = [heads as u64, parts as u64, 1];
        self.function.launch(grid, self.shared, arguments)
    }
}

/// Rows of the forward pass's tiles of keys.
const FORWARD_STEP: usize = 64;

/// The forward pass.
pub struct Forward {
    kernel: Kernel,
    shape: Shape,
}

impl Forward {
    /// The kernel of a shape that is served.
    ///
    /// # Errors
    /// `DEVICE` where it cannot be compiled.
    pub fn new(kit: &Kit, shape: Shape) -> Result<Self> {
        let of = (FLASH_FORWARD, "flash_forward");
        let kernel = Kernel::new(kit, of, &shape, [1, FORWARD_STEP, 0])?;
        Ok(Forward { kernel, shape })
    }

    /// Puts it on this thread's stream, with q, k, v and the boundaries of sequences, and out and
    /// lse. `extents` are tokens and sequences.
    ///
    /// # Errors
    /// `DEVICE`.
    pub fn launch(&self, places: [Place; 6], extents: [usize; 2]) -> Result<()> {
        let arguments = places.into_iter().fold(Arguments::new(), Arguments::at);
        let arguments = arguments.with(self.shape).with(extents[1] as i32);
        self.kernel.launch(self.shape.heads, extents, &arguments)
    }
}

/// The backward pass.
pub struct Backward {
    of_queries: Kernel,
    of_keys: Kernel,
    shape: Shape,
}

impl Backward {
    /// The kernels of a shape that is served.
    ///
    /// # Errors
    /// `DEVICE` where they cannot be compiled.
    pub fn new(kit: &Kit, shape: Shape) -> Result<Self> {
        let step = backward_step(shape.width as usize);
        let numbers = 2 * 2 * step * size_of::<f32>();
        let queries = (FLASH_BACKWARD, "flash_dq");
        let keys = (FLASH_BACKWARD, "flash_dkv");
        Ok(Backward {
            of_queries: Kernel::new(kit, queries, &shape, [2, step, 0])?,
            of_keys: Kernel::new(kit, keys, &shape, [2, step, numbers])?,
            shape,
        })
    }

    /// Puts it on this thread's stream, with dout, q, k, v, lse, delta and the boundaries of
    /// sequences, and dq, dk and dv. `extents` are tokens and sequences.
    ///
    /// # Errors
    /// `DEVICE`.
    pub fn launch(
        &self,
        inputs: [Place; 7],
        [dq, dk, dv]: [Place; 3],
        extents: [usize; 2],
    ) -> Result<()> {
        let inputs = || inputs.into_iter().fold(Arguments::new(), Arguments::at);
        let sequences = extents[1] as i32;
        let arguments = inputs().at(dq).with(self.shape).with(sequences);
        self.of_queries
            .launch(self.shape.heads, extents, &arguments)?;
        let arguments = inputs().at(dk).at(dv).with(self.shape).with(sequences);
        self.of_keys
            .launch(self.shape.kv_heads, extents, &arguments)
    }
}
