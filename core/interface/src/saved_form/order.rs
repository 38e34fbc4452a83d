//! The elements of a segment in another order: transposed, cut along axes, and with numbers added.

use serde::{Deserialize, Serialize};

use crate::{PluginError, Result};

/// A tensor that holds all elements of a segment, in the order of its own axes.
///
/// A row of AWQ's codes, where a word has outputs 0 2 4 6 1 3 5 7 of eight, is axes of 2 and of 4
/// whose strides are one output and two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedOrder {
    /// Index of the format's segment.
    pub segment: usize,
    /// Bits of an element: 4, 8, 16 or 32. Of two elements of 4 bits in a byte, the first is in the
    /// lowest, in the segment and in the tensor.
    pub bits: u32,
    /// The axes, slowest first.
    pub axes: Vec<SavedAxis>,
    /// What is added to each element where it is saved, modulo `2^bits`; only of 4 and 8 bits.
    #[serde(default)]
    pub added: u8,
    /// What is then taken from each word of 32 bits, little-endian, modulo `2^32`: an element of 0
    /// borrows from the next of its word. The tensor is whole words where it is not 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub taken_from_words: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// An axis of the elements of a saved tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedAxis {
    /// Elements along it.
    pub extent: u64,
    /// Elements of the segment from one to the next.
    pub stride: u64,
}

impl SavedAxis {
    /// An axis of `extent` elements, `stride` elements of the segment apart.
    pub fn new(extent: u64, stride: u64) -> Self {
        SavedAxis { extent, stride }
    }
}

impl SavedOrder {
    /// Checks that the tensor holds each element of a segment of so many bytes exactly once.
    ///
    /// # Errors
    /// `INVALID`, naming what does not fit.
    pub fn validate(&self, segment_bytes: u64) -> Result<()> {
        let fail = |what: String| Err(PluginError::invalid(what));
        if !matches!(self.bits, 4 | 8 | 16 | 32) {
            return fail(format!(
                "elements of {} bits, expected 4, 8, 16 or 32",
                self.bits
            ));
        }
        if self.added != 0 && self.bits > 8 {
            return fail(format!(
                "{} added to elements of {} bits, expected at most 8",
                self.added, self.bits
            ));
        }
        let mut axes: Vec<SavedAxis> = self.axes.clone();
        axes.retain(|axis| axis.extent != 1);
        axes.sort_by_key(|axis| axis.stride);
        let mut elements = 1u64;
        for SavedAxis { extent, stride } in axes {
            if stride != elements {
                return fail(format!(
                    "an axis of {extent} elements with the stride {stride}, expected {elements}: an \
                     element would be held twice or never"
                ));
            }
            elements = elements.saturating_mul(extent);
        }
        let bits = elements.saturating_mul(u64::from(self.bits));
        if !bits.is_multiple_of(8) || bits / 8 != segment_bytes {
            return fail(format!(
                "{elements} elements of {} bits, the segment has {segment_bytes} bytes",
                self.bits
            ));
        }
        if self.taken_from_words != 0 && !segment_bytes.is_multiple_of(4) {
            return fail(format!(
                "a number is taken from words of 32 bits, the segment has {segment_bytes} bytes: \
                 expected whole words"
            ));
        }
        Ok(())
    }

    /// Writes the tensor's bytes from those of the segment.
    ///
    /// # Panics
    /// Where the order is not valid for a segment of that size, or the two differ in size.
    pub fn save(&self, segment: &[u8], tensor: &mut [u8]) {
        let added = self.added;
        tensor.fill(0);
        match self.bits {
            4 => self.each(|saved, kept| {
                put_nibble(tensor, saved, nibble(segment, kept).wrapping_add(added));
            }),
            8 => self.each(|saved, kept| tensor[saved] = segment[kept].wrapping_add(added)),
            16 => {
                let (tensor, segment) = (tensor.as_chunks_mut::<2>().0, segment.as_chunks::<2>().0);
                self.each(|saved, kept| tensor[saved] = segment[kept]);
            }
            _ => {
                let (tensor, segment) = (tensor.as_chunks_mut::<4>().0, segment.as_chunks::<4>().0);
                self.each(|saved, kept| tensor[saved] = segment[kept]);
            }
        }
        if self.taken_from_words != 0 {
            for word in tensor.as_chunks_mut::<4>().0 {
                let number = u32::from_le_bytes(*word);
                *word = number.wrapping_sub(self.taken_from_words).to_le_bytes();
            }
        }
    }

    /// Writes the segment's bytes from those of the tensor: the inverse of [`SavedOrder::save`].
    ///
    /// # Panics
    /// As [`SavedOrder::save`].
    pub fn load(&self, tensor: &[u8], segment: &mut [u8]) {
        let whole: Vec<u8>;
        let tensor = if self.taken_from_words == 0 {
            tensor
        } else {
            let words = tensor.as_chunks::<4>().0.iter();
            let words = words.map(|&word| u32::from_le_bytes(word));
            whole = words
                .flat_map(|word| word.wrapping_add(self.taken_from_words).to_le_bytes())
                .collect();
            &whole
        };
        let added = self.added;
        segment.fill(0);
        match self.bits {
            4 => self.each(|saved, kept| {
                put_nibble(segment, kept, nibble(tensor, saved).wrapping_sub(added));
            }),
            8 => self.each(|saved, kept| segment[kept] = tensor[saved].wrapping_sub(added)),
            16 => {
                let (tensor, segment) = (tensor.as_chunks::<2>().0, segment.as_chunks_mut::<2>().0);
                self.each(|saved, kept| segment[kept] = tensor[saved]);
            }
            _ => {
                let (tensor, segment) = (tensor.as_chunks::<4>().0, segment.as_chunks_mut::<4>().0);
                self.each(|saved, kept| segment[kept] = tensor[saved]);
            }
        }
    }

    /// Calls `body` with each element's index in the tensor, in order, and in the segment.
    fn each(&self, mut body: impl FnMut(usize, usize)) {
        let Some((inner, outer)) = self.axes.split_last() else {
            return body(0, 0);
        };
        let rows: u64 = outer.iter().map(|axis| axis.extent).product();
        let mut index = vec![0; outer.len()];
        let (mut saved, mut first) = (0, 0);
        for _ in 0..rows {
            let mut kept = first;
            for _ in 0..inner.extent {
                body(saved, kept as usize);
                saved += 1;
                kept += inner.stride;
            }
            for (at, axis) in index.iter_mut().zip(outer).rev() {
                *at += 1;
                first += axis.stride;
                if *at < axis.extent {
                    break;
                }
                first -= axis.extent * axis.stride;
                *at = 0;
            }
        }
    }
}

fn nibble(bytes: &[u8], index: usize) -> u8 {
    bytes[index / 2] >> (index % 2 * 4) & 15
}

/// Sets the lowest four bits of `value` where there are zeros.
fn put_nibble(bytes: &mut [u8], index: usize, value: u8) {
    bytes[index / 2] |= (value & 15) << (index % 2 * 4);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(bits: u32, axes: &[[u64; 2]], added: u8) -> SavedOrder {
        let axes = axes
            .iter()
            .map(|&[extent, stride]| SavedAxis { extent, stride });
        SavedOrder {
            segment: 0,
            bits,
            axes: axes.collect(),
            added,
            taken_from_words: 0,
        }
    }

    #[test]
    fn words_are_transposed_and_come_back() {
        // [2, 3] words -> [3, 2].
        let order = order(32, &[[3, 1], [2, 3]], 0);
        order.validate(24).expect("each word once");
        let segment: Vec<u8> = (0..24).collect();
        let mut tensor = vec![9; 24];
        order.save(&segment, &mut tensor);
        let firsts: Vec<u8> = tensor.iter().copied().step_by(4).collect();
        assert_eq!(firsts, [0, 12, 4, 16, 8, 20]);
        let mut back = vec![9; 24];
        order.load(&tensor, &mut back);
        assert_eq!(back, segment);
    }

    /// A word of AWQ's has the outputs 0 2 4 6 1 3 5 7 of an input.
    #[test]
    fn nibbles_are_cut_along_axes() {
        // Codes [16 outputs, 2 inputs]: 16 * output + input would be too large for 4 bits.
        let code = |output: usize, input: usize| ((output * 5 + input * 3) % 16) as u8;
        let mut segment = vec![0; 16];
        for (output, input) in (0..16).flat_map(|output| [(output, 0), (output, 1)]) {
            put_nibble(&mut segment, output * 2 + input, code(output, input));
        }
        let order = order(4, &[[2, 1], [2, 16], [2, 2], [4, 4]], 3);
        order.validate(16).expect("each code once");
        let mut tensor = vec![9; 16];
        order.save(&segment, &mut tensor);
        for (word, bytes) in tensor.chunks(4).enumerate() {
            let (input, first) = (word / 2, word % 2 * 8);
            for (slot, output) in [0, 2, 4, 6, 1, 3, 5, 7].into_iter().enumerate() {
                let expected = (code(first + output, input) + 3) % 16;
                assert_eq!(nibble(bytes, slot), expected, "word {word}, slot {slot}");
            }
        }
        let mut back = vec![9; 16];
        order.load(&tensor, &mut back);
        assert_eq!(back, segment);
    }

    /// One less in each of eight elements, where those of 0 borrow.
    #[test]
    fn a_number_is_taken_from_whole_words() {
        let order = SavedOrder {
            taken_from_words: 0x1111_1111,
            ..order(4, &[[16, 1]], 0)
        };
        order.validate(8).expect("two words");
        let segment = [0x8765_4321u32, 0x0000_8050].map(u32::to_le_bytes);
        let (mut tensor, mut back) = ([9; 8], [9; 8]);
        order.save(segment.as_flattened(), &mut tensor);
        let expected = [0x7654_3210u32, 0xeeef_6f3f].map(u32::to_le_bytes);
        assert_eq!(&tensor, expected.as_flattened());
        order.load(&tensor, &mut back);
        assert_eq!(&back, segment.as_flattened());
        let error = SavedOrder {
            axes: vec![SavedAxis::new(12, 1)],
            ..order
        };
        let error = error.validate(6).expect_err("no whole words");
        assert!(
            error.message.contains("expected whole words"),
            "{}",
            error.message
        );
    }

    #[test]
    fn every_width_comes_back() {
        let segment: Vec<u8> = (0..48).map(|i| i * 7).collect();
        for (bits, elements) in [(4, 96), (8, 48), (16, 24), (32, 12)] {
            let added = if bits > 8 { 0 } else { 15 };
            let order = order(bits, &[[3, 1], [1, 77], [elements / 3, 3]], added);
            order.validate(48).expect("each element once");
            let (mut tensor, mut back) = (vec![1; 48], vec![1; 48]);
            order.save(&segment, &mut tensor);
            order.load(&tensor, &mut back);
            assert!(tensor != segment && back == segment, "{bits} bits");
        }
    }

    #[test]
    fn orders_that_repeat_or_leave_out_elements_are_refused() {
        for (order, bytes, expected) in [
            (order(32, &[[3, 1], [2, 2]], 0), 24, "expected 3"),
            (order(32, &[[3, 2], [2, 1]], 0), 28, "6 elements of 32 bits"),
            (order(3, &[[8, 1]], 0), 3, "elements of 3 bits"),
            (order(4, &[[3, 1]], 0), 2, "3 elements of 4 bits"),
            (
                order(16, &[[8, 1]], 1),
                16,
                "1 added to elements of 16 bits",
            ),
            (order(8, &[[0, 1]], 0), 4, "0 elements"),
            (
                order(8, &[[u64::MAX, 1], [2, u64::MAX]], 0),
                4,
                "the segment has 4 bytes",
            ),
        ] {
            let error = order.validate(bytes).expect_err(expected);
            assert!(error.message.contains(expected), "{}", error.message);
        }
    }
}
