//! A source of vectors -> its stages: codes, and the codebook whose vectors they stand for, which a
//! segment of the weight holds or the description itself.

use super::validate::NUMBERS;
use super::{Codes, Decoding, Format, ValueSource};
use crate::Result;

/// A source of vectors, wherever its codebooks are.
#[derive(Clone, Copy, Debug)]
pub struct Vectors<'a> {
    codes: &'a [Codes],
    codebooks: Codebooks<'a>,
    /// Elements of a vector.
    pub len: u64,
}

#[derive(Clone, Copy, Debug)]
enum Codebooks<'a> {
    Segments(&'a [usize]),
    Shared(&'a [Vec<f32>]),
}

/// Where the vectors of a codebook are, `[2^bits, len]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Codebook<'a> {
    /// In a segment, in f32, bf16 or f16.
    Segment {
        /// Its index.
        segment: usize,
        /// The number at which the vectors begin.
        first: u64,
    },
    /// In the description.
    Shared(&'a [f32]),
}

impl<'a> Vectors<'a> {
    /// The codes of each stage and the codebook of their vectors.
    pub fn stages(self) -> impl Iterator<Item = (&'a Codes, Codebook<'a>)> {
        let count = self.codes.len().min(self.num_codebooks());
        self.codes[..count]
            .iter()
            .enumerate()
            .map(move |(stage, codes)| {
                let codebook = match self.codebooks {
                    Codebooks::Segments(segments) => Codebook::Segment {
                        segment: segments[stage],
                        first: self.numbers_before(segments, stage),
                    },
                    Codebooks::Shared(codebooks) => Codebook::Shared(&codebooks[stage]),
                };
                (codes, codebook)
            })
    }

    /// Numbers of the codebooks before that of `stage` in its segment.
    fn numbers_before(self, segments: &[usize], stage: usize) -> u64 {
        let before = segments[..stage].iter().zip(self.codes);
        let before = before.filter(|(segment, _)| **segment == segments[stage]);
        let len = self.len.min(ValueSource::LONGEST_VECTOR);
        let numbers = before.map(|(_, codes)| len << codes.bits.min(Codes::MOST_BITS));
        numbers.sum()
    }

    fn num_codebooks(self) -> usize {
        match self.codebooks {
            Codebooks::Segments(segments) => segments.len(),
            Codebooks::Shared(codebooks) => codebooks.len(),
        }
    }
}

impl ValueSource {
    /// The vectors that it reads, if it is a source of vectors.
    pub fn vectors(&self) -> Option<Vectors<'_>> {
        let (codes, codebooks, len) = match self {
            ValueSource::Table { .. } | ValueSource::Count { .. } => return None,
            ValueSource::Vectors {
                codes,
                codebooks,
                len,
            } => (codes, Codebooks::Segments(codebooks), *len),
            ValueSource::SharedVectors {
                codes,
                codebooks,
                len,
            } => (codes, Codebooks::Shared(codebooks), *len),
        };
        Some(Vectors {
            codes,
            codebooks,
            len,
        })
    }
}

impl Format {
    /// Bytes of the segments whose vectors codes can stand for.
    pub(super) fn codebook_bytes(&self) -> u64 {
        let Decoding::Steps { source, .. } = &self.decoding else {
            return 0;
        };
        let Some(vectors) = source.vectors() else {
            return 0;
        };
        let stages = vectors.stages().take(Self::MOST_SEGMENTS);
        let bytes = stages.map(|(codes, codebook)| {
            let Codebook::Segment { segment, .. } = codebook else {
                return 0;
            };
            let width = self.segments.get(segment).map_or(0, |x| x.dtype.bytes());
            let count = 1u64 << codes.bits.min(Codes::MOST_BITS);
            width * count * vectors.len.min(ValueSource::LONGEST_VECTOR)
        });
        bytes.sum()
    }

    /// Checks that codes and codebooks of vectors fit each other.
    pub(super) fn check_vectors(&self, vectors: Vectors<'_>, elements: u64) -> Result<()> {
        let len = vectors.len;
        if !(2..=ValueSource::LONGEST_VECTOR).contains(&len) {
            return self.fail(format!(
                "vectors of {len} elements, expected 2 to {}",
                ValueSource::LONGEST_VECTOR
            ));
        }
        let (count, codebooks) = (vectors.codes.len(), vectors.num_codebooks());
        if count == 0 || count != codebooks {
            return self.fail(format!(
                "{count} codes and {codebooks} codebooks of vectors, expected as many of both and \
                 one at least"
            ));
        }
        if count > Self::MOST_SEGMENTS {
            return self.fail(format!(
                "{count} codebooks of vectors, expected at most {}",
                Self::MOST_SEGMENTS
            ));
        }
        let mut shared = 0u64;
        for (index, (codes, codebook)) in vectors.stages().enumerate() {
            self.check_wide_codes(codes, elements.div_ceil(len))?;
            let size = len << codes.bits;
            match codebook {
                Codebook::Segment { segment, first } => {
                    self.check_segment(segment, first + size, &NUMBERS, "codebook")?;
                }
                Codebook::Shared(values) => {
                    self.check_shared(values, (index, codes.bits, len))?;
                    shared = shared.saturating_add(size);
                }
            }
        }
        self.check_total(shared)
    }

    /// Checks codebook `index` of a description.
    fn check_shared(&self, values: &[f32], (index, bits, len): (usize, u32, u64)) -> Result<()> {
        let (found, expected) = (values.len() as u64, len << bits);
        if found != expected {
            return self.fail(format!(
                "codebook {index} of the description has {found} values, expected {expected}: \
                 {len} for each of the {} codes of {bits} bits",
                1u64 << bits
            ));
        }
        self.check_finite(values, &format!("codebook {index} of the description"))
    }

    /// Checks how much of a description is codebooks.
    fn check_total(&self, values: u64) -> Result<()> {
        if values > ValueSource::MOST_SHARED_VALUES {
            return self.fail(format!(
                "{values} values in the codebooks of the description, expected at most {}: larger \
                 ones are segments of each weight, as those of a source `vectors`",
                ValueSource::MOST_SHARED_VALUES
            ));
        }
        Ok(())
    }
}
