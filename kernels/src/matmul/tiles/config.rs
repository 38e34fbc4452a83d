//! The number of rows of a panel -> the shapes of the eight tiles, as `ldtilecfg` reads them.

use crate::matmul::panel::{ROW_BYTES, TILE_ROWS, TILE_STEPS, TILED_ROWS};

/// The operand of `ldtilecfg`.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(crate) struct TileShapes {
    /// 1: eight tiles of at most 16 rows of 64 bytes.
    pub palette: u8,
    pub start_row: u8,
    pub reserved: [u8; 14],
    pub bytes_per_row: [u16; 16],
    pub rows: [u8; 16],
}

/// Those for panels of 1 row and more. They are made before: a processor that reads what it just
/// wrote in parts waits for all its stores.
static SHAPES: [TileShapes; TILED_ROWS] = {
    let mut shapes = [TileShapes::new(1); TILED_ROWS];
    let mut rows = 1;
    while rows <= TILED_ROWS {
        shapes[rows - 1] = TileShapes::new(rows);
        rows += 1;
    }
    shapes
};

impl TileShapes {
    /// The shapes for panels of this many rows: two tiles of them, or one and a tile without rows.
    ///
    /// # Panics
    /// Where a panel has no such number of rows.
    #[inline]
    pub fn of(rows: usize) -> &'static Self {
        &SHAPES[rows - 1]
    }

    const fn new(rows: usize) -> Self {
        let upper = if rows < TILE_ROWS { rows } else { TILE_ROWS };
        let lower = rows - upper;
        let mut config = TileShapes {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            bytes_per_row: [0; 16],
            rows: [0; 16],
        };
        let all = [
            upper, upper, lower, lower, upper, lower, TILE_STEPS, TILE_STEPS,
        ];
        let mut tile = 0;
        while tile < all.len() {
            if all[tile] > 0 {
                config.bytes_per_row[tile] = ROW_BYTES as u16;
                config.rows[tile] = all[tile] as u8;
            }
            tile += 1;
        }
        config
    }
}
