//! Codes and scales -> a range of the weight, element by element.

use std::ops::Range;

use espalier_interface::Result;

use crate::bug::Bug;
use crate::nested;
use crate::quantizer::{Planted, table};

/// Decodes a range, with the quantizer's bug.
pub fn decode(
    planted: &Planted,
    segments: &[&[u8]],
    shape: [u64; 2],
    (rows, cols): (Range<u64>, Range<u64>),
    out: &mut [f32],
) -> Result<()> {
    let (table, nested) = (table(), nested::table());
    let size = planted.block_size();
    let mut out = out.iter_mut();
    for row in rows {
        for col in cols.clone() {
            let flat = row * shape[1] + col;
            let block = match planted.bug {
                Some(Bug::ColumnOffset) => {
                    let start = row * shape[1] + cols.start;
                    start / size + (col - cols.start) / size
                }
                _ => flat / size,
            };
            let byte = segments[0][flat as usize / 2];
            let code = if flat.is_multiple_of(2) {
                byte >> 4
            } else {
                byte & 15
            };
            let scale = scale(segments, &nested, block as usize);
            *out.next().expect("out holds the range") = table[usize::from(code)] * scale;
        }
    }
    Ok(())
}

fn scale(segments: &[&[u8]], table: &[f32], block: usize) -> f32 {
    let float = |bytes: &[u8], at: usize| {
        f32::from_le_bytes(bytes[4 * at..4 * at + 4].try_into().expect("four bytes"))
    };
    match segments {
        [_, codes, nested, offset] => {
            let code = codes[block];
            table[usize::from(code)] * float(nested, block / nested::SIZE as usize)
                + float(offset, 0)
        }
        _ => float(segments[1], block),
    }
}
