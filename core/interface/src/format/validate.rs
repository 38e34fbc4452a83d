//! Checks that the parts of a format fit each other, before anything is allocated for it.

mod block_values;

use super::{
    BitOrder, BlockMap, CodeRows, Codes, Decoding, Format, SegmentSpec, Step, ValueSource,
};
use crate::{DType, PluginError, Result};

/// Dtypes in which the numbers of blocks are stored.
pub(super) const NUMBERS: [DType; 3] = [DType::F32, DType::BF16, DType::F16];

impl Format {
    /// Most bytes of a packed weight of `elements` elements: more than twice its size in f64 beside
    /// its codebooks is a mistake.
    fn most_bytes(&self, elements: u64) -> u64 {
        let most = elements.saturating_mul(16).saturating_add(1 << 16);
        most.saturating_add(self.codebook_bytes())
    }

    /// Checks that the description does not contradict itself.
    ///
    /// # Errors
    /// `INVALID`, naming the segment or field that does not fit.
    pub fn validate(&self) -> Result<()> {
        let elements = self.elements()?;
        self.check_segments(elements)?;
        match &self.decoding {
            Decoding::Callback => Ok(()),
            Decoding::Steps { source, steps } => {
                self.check_source(source, elements)?;
                if steps.len() > Self::MOST_STEPS {
                    return self.fail(format!(
                        "{} steps, expected at most {}",
                        steps.len(),
                        Self::MOST_STEPS
                    ));
                }
                steps
                    .iter()
                    .try_for_each(|step| self.check_step(step, elements))
            }
            Decoding::Codebook {
                codes,
                table,
                blocks,
                scale,
            } => {
                self.check_codebook(codes, table, elements)?;
                self.check_values(scale, self.count(*blocks, self.shape)?, "scale")
            }
            Decoding::Affine {
                codes,
                blocks,
                scale,
                zero,
            } => {
                self.check_codes(codes, elements)?;
                let count = self.count(*blocks, self.shape)?;
                self.check_values(scale, count, "scale")?;
                self.check_values(zero, count, "zero")
            }
        }
    }

    fn check_codebook(&self, codes: &Codes, table: &[f32], elements: u64) -> Result<()> {
        self.check_codes(codes, elements)?;
        if table.len() != 1 << codes.bits {
            return self.fail(format!(
                "a codebook of {} values for {} bits",
                table.len(),
                codes.bits
            ));
        }
        self.check_finite(table, "codes")
    }

    fn check_source(&self, source: &ValueSource, elements: u64) -> Result<()> {
        match source {
            ValueSource::Table { codes, table } => self.check_codebook(codes, table, elements),
            ValueSource::Count { codes } => self.check_codes(codes, elements),
            ValueSource::Vectors { .. } | ValueSource::SharedVectors { .. } => {
                let vectors = source.vectors().expect("a source of vectors");
                self.check_vectors(vectors, elements)
            }
        }
    }

    fn check_step(&self, step: &Step, elements: u64) -> Result<()> {
        if let Some((what, blocks, values)) = step.numbers() {
            return self.check_values(values, self.count(blocks, self.shape)?, what);
        }
        let (size, count, positions, values) = match step {
            Step::Outliers {
                size,
                count,
                positions,
                values,
            } => (size, count, positions, values),
            Step::Hadamard { size } => return self.check_hadamard(*size),
            _ => return Ok(()),
        };
        if !(1..=Step::LARGEST_OUTLIER_BLOCK).contains(size) || !(1..=*size).contains(count) {
            return self.fail(format!(
                "{count} outliers in blocks of {size} elements, expected 1 to {} elements and \
                 1 to as many outliers",
                Step::LARGEST_OUTLIER_BLOCK
            ));
        }
        let entries = elements.div_ceil(*size).saturating_mul(*count);
        self.check_segment(*positions, entries, &[DType::U8], "positions of outliers")?;
        self.check_segment(*values, entries, &NUMBERS, "values of outliers")
    }

    fn check_hadamard(&self, size: u64) -> Result<()> {
        let fits = size.is_power_of_two() && (2..=Step::LARGEST_HADAMARD).contains(&size);
        if fits && self.shape[1].is_multiple_of(size) {
            return Ok(());
        }
        self.fail(format!(
            "a Hadamard matrix for runs of {size} elements in rows of {}, expected a power of two, \
             2 to {}, of which the row is a multiple",
            self.shape[1],
            Step::LARGEST_HADAMARD
        ))
    }

    pub(super) fn fail<T>(&self, what: String) -> Result<T> {
        Err(PluginError::invalid(format!(
            "format of quantizer `{}`: {what}",
            self.quantizer
        )))
    }

    fn elements(&self) -> Result<u64> {
        match self.shape[0].checked_mul(self.shape[1]) {
            Some(elements) if elements > 0 => Ok(elements),
            _ => self.fail(format!(
                "shape {:?} has no elements or too many",
                self.shape
            )),
        }
    }

    fn check_segments(&self, elements: u64) -> Result<()> {
        if self.segments.len() > Self::MOST_SEGMENTS {
            return self.fail(format!(
                "{} segments, expected at most {}",
                self.segments.len(),
                Self::MOST_SEGMENTS
            ));
        }
        if let Some(spec) = self.segments.iter().find(|spec| spec.dtype.bytes() == 0) {
            return self.fail(format!(
                "segment `{}` is of {}, which has no size",
                spec.name, spec.dtype
            ));
        }
        let most = self.most_bytes(elements);
        if self.bytes() > most {
            return self.fail(format!(
                "{} bytes for the {elements} elements of {:?}, expected at most {most}",
                self.bytes(),
                self.shape,
            ));
        }
        Ok(())
    }

    /// Checks that segment `index` exists, is of one of `dtypes` and holds `least` elements.
    pub(super) fn check_segment(
        &self,
        index: usize,
        least: u64,
        dtypes: &[DType],
        what: &str,
    ) -> Result<()> {
        let Some(SegmentSpec { name, dtype, len }) = self.segments.get(index) else {
            return self.fail(format!("{what}: segment {index} does not exist"));
        };
        if *len < least {
            return self.fail(format!(
                "{what}: segment `{name}` holds {len} {dtype}, expected at least {least}"
            ));
        }
        if !dtypes.contains(dtype) {
            let names: Vec<_> = dtypes.iter().map(|dtype| dtype.name()).collect();
            return self.fail(format!(
                "{what}: segment `{name}` is of {dtype}, expected {}",
                names.join(", ")
            ));
        }
        Ok(())
    }

    /// Checks codes of elements.
    fn check_codes(&self, codes: &Codes, elements: u64) -> Result<()> {
        if codes.are_wide() {
            return self.fail(format!(
                "codes of {} bits, expected at most 8: wider ones stand for vectors, as those of a \
                 source `vectors`",
                codes.bits
            ));
        }
        self.check_wide_codes(codes, elements)
    }

    /// Checks codes of at most 16 bits.
    pub(super) fn check_wide_codes(&self, codes: &Codes, elements: u64) -> Result<()> {
        if !codes.is_packable() {
            return self.fail(format!(
                "codes of {} bits in order {:?}; 1, 2, 4, 5, 6, 7 and 8 can be packed, 3 in split \
                 words or as a stream, and for vectors 9 to {} in words of 16 bits or as a stream",
                codes.bits,
                codes.order,
                Codes::MOST_BITS
            ));
        }
        match codes.order {
            BitOrder::Split { words } if words.saturating_mul(codes.per_word()) < elements => {
                return self.fail(format!(
                    "codes split over {words} words of {} slots, expected room for {elements}",
                    codes.per_word()
                ));
            }
            BitOrder::Rows(rows) => self.check_rows(codes, rows)?,
            _ => {}
        }
        let least = codes.words(elements);
        self.check_segment(codes.segment, least, &[codes.dtype()], "codes")
    }

    fn check_rows(&self, codes: &Codes, rows: CodeRows) -> Result<()> {
        let (row, width) = (codes.of_row(rows), codes.dtype().bytes());
        let least = row.words(rows.codes).saturating_mul(width);
        if rows.codes == 0 || rows.bytes < least {
            return self.fail(format!(
                "rows of {} codes of {} bits in {} bytes each, expected at least 1 code and \
                 {} bytes",
                rows.codes,
                codes.bits,
                rows.bytes,
                least.max(1)
            ));
        }
        if !rows.bytes.is_multiple_of(width) || !rows.start.is_multiple_of(width) {
            return self.fail(format!(
                "rows of codes of {} bits from byte {} on and every {} bytes, expected multiples \
                 of the {width} bytes of a word",
                codes.bits, rows.start, rows.bytes
            ));
        }
        Ok(())
    }

    /// Number of blocks of a weight of that shape.
    fn count(&self, blocks: BlockMap, shape: [u64; 2]) -> Result<u64> {
        match blocks {
            BlockMap::Flat { size: 0 }
            | BlockMap::Strided { count: 0 }
            | BlockMap::Groups { size: 0 } => self.fail("a block map without blocks".to_owned()),
            _ => Ok(blocks.count(shape)),
        }
    }

    pub(super) fn check_finite(&self, table: &[f32], what: &str) -> Result<()> {
        match table.iter().position(|x| !x.is_finite()) {
            None => Ok(()),
            Some(at) => self.fail(format!("{what}: value {at} of its table is {}", table[at])),
        }
    }
}
