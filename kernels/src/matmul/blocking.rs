//! A product's shape -> the tasks that threads take: some of the right operand to pack, then
//! rows to multiply by what is packed.
//!
//! Columns are cut into *chunks* whose packed form stays in the third-level cache (for tiles, which
//! are too fast for that one, in each thread's second-level cache), a depth beyond [`MOST_PARTS`]
//! into *passes* (of one part each, where rows are slow to pack), and where sums of several passes
//! cannot lie in the output, rows into *bands* whose sums can. A *unit* is one chunk, pass and
//! band: it is packed once, by all threads, and then multiplied by all its rows. Few rows are one
//! task's, and each task packs its own columns: they and its rows stay in the second-level cache,
//! and no thread waits for another. Only speed depends on any of this.

use std::ops::Range;

use super::Isa;
use super::block::{PANEL_COLS, group_cols};
use super::combine::SumHome;
use super::depth::{DEPTH, Depth};
use super::panel::TILED_ROWS;
use super::source::Summed;

/// Elements of a packed chunk: the rows are packed again for each.
fn chunk_room(isa: Isa) -> usize {
    match isa {
        _ if isa.has_tiles() => 1 << 18,
        Isa::Avx512 => 1 << 21,
        _ => 1 << 20,
    }
}

/// Most columns of a task that packs them itself: their panels of a part stay in the second-level
/// cache.
const OWN_COLS: usize = 512;
/// Most columns of a chunk.
pub(super) const MOST_COLS: usize = 2048;
/// Parts of the depth up to which one pass is made, with the most of any instruction set.
pub(super) const MOST_PARTS: usize = 16;
/// Parts of a pass where several are made.
const PASS_PARTS: usize = 8;
/// Either of them for tiles, of a left operand that is summed over this side: chunks are wide, the
/// more so where rows are turned each time that they are packed.
fn tiled_parts(left: Summed) -> usize {
    match left {
        Summed::Cols => 2,
        Summed::Rows => 1,
    }
}

/// Most rows of a task of several: four panels of the widest kernels, or two of tiles.
fn task_rows(isa: Isa) -> usize {
    if isa.has_tiles() { 2 * TILED_ROWS } else { 56 }
}

/// Most rows of a task: of several, or of a product that is one block of rows.
pub(super) fn most_task_rows(isa: Isa) -> usize {
    if isa.has_tiles() { task_rows(isa) } else { 256 }
}

/// Fewest columns for each thread where one block has more rows than a task of several: every task
/// packs all rows.
const ONE_BLOCK_COLS: usize = 256;

/// Most rows of a product that is one block of rows.
pub(super) fn one_block_rows(isa: Isa, cols: usize, threads: usize) -> usize {
    if cols < ONE_BLOCK_COLS * threads {
        task_rows(isa)
    } else {
        most_task_rows(isa)
    }
}

/// Tasks' rows of a band: more where chunks have fewer columns.
fn band_tasks(isa: Isa) -> usize {
    if isa.has_tiles() { 32 } else { 9 }
}

/// Multiplications under which waking threads costs more than it saves.
pub(super) const LEAST_WORK: usize = 1 << 18;

/// How many of a product's numbers are in memory at once, and in what order they are computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocking {
    rows: usize,
    cols: usize,
    parts: usize,
    /// Rows of a band: all rows, where sums need no memory beside the output and the tasks.
    band: usize,
    /// Columns of a chunk, whole panels.
    chunk: usize,
    /// Columns of a group of panels.
    group: usize,
    /// Parts of a pass.
    pass: usize,
    sums: SumHome,
    is_small: bool,
    is_one_block: bool,
    /// Most rows of a multiplying task.
    most_rows: usize,
    /// Rows of a multiplying task, and its columns.
    task_rows: usize,
    task_cols: usize,
}

/// A unit: its rows, columns and parts of the depth.
#[derive(Clone, Debug)]
pub(super) struct Unit {
    pub rows: Range<usize>,
    pub cols: Range<usize>,
    pub parts: Range<usize>,
}

impl Blocking {
    /// The blocking of a product of `rows`, of an operand that is summed over the side `left`, and
    /// `cols` over `depth`, for `threads` threads.
    pub fn new(
        ([rows, cols], left): ([usize; 2], Summed),
        depth: Depth,
        sums: SumHome,
        threads: usize,
    ) -> Self {
        let isa = depth.isa();
        let parts = depth.parts();
        let is_one_block = rows <= one_block_rows(isa, cols, threads);
        let most_rows = if is_one_block {
            rows.max(1)
        } else {
            task_rows(isa)
        };
        let (most_parts, pass_parts) = match (left, sums) {
            _ if isa.has_tiles() => (tiled_parts(left), tiled_parts(left)),
            // Steps of a row lie far apart, so packing is slow: the widest chunks pack rows once.
            (Summed::Rows, SumHome::Output) => (1, 1),
            _ => (MOST_PARTS, PASS_PARTS),
        };
        let (pass, most) = match parts {
            _ if is_one_block => (parts, OWN_COLS),
            _ if parts <= most_parts => (parts, chunk_room(isa) / (DEPTH * parts)),
            _ => (pass_parts, chunk_room(isa) / (DEPTH * pass_parts)),
        };
        let most = most.min(MOST_COLS) / PANEL_COLS * PANEL_COLS;
        let chunk = even(cols.max(1), most).next_multiple_of(PANEL_COLS);
        let band = match sums {
            SumHome::Beside if pass < parts => band_tasks(isa) * most_rows,
            _ => rows,
        };
        let is_small = rows * cols * depth.elements() < LEAST_WORK;
        let threads = if is_small { 1 } else { threads };
        let mut blocks = band.min(rows).div_ceil(most_rows);
        if blocks > threads {
            // As many for each thread, so that none waits for the last.
            blocks = blocks.next_multiple_of(threads);
        }
        let task_rows = band.min(rows).div_ceil(blocks.max(1)).max(1);
        // With few rows threads share the columns; each then packs the rows again.
        let tasks = blocks * cols.div_ceil(chunk);
        let groups = if threads < 2 || blocks >= 2 * threads {
            1
        } else {
            (2 * threads).div_ceil(tasks.max(1))
        };
        let task_cols = chunk.div_ceil(groups).next_multiple_of(PANEL_COLS);
        Blocking {
            rows,
            cols,
            parts,
            band,
            chunk,
            group: group_cols(isa),
            pass,
            sums,
            is_small,
            is_one_block,
            most_rows,
            task_rows,
            task_cols,
        }
    }

    fn chunks(&self) -> usize {
        self.cols.div_ceil(self.chunk)
    }

    pub fn passes(&self) -> usize {
        self.parts.div_ceil(self.pass)
    }

    /// Units, in the order in which they are computed.
    pub fn units(&self) -> usize {
        self.rows.div_ceil(self.band.max(1)) * self.chunks() * self.passes()
    }

    /// Unit `idx`. Passes follow each other, then chunks, then bands.
    pub fn unit(&self, idx: usize) -> Unit {
        let (chunk, pass) = (idx / self.passes(), idx % self.passes());
        let (band, chunk) = (chunk / self.chunks(), chunk % self.chunks());
        let cut = |idx: usize, size: usize, of: usize| idx * size..((idx + 1) * size).min(of);
        Unit {
            rows: cut(band, self.band, self.rows),
            cols: cut(chunk, self.chunk, self.cols),
            parts: cut(pass, self.pass, self.parts),
        }
    }

    /// Most columns that a task packs itself, a part at a time; none where a unit's columns are
    /// packed for many tasks.
    pub fn own_cols(&self) -> usize {
        if self.is_one_block { self.chunk } else { 0 }
    }

    /// Packing tasks of a unit, of an operand summed over this side.
    pub fn packs(&self, summed: Summed) -> usize {
        if self.is_one_block {
            return 0;
        }
        self.pass * self.chunk.div_ceil(pack_cols(summed))
    }

    /// Part and columns of packing task `idx` of a unit; none, where the unit is smaller than most.
    pub fn pack(&self, unit: &Unit, idx: usize, summed: Summed) -> Option<(usize, Range<usize>)> {
        let width = pack_cols(summed);
        let groups = self.chunk.div_ceil(width);
        let part = unit.parts.start + idx / groups;
        let first = unit.cols.start + idx % groups * width;
        let cols = first..(first + width).min(unit.cols.end);
        (part < unit.parts.end && !cols.is_empty()).then_some((part, cols))
    }

    fn groups_of_cols(&self) -> usize {
        self.chunk.div_ceil(self.task_cols)
    }

    /// Multiplying tasks of a unit.
    pub fn tasks(&self) -> usize {
        self.band.min(self.rows).div_ceil(self.task_rows) * self.groups_of_cols()
    }

    /// Rows and columns of multiplying task `idx` of a unit; none, where the unit is smaller than
    /// most.
    pub fn task(&self, unit: &Unit, idx: usize) -> Option<(Range<usize>, Range<usize>)> {
        let (block, group) = (idx / self.groups_of_cols(), idx % self.groups_of_cols());
        let row = unit.rows.start + block * self.task_rows;
        let rows = row..(row + self.task_rows).min(unit.rows.end);
        let col = unit.cols.start + group * self.task_cols;
        let cols = col..(col + self.task_cols).min(unit.cols.end);
        (!rows.is_empty() && !cols.is_empty()).then_some((rows, cols))
    }

    /// Most rows of a multiplying task.
    pub fn most_rows(&self) -> usize {
        self.most_rows
    }

    /// Columns of a chunk.
    pub fn chunk(&self) -> usize {
        self.chunk
    }

    /// Whether waking threads costs more than it saves.
    pub fn is_small(&self) -> bool {
        self.is_small
    }

    /// Elements of a unit's packed columns.
    pub fn packed(&self) -> usize {
        if self.is_one_block {
            return 0;
        }
        self.chunk * DEPTH * self.pass
    }

    /// Columns of sums beside the output that a task needs; those of a group where each is complete
    /// at once.
    pub fn sum_cols(&self) -> usize {
        if self.parts == 1 {
            self.chunk.min(self.group)
        } else {
            self.chunk
        }
    }

    /// Whether sums beside the output are kept from pass to pass.
    pub fn keeps_sums(&self) -> bool {
        self.kept_rows() > 0
    }

    /// Rows whose sums are kept from pass to pass.
    pub fn kept_rows(&self) -> usize {
        if self.passes() > 1 && self.sums == SumHome::Beside {
            self.band.min(self.rows)
        } else {
            0
        }
    }
}

/// Columns that a packing task packs in one part: few rows of a weight that is read along its rows,
/// long pieces of rows of another.
fn pack_cols(summed: Summed) -> usize {
    match summed {
        Summed::Cols => 4 * PANEL_COLS,
        Summed::Rows => 16 * PANEL_COLS,
    }
}

/// `len` in equal pieces of at most `most`.
fn even(len: usize, most: usize) -> usize {
    len.div_ceil(len.div_ceil(most).max(1))
}
