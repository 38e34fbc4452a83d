//! The stages of a described format -> the function that decodes its elements, in CUDA C++.
//!
//! The function is made of what `kernels/cuda/linear/steps.cuh` has. It depends on the weight's
//! shape only where blocks do: tables, the words of split codes and the rows of codes are read from
//! the card's memory.

mod codes;

use espalier_interface::DType;
use espalier_interface::format::{
    BitOrder, BlockMap, BlockValues, Codebook, Format, Step, TableScale, ValueSource, Vectors,
};

use super::code_tables::CodeTables;
use super::{NEIGHBOURS, RUN};

/// Lanes of a warp.
const WARP: u64 = 32;

/// The function of a format.
pub struct Text {
    /// What stands before the kernel.
    pub definitions: String,
    /// What the function reads.
    pub tables: CodeTables,
    /// Whether it decodes 8 and 16 neighbours at once.
    pub has_runs: bool,
}

/// A function that is being written.
struct Writer<'a> {
    format: &'a Format,
    body: String,
    tables: CodeTables,
}

impl Text {
    /// The function of `format`, whose stages are `source` and `steps`.
    pub fn of(format: &Format, source: &ValueSource, steps: &[Step]) -> Self {
        let mut writer = Writer {
            format,
            body: String::new(),
            tables: CodeTables::default(),
        };
        writer.source(source);
        for step in steps {
            writer.step(step);
        }
        let has_runs = has_runs(source);
        // Decoders with more to do at once need more registers.
        let is_lean = has_runs && is_lean(source, steps, format.shape[1]);
        let resident = if is_lean { 6 } else { 4 };
        let largest = steps.iter().filter_map(hadamard).max().unwrap_or(1);
        let mut definitions = writer.tables.definitions();
        definitions += &format!("#define CHUNK {}\n", chunk(largest));
        if largest > NEIGHBOURS as u64 {
            definitions += "#define WHOLE_WARPS\n";
        }
        definitions += &format!("#define DESCRIBED\n#define RESIDENT_BLOCKS {resident}\n");
        if has_runs {
            definitions += "#define HAS_RUNS\n";
        }
        definitions += &format!(
            "#include \"steps.cuh\"\ntemplate <int N>\nDEVICE void values_of(const Segments& \
             segments, const Tables& tables, const Place& at, const Shape& shape, float (&v)[N]) \
             {{\n{}}}\n",
            writer.body
        );
        Text {
            definitions,
            tables: writer.tables,
            has_runs,
        }
    }
}

/// Elements that a thread has at once, where the largest of matrices has so many: those of the
/// lanes of a warp are a whole run.
fn chunk(largest: u64) -> u64 {
    let neighbours = NEIGHBOURS as u64;
    largest.min(neighbours.max(largest / WARP))
}

/// Elements that a step multiplies by one matrix.
fn hadamard(step: &Step) -> Option<u64> {
    match step {
        Step::Hadamard { size } => Some(*size),
        _ => None,
    }
}

/// Whether the values of 8 and of 16 neighbours can be read at once.
fn has_runs(source: &ValueSource) -> bool {
    match source {
        ValueSource::Table { codes, .. } | ValueSource::Count { codes } => match codes.order {
            BitOrder::Split { words } => words.is_multiple_of(RUN),
            _ => true,
        },
        ValueSource::Vectors { len, .. } | ValueSource::SharedVectors { len, .. } => {
            has_whole_vectors(*len)
        }
    }
}

/// Whether 8 and 16 neighbours are whole vectors or lanes of one.
fn has_whole_vectors(len: u64) -> bool {
    len.is_multiple_of(RUN) || RUN.is_multiple_of(len)
}

/// Whether 16 neighbours from a multiple of 16 on, in a weight of `columns`, have one block.
fn is_common(blocks: BlockMap, columns: u64) -> bool {
    match blocks {
        BlockMap::Flat { size } => size.is_multiple_of(RUN),
        BlockMap::Groups { size } => size.is_multiple_of(RUN) && columns.is_multiple_of(RUN),
        BlockMap::Rows => columns.is_multiple_of(RUN),
        BlockMap::Strided { .. } | BlockMap::Columns => false,
    }
}

/// Whether 16 neighbours from a multiple of 16 on have neighbouring blocks.
fn are_neighbours(blocks: BlockMap, columns: u64) -> bool {
    match blocks {
        BlockMap::Columns => columns.is_multiple_of(RUN),
        BlockMap::Strided { count } => count.is_multiple_of(RUN),
        BlockMap::Flat { .. } | BlockMap::Groups { .. } | BlockMap::Rows => false,
    }
}

/// Whether a thread reads codes of whole bytes, and at most two numbers with them.
fn is_lean(source: &ValueSource, steps: &[Step], columns: u64) -> bool {
    let is_plain = match source {
        ValueSource::Table { codes, .. } | ValueSource::Count { codes } => match codes.order {
            BitOrder::HighFirst | BitOrder::LowFirst => codes.bits.is_power_of_two(),
            BitOrder::Split { .. } | BitOrder::Stream | BitOrder::Rows(_) => false,
        },
        ValueSource::Vectors { .. } | ValueSource::SharedVectors { .. } => false,
    };
    let is_plain_step = |step: &Step| {
        let numbers = step.numbers();
        numbers.is_some_and(|(_, blocks, _)| is_common(blocks, columns))
    };
    is_plain && steps.len() <= 2 && steps.iter().all(is_plain_step)
}

impl Writer<'_> {
    /// The values before any step.
    fn source(&mut self, source: &ValueSource) {
        let value = match source {
            ValueSource::Table { codes, table } => {
                self.codes(codes, "at.i", "N");
                let first = self.tables.add(table);
                format!("tables.values[{first} + code[k]]")
            }
            ValueSource::Count { codes } => {
                self.codes(codes, "at.i", "N");
                "(float)code[k]".to_owned()
            }
            ValueSource::Vectors { .. } | ValueSource::SharedVectors { .. } => {
                return self.vectors(source.vectors().expect("a source of vectors"));
            }
        };
        self.body += &format!("{} v[k] = {value};\n", each("N"));
    }

    /// The sums of vectors' parts, as many lanes at once as a vector and a thread have.
    fn vectors(&mut self, vectors: Vectors<'_>) {
        let len = vectors.len;
        if !has_whole_vectors(len) {
            return self.lanes(vectors);
        }
        self.body += &format!(
            "    constexpr int LEN = {len}, LANES = N < LEN ? N : LEN, VECTORS = N / LANES;\n    \
             uint64_t vector = at.i / LEN, lane = at.i % LEN;\n"
        );
        let lanes = each("LANES");
        for (stage, (codes, codebook)) in vectors.stages().enumerate() {
            self.body += "    {\n";
            self.codes(codes, "vector", "VECTORS");
            let (dtype, codebook) = match codebook {
                Codebook::Segment { segment, first } => {
                    let bytes = first * self.format.segments[segment].dtype.bytes();
                    let start = match bytes {
                        0 => start(segment),
                        _ => format!("{} + {bytes}", start(segment)),
                    };
                    (self.dtype(segment), start)
                }
                Codebook::Shared(values) => {
                    let first = self.tables.add_vectors(values);
                    let start = format!("(const uint8_t*)(tables.values + {first})");
                    (DType::F32.name(), start)
                }
            };
            let sum = if stage == 0 { "" } else { "v[own + k] + " };
            self.body += &format!(
                "#pragma unroll\n    for (int g = 0; g < VECTORS; g++) {{\n    int own = g * \
                 LANES;\n    float part[LANES];\n    read_numbers<{dtype}>({codebook}, \
                 (uint64_t)code[g] * LEN + lane, part);\n{lanes} v[own + k] = {sum}part[k];\n    \
                 }}\n    }}\n"
            );
        }
    }

    /// The same of vectors that are no runs: lane by lane.
    fn lanes(&mut self, vectors: Vectors<'_>) {
        let (len, mut sum) = (vectors.len, String::new());
        for (codes, codebook) in vectors.stages() {
            let code = self.code(codes, &format!("(at.i + k) / {len}"));
            let at = format!("(uint64_t){code} * {len} + (at.i + k) % {len}");
            if !sum.is_empty() {
                sum += " + ";
            }
            sum += &match codebook {
                Codebook::Segment { segment, first: 0 } => self.number(segment, &at),
                Codebook::Segment { segment, first } => {
                    self.number(segment, &format!("{first} + {at}"))
                }
                Codebook::Shared(values) => {
                    let first = self.tables.add(values);
                    format!("tables.values[{first} + {at}]")
                }
            };
        }
        self.body += &format!("{} v[k] = {sum};\n", each("N"));
    }

    /// The values after a step.
    fn step(&mut self, step: &Step) {
        let (operator, blocks, values) = match step {
            Step::Times { blocks, values } => ('*', *blocks, values),
            Step::Plus { blocks, values } => ('+', *blocks, values),
            Step::Minus { blocks, values } => ('-', *blocks, values),
            Step::Outliers {
                size,
                count,
                positions,
                values,
            } => {
                let (dtype, positions) = (self.dtype(*values), start(*positions));
                let values = start(*values);
                self.body += &format!(
                    "    replace_outliers<{size}, {count}, {dtype}>({positions}, {values}, at.i, \
                     v);\n"
                );
                return;
            }
            Step::Hadamard { size } => {
                self.body += &format!("    multiply_hadamard<{size}>(v);\n");
                return;
            }
        };
        let (columns, each) = (self.format.shape[1], each("N"));
        let text = match (blocks, values) {
            (_, BlockValues::Stored { segment }) if are_neighbours(blocks, columns) => {
                let (dtype, segment) = (self.dtype(*segment), start(*segment));
                let block = block(blocks, "at");
                format!(
                    "    float x[N];\n    read_numbers<{dtype}>({segment}, {block}, x);\n{each} \
                     v[k] = v[k] {operator} x[k];\n"
                )
            }
            _ if is_common(blocks, columns) => {
                let (block, number) = (block(blocks, "at"), self.number_of_block(values, "block"));
                format!(
                    "    uint64_t block = {block};\n    float x = {number};\n{each} v[k] = v[k] \
                     {operator} x;\n"
                )
            }
            _ => {
                let (block, number) = (block(blocks, "own"), self.number_of_block(values, "block"));
                format!(
                    "    Place own = at;\n{each} {{\n    uint64_t block = {block};\n    v[k] = v[k] \
                     {operator} ({number});\n    own = behind(own, shape);\n    }}\n"
                )
            }
        };
        self.body += &format!("    {{\n{text}    }}\n");
    }

    /// The kernels' name of the dtype of a segment.
    fn dtype(&self, segment: usize) -> String {
        self.format.segments[segment].dtype.name()
    }

    /// A number of a segment.
    fn number(&self, segment: usize, at: &str) -> String {
        format!("number<{}>({}, {at})", self.dtype(segment), start(segment))
    }

    /// The number of the block whose index is `block`.
    fn number_of_block(&mut self, of: &BlockValues, block: &str) -> String {
        match of {
            BlockValues::Stored { segment } => self.number(*segment, block),
            BlockValues::Interleaved {
                segment,
                dtype,
                start: first,
                bytes,
            } => {
                let width = dtype.bytes();
                let is_aligned = first.is_multiple_of(width) && bytes.is_multiple_of(width);
                let words = self.tables.add_words(*first);
                self.tables.add_words(*bytes);
                let (dtype, segment) = (dtype.name(), start(*segment));
                format!(
                    "interleaved_number<{dtype}, {is_aligned}>({segment}, tables.words[{words}] + \
                     {block} * tables.words[{}])",
                    words + 1
                )
            }
            BlockValues::Product {
                values,
                factors,
                size,
            } => {
                let value = self.number_of_block(values, block);
                let factor = self.number_of_block(factors, &format!("({block} / {size})"));
                format!("({value}) * ({factor})")
            }
            BlockValues::Nested {
                codes,
                table,
                scales,
                size,
                offset,
            } => {
                let (first, codes) = (self.tables.add(table), start(*codes));
                let scale = self.number(*scales, &format!("{block} / {size}"));
                let offset = self.number(*offset, "0");
                format!("tables.values[{first} + {codes}[{block}]] * {scale} + {offset}")
            }
            BlockValues::Affine {
                codes,
                groups,
                scales,
                zeros,
            } => {
                // The blocks as a weight of one row.
                let group = match groups {
                    BlockMap::Flat { size } | BlockMap::Groups { size } => {
                        format!("{block} / {size}")
                    }
                    BlockMap::Strided { count } => format!("{block} % {count}"),
                    BlockMap::Rows => "0".to_owned(),
                    BlockMap::Columns => block.to_owned(),
                };
                let (scale, zero) = (self.number(*scales, &group), self.number(*zeros, &group));
                format!("((float){}[{block}] - {zero}) * {scale}", start(*codes))
            }
            BlockValues::Table {
                codes,
                table,
                scale,
                ..
            } => {
                let (first, code) = (self.tables.add(table), self.code(codes, block));
                let value = format!("tables.values[{first} + {code}]");
                match scale {
                    None => value,
                    Some(TableScale::Times { segment }) => {
                        format!("{value} * {}", self.number(*segment, "0"))
                    }
                    Some(TableScale::Over { segment }) => {
                        format!("{value} / {}", self.number(*segment, "0"))
                    }
                }
            }
        }
    }
}

/// A loop over numbers of which all are there at once.
fn each(count: &str) -> String {
    format!("#pragma unroll\n    for (int k = 0; k < {count}; k++)")
}

/// The start of a segment.
fn start(segment: usize) -> String {
    format!("segments.start[{segment}]")
}

/// The block of the element at `place`.
fn block(map: BlockMap, place: &str) -> String {
    match map {
        BlockMap::Flat { size } => format!("{place}.i / {size}"),
        BlockMap::Strided { count } => format!("{place}.i % {count}"),
        BlockMap::Rows => format!("{place}.row"),
        BlockMap::Columns => format!("{place}.column"),
        BlockMap::Groups { size } => {
            let more = size - 1;
            format!("{place}.row * ((shape.columns + {more}) / {size}) + {place}.column / {size}")
        }
    }
}
