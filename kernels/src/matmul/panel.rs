//! A block's lanes -> the panels that packing fills and micro-kernels read.

/// Elements of a strip that an operand is widened or decoded into.
pub(crate) const STRIP: usize = 8192;
/// Elements after the last panel that packing may overwrite.
pub(super) const TAIL: usize = 16;

/// Most rows of a tile, and bytes of a row.
pub(super) const TILE_ROWS: usize = 16;
pub(super) const ROW_BYTES: usize = 64;
/// Steps of a tile (pairs of bf16), and their elements.
pub(super) const TILE_STEPS: usize = 16;
pub(super) const TILE_DEPTH: usize = 2 * TILE_STEPS;
/// Most rows of a panel of tiles: two of them.
pub(super) const TILED_ROWS: usize = 2 * TILE_ROWS;

/// How a number of lanes is cut into panels.
#[derive(Clone, Copy)]
pub(super) enum Cut {
    /// Panels of nearly equal size, at most this many lanes: for the left operand.
    Even(usize),
    /// Panels of two vectors of this many lanes; the last may be one: for the right operand.
    Vectors(usize),
    /// Panels of [`TILED_ROWS`] lanes, the last of fewer, in rows of tiles: for the left operand.
    Tiles,
}

/// A panel: lanes `start .. start + lanes` of its block, `stride` elements a step.
#[derive(Clone, Copy)]
pub(crate) struct Panel {
    pub start: usize,
    pub lanes: usize,
    pub stride: usize,
}

impl Panel {
    /// Its lanes' places in its block.
    #[inline]
    pub(crate) fn range(self) -> std::ops::Range<usize> {
        self.start..self.start + self.lanes
    }
}

impl Cut {
    /// Lanes of all panels of `lanes` lanes, those that fill vectors up among them.
    #[inline]
    pub(super) fn width(self, lanes: usize) -> usize {
        let last = self.panel(lanes, self.count(lanes) - 1);
        last.start + last.stride
    }

    /// Elements that packing `lanes` lanes over `steps` steps may write: panels of whole vectors
    /// are written within, others up to [`TAIL`] elements beyond.
    #[inline]
    pub(super) fn room(self, lanes: usize, steps: usize) -> usize {
        let tail = match self {
            Cut::Even(_) => TAIL,
            Cut::Vectors(_) | Cut::Tiles => 0,
        };
        self.width(lanes) * steps + tail
    }

    /// Most lanes of a panel.
    #[inline]
    pub(super) fn most(self) -> usize {
        match self {
            Cut::Even(most) => most,
            Cut::Vectors(width) => 2 * width,
            Cut::Tiles => TILED_ROWS,
        }
    }

    /// Panels that `lanes` lanes make.
    #[inline]
    pub(super) fn count(self, lanes: usize) -> usize {
        match self {
            Cut::Even(most) => lanes.div_ceil(most),
            Cut::Vectors(width) => lanes.div_ceil(2 * width),
            Cut::Tiles => lanes.div_ceil(TILED_ROWS),
        }
    }

    /// Panel `idx` of `lanes` lanes; in the packed block it begins at element `start * depth`.
    #[inline]
    pub(super) fn panel(self, lanes: usize, idx: usize) -> Panel {
        match self {
            Cut::Even(_) => {
                let count = self.count(lanes);
                let (base, extra) = (lanes / count, lanes % count);
                let size = base + usize::from(idx < extra);
                Panel {
                    start: idx * base + idx.min(extra),
                    lanes: size,
                    stride: size,
                }
            }
            Cut::Vectors(width) => {
                let start = idx * 2 * width;
                let size = (lanes - start).min(2 * width);
                let stride = if size <= width { width } else { 2 * width };
                Panel {
                    start,
                    lanes: size,
                    stride,
                }
            }
            Cut::Tiles => {
                let start = idx * TILED_ROWS;
                let size = (lanes - start).min(TILED_ROWS);
                Panel {
                    start,
                    lanes: size,
                    stride: size,
                }
            }
        }
    }
}
