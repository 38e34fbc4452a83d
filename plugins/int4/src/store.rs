//! Codes and grids of a weight -> the bytes of its segments.

use std::sync::Mutex;

use espalier_interface::format::{BitOrder, Codes};
use espalier_interface::{DType, PluginError, Result, Services};

use crate::grid::{GridSpec, Symmetry};
use crate::grouping::Grouping;
use crate::layout;
use crate::nearest::Found;
use crate::number::Number;

/// Words that a thread takes at a time.
const WORDS: usize = 1 << 14;

/// What an encoder found for a weight.
#[derive(Clone, Copy)]
pub struct Encoded<'a> {
    /// `[N, M]`.
    pub codes: &'a [u8],
    /// `[N, M / group]`.
    pub scales: &'a [f32],
    /// `[N, M / group]`.
    pub zeros: &'a [f32],
}

impl<'a> From<&'a Found<'_>> for Encoded<'a> {
    fn from(found: &'a Found<'_>) -> Self {
        Encoded {
            codes: found.codes,
            scales: found.scales,
            zeros: found.zeros,
        }
    }
}

impl Encoded<'_> {
    /// Fills the segments of [`layout::format`].
    ///
    /// # Errors
    /// `INVALID` for other segments, and for a scale that is too large for its dtype.
    pub fn store(
        self,
        spec: GridSpec,
        groups: Grouping,
        segments: &mut [&mut [u8]],
        services: &dyn Services,
    ) -> Result<()> {
        self.check(spec)?;
        let number = spec.number;
        let codes = match (spec.symmetry, segments) {
            (Symmetry::Asymmetric, [codes, scales, zeros]) => {
                number.store(self.scales, scales);
                let pairs = self.zeros.chunks(2);
                for (byte, pair) in zeros.iter_mut().zip(pairs) {
                    let second = pair.get(1).map_or(0, |&zero| zero as u8);
                    *byte = pair[0] as u8 | second << 4;
                }
                codes
            }
            (Symmetry::Symmetric, [codes, scales]) => {
                number.store(self.scales, scales);
                codes
            }
            (_, segments) => {
                return Err(PluginError::invalid(format!(
                    "{} segments are not of this format",
                    segments.len()
                )));
            }
        };
        pack(&layout::codes(spec, groups), self.codes, codes, services);
        Ok(())
    }

    /// # Errors
    /// `INVALID` for a scale that is too large for its dtype, or for the ends of its grid.
    fn check(self, spec: GridSpec) -> Result<()> {
        let mut grids = self.scales.iter().zip(self.zeros);
        let too_large = |(&scale, &zero): (&f32, &f32)| {
            let scale = spec.number.rounded(scale);
            let ends = [-zero, spec.top() - zero].map(|code| code * scale);
            !ends.iter().all(|end| end.is_finite())
        };
        let Some(group) = grids.position(too_large) else {
            return Ok(());
        };
        let dtype = spec.number.dtype();
        let way_out = match spec.number {
            Number::F16 => "; set scale_dtype = \"bf16\" or \"f32\"",
            _ => "",
        };
        Err(PluginError::invalid(format!(
            "a scale of {:e}, that of group {group}, is too large in {dtype}: expected weights of ordinary size{way_out}",
            self.scales[group]
        )))
    }
}

/// Packs codes as [`Codes::pack`], on the host's threads.
fn pack(layout: &Codes, codes: &[u8], bytes: &mut [u8], services: &dyn Services) {
    let word_bytes = layout.dtype().bytes() as usize;
    let words = layout.words(codes.len() as u64) as usize;
    let spans: Vec<Mutex<&mut [u8]>> = bytes
        .chunks_mut(WORDS * word_bytes)
        .map(Mutex::new)
        .collect();
    services.parallel_for(spans.len(), &|index| {
        let mut span = spans[index].lock().expect("each span is taken once");
        let first = index * WORDS;
        let mut tile = vec![0u32; span.len() / word_bytes];
        let slots = layout.per_word() as usize;
        match layout.order {
            BitOrder::Split { .. } => {
                for slot in 0..slots {
                    let begin = (slot * words + first).min(codes.len());
                    let end = (slot * words + words).min(codes.len()).max(begin);
                    let (_, shift) = layout.place((slot * words) as u64);
                    for (word, &code) in tile.iter_mut().zip(&codes[begin..end]) {
                        *word |= u32::from(code) << shift;
                    }
                }
            }
            _ => {
                let codes = codes[first * slots..].chunks(slots);
                for (word, codes) in tile.iter_mut().zip(codes) {
                    for (slot, &code) in codes.iter().enumerate() {
                        *word |= u32::from(code) << (layout.bits * slot as u32);
                    }
                }
            }
        }
        match layout.dtype() {
            DType::U8 => {
                for (byte, word) in span.iter_mut().zip(tile) {
                    *byte = word as u8;
                }
            }
            _ => {
                for (bytes, word) in span.as_chunks_mut::<4>().0.iter_mut().zip(tile) {
                    *bytes = word.to_le_bytes();
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use espalier_interface::Serial;

    use super::*;

    #[test]
    fn codes_are_packed_as_the_format_reads_them() {
        for bits in [2, 3, 4] {
            for shape in [[1u64, 1], [3, 7], [640, 129]] {
                let spec = GridSpec {
                    bits,
                    symmetry: Symmetry::Asymmetric,
                    number: Number::F32,
                };
                let groups = Grouping::of(1 << 16, shape).expect("a row is one group");
                let layout = layout::codes(spec, groups);
                let codes: Vec<u8> = (0..groups.elements())
                    .map(|i| (i * 7 + i / 5) as u8 & layout.mask())
                    .collect();
                let words = layout.words(codes.len() as u64) * layout.dtype().bytes();
                let [mut found, mut expected] = [0xa5, 0x5a].map(|fill| vec![fill; words as usize]);
                pack(&layout, &codes, &mut found, &Serial);
                layout.pack(&codes, &mut expected);
                assert!(found == expected, "{bits} bits, {shape:?}");
            }
        }
    }
}
