//! Attention of bf16 on tensor cores: which requests it serves, and its launches.

use espalier_host_device::Place;
use espalier_interface::Result;

use super::Shape;
use crate::arguments::Arguments;
use crate::kit::Kit;
use crate::modules::Function;
use crate::sources::{FLASH_DKV, FLASH_DQ, FLASH_FORWARD, Source};

/// The widest head, and what head sizes are multiples of.
const MOST_WIDTH: usize = 128;
const WIDTH_STEP: usize = 16;

/// Whether the kernels serve an attention.
pub fn serves(shape: &Shape) -> bool {
    let width = shape.width as usize;
    width <= MOST_WIDTH && width.is_multiple_of(WIDTH_STEP) && shape.scale > 0.0
}

/// A kernel, and how its work may be cut.
#[derive(Clone, Copy)]
struct Pass {
    source: Source,
    name: &'static str,
    /// Tiles that a block keeps.
    kept: usize,
    /// Numbers of each row of a stage.
    numbers: usize,
    /// Rows that a warp keeps where two blocks share a multiprocessor.
    most_rows: usize,
    /// Rows of the tiles that a block goes through: alone with heads wider than 64, and as one of
    /// two.
    steps: [usize; 2],
}

const FORWARD: Pass = Pass {
    source: FLASH_FORWARD,
    name: "flash_forward",
    kept: 1,
    numbers: 0,
    most_rows: 32,
    steps: [64, 48],
};
const BY_QUERIES: Pass = Pass {
    source: FLASH_DQ,
    name: "flash_dq",
    kept: 2,
    numbers: 0,
    most_rows: 32,
    steps: [32, 32],
};
const BY_KEYS: Pass = Pass {
    source: FLASH_DKV,
    name: "flash_dkv",
    kept: 2,
    numbers: 2,
    most_rows: 16,
    steps: [32, 48],
};

/// How a kernel's work is cut.
#[derive(Clone, Copy)]
struct Tiling {
    /// Warps of a block, and rows of queries or keys that each keeps.
    warps: usize,
    warp_rows: usize,
    /// Rows of the tiles that a block goes through.
    step: usize,
}

/// Shared memory that the driver keeps of each block, in bytes.
const RESERVED_BYTES: usize = 1024;

impl Pass {
    /// How the work is cut on a card with `shared_bytes` of shared memory for each multiprocessor:
    /// two blocks of 4 warps, so that one multiplies while the other does not, where it has room
    /// for them; else one of 8.
    fn tiling(self, width: usize, shared_bytes: usize) -> Tiling {
        let has_room = self.room_of_two(width) <= shared_bytes;
        self.cut(width, has_room)
    }

    /// Shared memory that two blocks take.
    fn room_of_two(self, width: usize) -> usize {
        2 * (self.shared_bytes(width, self.cut(width, true)) + RESERVED_BYTES)
    }

    /// How the work is cut alone or as one of two blocks. The tiles fit the 99 KiB that a block may
    /// have, and a thread's sums its 255 registers.
    fn cut(self, width: usize, is_one_of_two: bool) -> Tiling {
        let [wide, of_two] = self.steps;
        let step = match is_one_of_two {
            false if width > 64 => wide,
            false => 64,
            // Rows that are not whole banks take more registers.
            true if width > 64 && !width.is_multiple_of(64) => 32,
            true => of_two,
        };
        Tiling {
            warps: if is_one_of_two { 4 } else { 8 },
            warp_rows: if is_one_of_two { self.most_rows } else { 16 },
            step,
        }
    }

    /// Shared memory of a block, which goes through two stages of two tiles.
    fn shared_bytes(self, width: usize, tiling: Tiling) -> usize {
        let tiles = self.kept * tiling.rows() + 4 * tiling.step;
        let numbers = 2 * self.numbers * tiling.step;
        tiles * width * 2 + numbers * size_of::<f32>()
    }
}

impl Tiling {
    /// Rows that a block keeps.
    fn rows(self) -> usize {
        self.warps * self.warp_rows
    }

    /// What stands before a kernel of a head size.
    fn definitions(self, width: usize, has_softcap: bool) -> String {
        let Tiling {
            warps,
            warp_rows,
            step,
        } = self;
        let softcap = u8::from(has_softcap);
        format!(
            "#define HEAD_DIM {width}\n#define SOFTCAP {softcap}\n#define STEP {step}\n\
             #define WARPS {warps}\n#define WARP_ROWS {warp_rows}\n"
        )
    }
}

/// A source, what may stand before it, and what that is for.
pub struct Compilation {
    /// The source.
    pub source: Source,
    /// What stands before it.
    pub definitions: String,
    /// What it is for.
    pub name: String,
    /// Shared memory of a multiprocessor for which it is, in bytes.
    pub shared_bytes: usize,
}

/// Head sizes of models, of those that are served.
const USUAL_WIDTHS: [usize; 4] = [32, 64, 96, 128];

/// The compilations of the kernels for [`USUAL_WIDTHS`].
pub fn compilations() -> Vec<Compilation> {
    let mut all = Vec::new();
    for width in USUAL_WIDTHS {
        for (has_softcap, softcap) in [(false, ""), (true, ", softcap")] {
            for (is_one_of_two, blocks) in [(false, ""), (true, ", two blocks")] {
                for pass in [FORWARD, BY_QUERIES, BY_KEYS] {
                    let tiling = pass.cut(width, is_one_of_two);
                    all.push(Compilation {
                        source: pass.source,
                        definitions: tiling.definitions(width, has_softcap),
                        name: format!("heads of {width}{softcap}{blocks}"),
                        shared_bytes: if is_one_of_two {
                            pass.room_of_two(width)
                        } else {
                            0
                        },
                    });
                }
            }
        }
    }
    all
}

/// A kernel of a head size, and its shared memory.
struct Kernel {
    function: Function,
    tiling: Tiling,
    shared: u32,
}

impl Kernel {
    /// The kernel of a pass.
    fn new(kit: &Kit, pass: Pass, shape: &Shape) -> Result<Self> {
        let width = shape.width as usize;
        let tiling = pass.tiling(width, kit.modules.shared_bytes());
        let definitions = tiling.definitions(width, shape.softcap != 0.0);
        let shared = pass.shared_bytes(width, tiling) as u32;
        let function = kit.modules.function(pass.source, &definitions, pass.name)?;
        Ok(Kernel {
            function: function.with_shared(shared)?,
            tiling,
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
        let parts = tokens / self.tiling.rows() + sequences;
        let grid = [heads as u64, parts as u64, 1];
        let threads = 32 * self.tiling.warps as u32;
        self.function
            .launch_of(threads, grid, self.shared, arguments)
    }
}

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
        let kernel = Kernel::new(kit, FORWARD, &shape)?;
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
        Ok(Backward {
            of_queries: Kernel::new(kit, BY_QUERIES, &shape)?,
            of_keys: Kernel::new(kit, BY_KEYS, &shape)?,
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
