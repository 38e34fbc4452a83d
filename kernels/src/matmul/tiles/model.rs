//! The instructions for tiles, to the bit, in plain Rust: the measure of the processor's, and what
//! tests run on where the processor has none.
#![allow(unsafe_code)] // Raw rows of tiles.

use super::{TileShapes, TileUnit};
use crate::matmul::bf16_model::dot_tile_row;
use crate::matmul::panel::{ROW_BYTES, TILE_ROWS};
use crate::simd::vectorized;

/// A row of a tile: numbers or pairs of bf16.
type TileRow = [u32; ROW_BYTES / 4];

/// Eight tiles and their shapes.
pub(crate) struct TileModel {
    config: Option<TileShapes>,
    tiles: [[TileRow; TILE_ROWS]; 8],
}

impl TileModel {
    pub fn new() -> Self {
        TileModel {
            config: None,
            tiles: Default::default(),
        }
    }

    /// Rows and bytes of a row of a tile.
    ///
    /// # Panics
    /// Where the processor would raise an exception: the tile has no shape.
    fn shape(&self, tile: usize) -> (usize, usize) {
        let config = self.config.as_ref().expect("tiles are configured");
        let rows = usize::from(config.rows[tile]);
        let bytes = usize::from(config.bytes_per_row[tile]);
        assert!(rows > 0 && bytes > 0, "tile {tile} has no shape");
        (rows, bytes)
    }
}

impl TileUnit for TileModel {
    fn configure(&mut self, rows: usize) {
        let config = *TileShapes::of(rows);
        assert!(config.palette == 1 && config.start_row == 0);
        assert!(config.reserved == [0; 14] && config.rows[8..] == [0; 8]);
        assert!(config.rows.iter().all(|&rows| rows <= 16));
        assert!(config.bytes_per_row.iter().all(|&bytes| bytes <= 64));
        self.config = Some(config);
        self.tiles = Default::default();
    }

    unsafe fn zero<const T: usize>(&mut self) {
        self.shape(T);
        self.tiles[T] = Default::default();
    }

    unsafe fn load<const T: usize>(&mut self, from: *const u8, stride: usize) {
        let (rows, bytes) = self.shape(T);
        self.tiles[T] = Default::default();
        for (i, row) in self.tiles[T].iter_mut().enumerate().take(rows) {
            // SAFETY: a row, by the caller's promise; a row of a tile has room for it.
            unsafe {
                let from = from.add(i * stride);
                std::ptr::copy_nonoverlapping(from, row.as_mut_ptr().cast(), bytes);
            }
        }
    }

    unsafe fn store<const T: usize>(&mut self, to: *mut u8, stride: usize) {
        let (rows, bytes) = self.shape(T);
        for (i, row) in self.tiles[T].iter().enumerate().take(rows) {
            // SAFETY: as in `load`.
            unsafe {
                std::ptr::copy_nonoverlapping(row.as_ptr().cast(), to.add(i * stride), bytes);
            }
        }
    }

    fn ask_for(&self, _: *const u8) {}

    unsafe fn dot<const C: usize, const A: usize, const B: usize>(&mut self) {
        let ((c_rows, c_bytes), (a_rows, a_bytes)) = (self.shape(C), self.shape(A));
        let (b_rows, b_bytes) = self.shape(B);
        assert!(
            (c_rows, c_bytes, a_bytes) == (a_rows, b_bytes, 4 * b_rows),
            "the shapes of tiles {C}, {A} and {B} disagree"
        );
        let [a, b] = [self.tiles[A], self.tiles[B]];
        let sums = &mut self.tiles[C];
        vectorized(
            #[inline(always)]
            move || {
                for (sums, a) in sums.iter_mut().zip(&a).take(c_rows) {
                    dot_tile_row(sums, &a[..b_rows], &b);
                }
            },
        );
    }
}
