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

impl TileShapes {
    /// The shapes for panels of this many rows: two tiles of them, or one and a tile without rows.
    pub fn new(rows: usize) -> Self {
        assert!((1..=TILED_ROWS).contains(&rows), "a panel of {rows} rows");
        let upper = rows.min(TILE_ROWS);
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
        for (tile, rows) in all.into_iter().enumerate().filter(|(_, rows)| *rows > 0) {
            config.bytes_per_row[tile] = ROW_BYTES as u16;
            config.rows[tile] = rows as u8;
        }
        config
    }
}
