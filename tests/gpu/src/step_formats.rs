//! Formats that are described by steps, written in a few words.

use espalier_interface::DType;
use espalier_interface::format::{
    BitOrder, BlockMap, BlockValues, CodeRows, Codes, Decoding, Format, RowOrder, SegmentSpec,
    Step, TableScale, ValueSource,
};
use espalier_interface::random::{Purpose, key, philox};

/// A format that is being described.
pub struct StepFormat {
    shape: [u64; 2],
    segments: Vec<SegmentSpec>,
    steps: Vec<Step>,
}

impl StepFormat {
    /// A format of weights `[N, M]`, without steps.
    pub fn new(shape: [u64; 2]) -> Self {
        StepFormat {
            shape,
            segments: Vec::new(),
            steps: Vec::new(),
        }
    }

    fn elements(&self) -> u64 {
        self.shape[0] * self.shape[1]
    }

    fn segment(&mut self, dtype: DType, len: u64) -> usize {
        let name = format!("segment{}", self.segments.len());
        self.segments.push(SegmentSpec::new(&name, dtype, len));
        self.segments.len() - 1
    }

    /// `count` codes in a new segment.
    fn codes(&mut self, count: u64, bits: u32, order: BitOrder) -> Codes {
        let mut codes = Codes {
            segment: 0,
            bits,
            order,
        };
        codes.segment = self.segment(codes.dtype(), codes.words(count));
        codes
    }

    /// Numbers of blocks, as they are.
    fn stored(&mut self, blocks: BlockMap, dtype: DType) -> BlockValues {
        let segment = self.segment(dtype, blocks.count(self.shape));
        BlockValues::Stored { segment }
    }

    /// With a factor of each block, stored as it is.
    pub fn times(mut self, blocks: BlockMap, dtype: DType) -> Self {
        let values = self.stored(blocks, dtype);
        self.steps.push(Step::Times { blocks, values });
        self
    }

    /// With an addend of each block.
    pub fn plus(mut self, blocks: BlockMap, dtype: DType) -> Self {
        let values = self.stored(blocks, dtype);
        self.steps.push(Step::Plus { blocks, values });
        self
    }

    /// With a number of each block that is taken away.
    pub fn minus(mut self, blocks: BlockMap, dtype: DType) -> Self {
        let values = self.stored(blocks, dtype);
        self.steps.push(Step::Minus { blocks, values });
        self
    }

    /// With `count` outliers in each block of `size` elements.
    pub fn outliers(mut self, size: u64, count: u64, dtype: DType) -> Self {
        let entries = self.elements().div_ceil(size) * count;
        let positions = self.segment(DType::U8, entries);
        let values = self.segment(dtype, entries);
        self.steps.push(Step::Outliers {
            size,
            count,
            positions,
            values,
        });
        self
    }

    /// With a product of runs of `size` elements and a Hadamard matrix.
    pub fn hadamard(mut self, size: u64) -> Self {
        self.steps.push(Step::Hadamard { size });
        self
    }

    /// With a factor that is a code of 8 bits with a table; for odd seeds times one number.
    pub fn coded(mut self, blocks: BlockMap, seed: u32) -> Self {
        let codes = self.codes(blocks.count(self.shape), 8, BitOrder::LowFirst);
        let scale = (seed % 2 == 1).then(|| TableScale::Times {
            segment: self.segment(DType::F32, 1),
        });
        let values = BlockValues::Table {
            codes,
            table: numbers(256, 100 + seed),
            not_numbers: Vec::new(),
            scale,
        };
        self.steps.push(Step::Times { blocks, values });
        self
    }

    /// The format, with what gives its values before any step.
    fn of(self, source: ValueSource) -> Format {
        let format = Format {
            quantizer: "steps".to_owned(),
            shape: self.shape,
            segments: self.segments,
            decoding: Decoding::Steps {
                source,
                steps: self.steps,
            },
        };
        format.validate().expect("a sound format");
        format
    }

    /// With codes that are numbers.
    pub fn count(mut self, bits: u32, order: BitOrder) -> Format {
        let codes = self.codes(self.elements(), bits, order);
        self.of(ValueSource::Count { codes })
    }

    /// With codes that have a table.
    pub fn table(mut self, bits: u32, order: BitOrder) -> Format {
        let codes = self.codes(self.elements(), bits, order);
        let table = numbers(1 << bits, 7);
        self.of(ValueSource::Table { codes, table })
    }

    /// With vectors of `len`, whose stages have these codes and codebooks.
    pub fn vectors(mut self, len: u64, stages: &[(u32, BitOrder, DType)]) -> Format {
        let (mut codes, mut codebooks) = (Vec::new(), Vec::new());
        for &(bits, order, dtype) in stages {
            codes.push(self.codes(self.elements().div_ceil(len), bits, order));
            codebooks.push(self.segment(dtype, len << bits));
        }
        self.of(ValueSource::Vectors {
            codes,
            codebooks,
            len,
        })
    }

    /// With vectors of `len` whose codebooks are in the description, and such codes.
    pub fn shared_vectors(mut self, len: u64, stages: &[(u32, BitOrder)]) -> Format {
        let (mut codes, mut codebooks) = (Vec::new(), Vec::new());
        for (&(bits, order), seed) in stages.iter().zip(50..) {
            codes.push(self.codes(self.elements().div_ceil(len), bits, order));
            codebooks.push(numbers((len << bits) as usize, seed));
        }
        self.of(ValueSource::SharedVectors {
            codes,
            codebooks,
            len,
        })
    }
}

/// Words by chance.
pub fn words(count: usize, seed: u32) -> Vec<u32> {
    let key = key(u64::from(seed), Purpose::SYNTHETIC, 0);
    let blocks = 0..count.div_ceil(4) as u32;
    let mut words: Vec<u32> = blocks.flat_map(|at| philox(key, [at, 0, 0, 0])).collect();
    words.truncate(count);
    words
}

/// Numbers between -2 and 2.
pub fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let words = words(count, seed).into_iter();
    words
        .map(|word| word as f32 / 2f32.powi(30) - 2.0)
        .collect()
}

/// Formats of every kind of source and step, as published formats have them.
pub fn step_formats(shape: [u64; 2]) -> Vec<(String, Format)> {
    let (low, half) = (BitOrder::LowFirst, DType::F16);
    let groups = |size| BlockMap::Groups { size };
    let of = || StepFormat::new(shape);
    let minima = of().times(groups(32), half).minus(groups(32), half);
    let factors = of().minus(groups(64), half).times(groups(64), half);
    let factors = factors.times(BlockMap::Columns, half);
    let outliers = of().times(groups(64), half).outliers(256, 4, half);
    let rotated = of().times(groups(64), half).hadamard(128);
    let rotated = rotated.times(BlockMap::Columns, half);
    let grid = of().times(groups(256), half).hadamard(512);
    let vectors = || of().times(BlockMap::Rows, half);
    let stage = (8, low, half);
    let wide = |bits, order| [(bits, order, half)];
    let padded = BitOrder::Rows(CodeRows::aligned(shape[1], 3, RowOrder::Stream, 4));
    let formats = [
        ("minima of blocks", minima.count(4, low)),
        (
            "3 bits in a stream, factors of columns",
            factors.count(3, BitOrder::Stream),
        ),
        (
            "groups that end within a run",
            of().times(groups(24), half).table(5, BitOrder::Stream),
        ),
        ("outliers", outliers.table(4, BitOrder::HighFirst)),
        (
            "a Hadamard matrix of 128",
            rotated.count(2, BitOrder::LowFirst),
        ),
        ("a codebook of vectors of 4", vectors().vectors(4, &[stage])),
        (
            "two codebooks of vectors of 8",
            vectors().vectors(8, &[stage; 2]),
        ),
        ("a codebook of vectors of 6", vectors().vectors(6, &[stage])),
        (
            "vectors of 8 with codes of 16 bits",
            vectors().vectors(8, &wide(16, low)),
        ),
        (
            "vectors of 8 with a stream of 12 bits",
            vectors().vectors(8, &wide(12, BitOrder::Stream)),
        ),
        (
            "a shared codebook of vectors of 2, a Hadamard matrix of 512",
            grid.shared_vectors(2, &[(8, low)]),
        ),
        (
            "a shared codebook of vectors of 8",
            vectors().shared_vectors(8, &[(8, low)]),
        ),
        (
            "3 bits in a stream, rows at multiples of 4 bytes",
            of().times(groups(64), half).count(3, padded),
        ),
    ];
    let named = |(name, format): (&str, Format)| (name.to_owned(), format);
    formats.map(named).into()
}
