//! Blocks of saved activations, and gradients that take bytes of blocks which the backward pass has
//! read -> their offsets behind the arena.

use espalier_compile::arena::{Lifetime, pack};
use espalier_compile::params::Param;
use espalier_compile::program::{OperandPlace, Program};

/// Offsets of what is kept behind the arena for one micro-batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockLayout {
    /// For each unit, the first byte of its block; `None` where the block leaves the device.
    pub blocks: Vec<Option<u64>>,
    /// For each unit, its gradients; `None` where they are elsewhere.
    pub gradients: Vec<Option<SharedGradients>>,
    /// Bytes of all.
    pub bytes: u64,
}

/// Gradients of a unit's trainable run in memory that blocks of saved activations share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedGradients {
    /// Offset from the end of the arena.
    pub offset: u64,
    /// Bytes of the run.
    pub bytes: u64,
    /// The unit whose backward pass is the first that adds to them. Until then the bytes may hold
    /// activations, so they are set to zero there.
    pub begins_in: usize,
}

impl BlockLayout {
    /// Places a block of so many bytes for each unit, where it stays on the device, and gradients
    /// of so many bytes, from the backward pass of the unit behind the number to the update.
    pub fn new(blocks: &[Option<u64>], gradients: &[Option<(u64, usize)>]) -> Self {
        let last = blocks.len().saturating_sub(1);
        // Units run forward in turn, and backward the other way around; the head does both at once.
        let backward = |unit: usize| 2 * last - unit;
        let blocks_of = blocks.iter().enumerate().map(|(unit, &bytes)| Lifetime {
            bytes: bytes.unwrap_or(0),
            // It may hold the output of the unit before.
            first: unit.saturating_sub(1),
            last: backward(unit),
        });
        let gradients_of = gradients.iter().map(|wanted| {
            let (bytes, begins_in) = wanted.unwrap_or_default();
            Lifetime {
                bytes,
                first: backward(begins_in),
                last: 2 * last + 1,
            }
        });
        let lifetimes: Vec<Lifetime> = blocks_of.chain(gradients_of).collect();
        let (offsets, bytes) = pack(&lifetimes);
        let (of_blocks, of_gradients) = offsets.split_at(blocks.len());
        let placed = blocks.iter().zip(of_blocks);
        let shared = gradients.iter().zip(of_gradients).map(|(wanted, &offset)| {
            wanted.map(|(bytes, begins_in)| SharedGradients {
                offset,
                bytes,
                begins_in,
            })
        });
        BlockLayout {
            blocks: placed.map(|(stays, &at)| stays.map(|_| at)).collect(),
            gradients: shared.collect(),
            bytes,
        }
    }
}

/// The unit whose backward pass is the first that adds to a gradient of `unit`: the last of them,
/// since units run backward. None where no pass does.
pub(crate) fn first_to_add(program: &Program, params: &[Param], unit: usize) -> Option<usize> {
    program.units.iter().rposition(|one| {
        let mut operands = one.backward.iter().flat_map(|call| &call.operands);
        operands.any(|operand| match *operand {
            OperandPlace::Gradient(param) => params[param].unit == unit,
            _ => false,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An embedding without a block, layers, and a head with a block, with gradients of so many
    /// bytes; those of the embedding begin in the head where the table is tied.
    fn layers(block: u64, gradient: u64, ends: u64, tied: bool) -> BlockLayout {
        let blocks = [&[Some(0)][..], &[Some(block); 6], &[Some(64)]].concat();
        let of = |unit| match unit {
            0 => Some((ends, if tied { 7 } else { 0 })),
            7 if tied => None,
            7 => Some((ends, 7)),
            layer => Some((gradient, layer)),
        };
        let gradients: Vec<_> = (0..8).map(of).collect();
        BlockLayout::new(&blocks, &gradients)
    }

    #[test]
    fn gradients_take_the_bytes_of_blocks_that_are_read() {
        // Most is there in the last layer's backward pass: the blocks of all layers, the head's
        // gradients and its own.
        assert_eq!(layers(6400, 640, 3200, false).bytes, 6 * 6400 + 3200 + 640);
        // The tied table's gradients begin in the head.
        assert_eq!(layers(6400, 640, 3200, true).bytes, 6 * 6400 + 3200 + 640);
        // Large gradients are all there at the end; the blocks lie among them, but for two.
        let of_gradients = 6 * 6400 + 2 * 3200;
        let large = layers(640, 6400, 3200, false).bytes;
        assert!(large <= of_gradients + 2 * 640, "{large} of {of_gradients}");
    }

    #[test]
    fn gradients_overlap_only_blocks_of_later_units() {
        for (block, gradient, tied) in [(6400, 640, false), (640, 6400, false), (1920, 1920, true)]
        {
            let layout = layers(block, gradient, 3200, tied);
            let bytes = [&[0][..], &[block; 6], &[64]].concat();
            for shared in layout.gradients.iter().flatten() {
                for (unit, at) in layout.blocks.iter().enumerate() {
                    let at = at.expect("it stays");
                    let apart =
                        at + bytes[unit] <= shared.offset || shared.offset + shared.bytes <= at;
                    assert!(apart || unit > shared.begins_in, "unit {unit}: {shared:?}");
                }
            }
        }
    }

    #[test]
    fn a_block_that_leaves_and_gradients_elsewhere_have_no_place() {
        let layout = BlockLayout::new(&[None, Some(128)], &[Some((64, 0)), None]);
        assert_eq!(layout.blocks, [None, Some(0)]);
        assert_eq!(layout.gradients[1], None);
        assert_eq!(layout.bytes, 128, "the gradient takes the block's bytes");
    }
}
