//! The description of a format, or its quantizer's device code -> what makes
//! `kernels/cuda/linear/decode.cuh` its decoder.

use espalier_interface::format::{
    BitOrder, BlockMap, BlockValues, Codes, Decoding, DeviceCode, Format, TableScale,
};
use espalier_interface::{DType, PluginError, Result};

use crate::arguments::Argument;
use crate::kit::Kit;
use crate::modules::Function;
use crate::sources::Source;

/// Values of codes, and words of codes that are split, as the kernel takes them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Tables {
    codes: [f32; 256],
    scales: [f32; 256],
    zeros: [f32; 256],
    words: u64,
}

#[allow(unsafe_code)] // A struct of numbers.
// SAFETY: numbers without padding, laid out as `Tables` of the kernel.
unsafe impl Argument for Tables {}

/// Elements of which all codes can be read at once.
pub const RUN: u64 = 16;

/// Elements that a thread of the decoder has at once, as the kernel has it.
pub const NEIGHBOURS: usize = 8;

/// The decoder of a format.
pub struct Description {
    /// What stands before the kernel.
    pub definitions: String,
    /// Values of codes.
    pub tables: Tables,
    /// Whether a thread reads the codes of 16 neighbours at once.
    pub has_runs: bool,
    /// Whose format it is.
    quantizer: String,
    /// Whether its device code is among the definitions.
    has_code: bool,
}

impl Description {
    /// The decoder of `format`, which has `code` where it has no description.
    ///
    /// # Errors
    /// `UNSUPPORTED` for a format that has neither.
    pub fn of(format: &Format, code: Option<&DeviceCode>) -> Result<Self> {
        let mut made = Description {
            definitions: String::new(),
            tables: Tables {
                codes: [0.0; 256],
                scales: [0.0; 256],
                zeros: [0.0; 256],
                words: 0,
            },
            has_runs: false,
            quantizer: format.quantizer.clone(),
            has_code: false,
        };
        refuse_other_kinds(format)?;
        match &format.decoding {
            Decoding::Steps { .. } => unreachable!("refused"),
            Decoding::Codebook {
                codes,
                table,
                blocks,
                scale,
            } => {
                made.codes(codes);
                made.runs(codes, *blocks);
                made.define("DECODING_TABLE", "1");
                fill(&mut made.tables.codes, table);
                made.define("BLOCK_OF(i, row, column)", &block(*blocks));
                made.scale(format, scale);
            }
            Decoding::Affine {
                codes,
                blocks,
                scale,
                zero,
            } => {
                made.codes(codes);
                made.runs(codes, *blocks);
                made.define("BLOCK_OF(i, row, column)", &block(*blocks));
                made.scale(format, scale);
                if has_table(zero) {
                    made.define("ZEROS_TABLE", "1");
                }
                let zero = values(format, zero, "zeros", &mut made.tables.zeros);
                made.define("ZERO(block)", &zero);
            }
            Decoding::Callback => {
                let code = code.ok_or_else(|| without_code(&format.quantizer))?;
                made.definitions = code_definitions(&format.quantizer, code);
                made.has_runs = true;
                made.has_code = true;
            }
        }
        Ok(made)
    }

    /// The kernel `name` of `source` with this decoder.
    ///
    /// # Errors
    /// `DEVICE` where it cannot be compiled or loaded; the message names the quantizer, and has the
    /// compiler's lines of its device code.
    pub fn kernel(&self, kit: &Kit, source: Source, name: &str) -> Result<Function> {
        let kernel = kit.modules.function(source, &self.definitions, name);
        let (kernel, what) = if self.has_code {
            let kernel = kernel.and_then(Function::compiled);
            (kernel, "the device code of quantizer")
        } else {
            (kernel, "the decoder of this format of quantizer")
        };
        kernel.map_err(|error| {
            let (quantizer, why) = (&self.quantizer, &error.message);
            let what = format!("{what} `{quantizer}` cannot be used: {why}");
            PluginError::new(error.code, what)
        })
    }

    fn define(&mut self, name: &str, value: &str) {
        self.definitions += &format!("#define {name} ({value})\n");
    }

    fn scale(&mut self, format: &Format, scale: &BlockValues) {
        if has_table(scale) {
            self.define("SCALES_TABLE", "1");
        }
        let scale = values(format, scale, "scales", &mut self.tables.scales);
        self.define("SCALE(block)", &scale);
    }

    /// Whether the codes of 16 neighbours can be read at once, and whether they have one block.
    fn runs(&mut self, codes: &Codes, blocks: BlockMap) {
        match codes.order {
            BitOrder::Split { words } if words % RUN == 0 && codes.dtype() == DType::U8 => {
                self.define("CODES_IN_WORDS", "1");
            }
            BitOrder::HighFirst if codes.bits.is_power_of_two() => {
                self.define("CODES_SIDE_BY_SIDE", "1");
            }
            BitOrder::LowFirst if codes.bits.is_power_of_two() => {
                self.define("CODES_SIDE_BY_SIDE", "0");
            }
            _ => return,
        }
        self.has_runs = true;
        if matches!(blocks, BlockMap::Flat { size } if size % RUN == 0) {
            self.define("ONE_BLOCK", "1");
        }
    }

    fn codes(&mut self, codes: &Codes) {
        self.define("CODE_BITS", &codes.bits.to_string());
        self.define("CODE_SEGMENT", &codes.segment.to_string());
        let word = if codes.dtype() == DType::U8 {
            "uint8_t"
        } else {
            "uint32_t"
        };
        self.definitions += &format!("#define CODE_WORD {word}\n");
        let (slots, bits) = (codes.per_word(), codes.bits);
        let last = slots - 1;
        let [word, shift] = match codes.order {
            BitOrder::Split { words } => {
                self.define("CODE_SLOTS", &slots.to_string());
                self.tables.words = words;
                let slot = "slot_of(i, tables.words)";
                [
                    format!("(i) - tables.words * {slot}"),
                    format!("({last} - {slot}) * {bits}"),
                ]
            }
            BitOrder::HighFirst => [
                format!("(i) / {slots}"),
                format!("({last} - (i) % {slots}) * {bits}"),
            ],
            BitOrder::LowFirst => [format!("(i) / {slots}"), format!("(i) % {slots} * {bits}")],
            BitOrder::Stream => unreachable!("refused"),
        };
        self.define("CODE_WORD_OF(i)", &word);
        self.define("CODE_SHIFT_OF(i)", &shift);
    }
}

/// Refuses what this decoder does not read yet.
fn refuse_other_kinds(format: &Format) -> Result<()> {
    let (codes, blocks) = match &format.decoding {
        Decoding::Codebook { codes, blocks, .. } | Decoding::Affine { codes, blocks, .. } => {
            (codes, blocks)
        }
        Decoding::Callback => return Ok(()),
        Decoding::Steps { .. } => return Err(other_kind(format, "steps")),
    };
    match (codes.order, blocks) {
        (BitOrder::Stream, _) => Err(other_kind(format, "codes in a stream of bits")),
        (_, BlockMap::Groups { .. }) => Err(other_kind(format, "groups of a row")),
        _ => Ok(()),
    }
}

fn other_kind(format: &Format, what: &str) -> PluginError {
    PluginError::unsupported(format!(
        "quantizer `{}` describes its format by {what}, which backend `cuda` does not decode: \
         choose backend `cpu`, or set backend.cuda.host_decode = true",
        format.quantizer
    ))
}

fn without_code(quantizer: &str) -> PluginError {
    PluginError::unsupported(format!(
        "quantizer `{quantizer}` describes no format and has no `device_code`, and its `decode` runs on the processor alone: backend `cuda` cannot read its weights; choose a version of it with `device_code` (docs/write-a-quantizer.md says how its author adds one), a quantizer with a described format, or backend `cpu`; or set backend.cuda.host_decode = true, which decodes on the processor at each use and is slow"
    ))
}

/// What stands before a kernel that decodes with a quantizer's code. The code has line numbers of
/// its own.
fn code_definitions(quantizer: &str, code: &DeviceCode) -> String {
    // A name for the compiler's messages.
    let name = quantizer.replace(|c: char| !c.is_ascii_graphic() || "\"\\".contains(c), "_");
    format!(
        "#define DEVICE_CODE\n#include \"segments.cuh\"\nnamespace device_code {{\n\
         #line 1 \"device code of quantizer {name}\"\n{}\n}}\n",
        code.cuda
    )
}

/// The first values of a table.
fn fill(table: &mut [f32; 256], values: &[f32]) {
    for (to, from) in table.iter_mut().zip(values) {
        *to = *from;
    }
}

/// The block of element `i`, at `row` and `column`.
fn block(map: BlockMap) -> String {
    match map {
        BlockMap::Flat { size } => format!("(i) / {size}"),
        BlockMap::Strided { count } => format!("(i) % {count}"),
        BlockMap::Rows => "row".to_owned(),
        BlockMap::Columns => "column".to_owned(),
        BlockMap::Groups { .. } => unreachable!("refused"),
    }
}

/// A number of segment `segment` at `at`.
fn number(format: &Format, segment: usize, at: &str) -> String {
    let dtype = format.segments[segment].dtype.name();
    format!("number<{dtype}>(segment({segment}), {at})")
}

/// Whether the codes of a block's values have a table.
fn has_table(values: &BlockValues) -> bool {
    matches!(
        values,
        BlockValues::Nested { .. } | BlockValues::Table { .. }
    )
}

/// The value of a block, whose codes have the table `name`.
fn values(format: &Format, of: &BlockValues, name: &str, table: &mut [f32; 256]) -> String {
    match of {
        BlockValues::Stored { segment } => number(format, *segment, "block"),
        BlockValues::Nested {
            codes,
            table: stated,
            scales,
            size,
            offset,
        } => {
            fill(table, stated);
            let scale = number(format, *scales, &format!("(block) / {size}"));
            let offset = number(format, *offset, "0");
            format!("tables.{name}[segment({codes})[block]] * {scale} + {offset}")
        }
        BlockValues::Affine {
            codes,
            groups,
            scales,
            zeros,
        } => {
            let group = match groups {
                BlockMap::Flat { size } | BlockMap::Groups { size } => {
                    format!("(block) / {size}")
                }
                BlockMap::Strided { count } => format!("(block) % {count}"),
                BlockMap::Rows => "0".to_owned(),
                BlockMap::Columns => "block".to_owned(),
            };
            let (scale, zero) = (
                number(format, *scales, &group),
                number(format, *zeros, &group),
            );
            format!("((float)segment({codes})[block] - {zero}) * {scale}")
        }
        BlockValues::Table {
            codes,
            table: stated,
            scale,
            ..
        } => {
            fill(table, stated);
            let bytes = codes.segment;
            let code = match (codes.bits, codes.order) {
                (4, BitOrder::HighFirst) => {
                    format!("segment({bytes})[(block) / 2] >> (4 - (block) % 2 * 4) & 15")
                }
                (4, _) => format!("segment({bytes})[(block) / 2] >> ((block) % 2 * 4) & 15"),
                _ => format!("segment({bytes})[block]"),
            };
            let value = format!("tables.{name}[{code}]");
            match scale {
                None => value,
                Some(TableScale::Times { segment }) => {
                    format!("({value} * {})", number(format, *segment, "0"))
                }
                Some(TableScale::Over { segment }) => {
                    format!("({value} / {})", number(format, *segment, "0"))
                }
            }
        }
    }
}
