//! The layout of packed codes -> the calls of `kernels/cuda/linear/codes.cuh` that read them.

use espalier_interface::DType;
use espalier_interface::format::{BitOrder, CodeRows, Codes};

use super::{RUN, Writer, each, start};

/// Bytes of the widest load.
const WIDEST_LOAD: u64 = 16;

impl Writer<'_> {
    /// `count` codes from code `index` on, a multiple of `count`.
    pub(super) fn codes(&mut self, codes: &Codes, index: &str, count: &str) {
        let (bits, segment) = (codes.bits, start(codes.segment));
        let read = match codes.order {
            BitOrder::Split { words } if words.is_multiple_of(RUN) => {
                let (word, words) = (word(codes), self.tables.add_words(words));
                format!(
                    "read_split_codes<{bits}, {word}>({segment}, {index}, tables.words[{words}], \
                     code);"
                )
            }
            BitOrder::Split { .. } => {
                let code = self.code(codes, &format!("{index} + k"));
                format!("\n{} code[k] = {code};", each(count))
            }
            BitOrder::Rows(rows) => {
                let (order, alignment) = (name(rows.order.into()), alignment(rows));
                let rows = self.rows(rows);
                format!(
                    "read_row_codes<{bits}, {order}, {alignment}>({segment}, {index}, {rows}, \
                     code);"
                )
            }
            order => format!(
                "read_codes<{bits}, {}>({segment}, {index}, code);",
                name(order)
            ),
        };
        self.body += &format!("    uint32_t code[{count}];\n    {read}\n");
    }

    /// One code of a list.
    pub(super) fn code(&mut self, codes: &Codes, index: &str) -> String {
        let (bits, segment) = (codes.bits, start(codes.segment));
        match codes.order {
            BitOrder::Split { words } => {
                let (word, words) = (word(codes), self.tables.add_words(words));
                format!("split_code_at<{bits}, {word}>({segment}, {index}, tables.words[{words}])")
            }
            BitOrder::Rows(rows) => {
                let (order, rows) = (name(rows.order.into()), self.rows(rows));
                format!("row_code_at<{bits}, {order}>({segment}, {index}, {rows})")
            }
            order => format!("code_at<{bits}, {}>({segment}, {index})", name(order)),
        }
    }

    /// The address of what the kernels have to know of rows.
    fn rows(&mut self, rows: CodeRows) -> String {
        let first = self.tables.add_words(rows.codes);
        self.tables.add_words(rows.bytes);
        self.tables.add_words(rows.start);
        format!("&tables.words[{first}]")
    }
}

/// The kernels' name of the words of split codes.
fn word(codes: &Codes) -> &'static str {
    if codes.dtype() == DType::U8 {
        "uint8_t"
    } else {
        "uint32_t"
    }
}

/// The multiple of bytes at which rows begin, of those that loads have; 0 where a row has no whole
/// runs.
fn alignment(rows: CodeRows) -> u64 {
    if !rows.codes.is_multiple_of(RUN) {
        return 0;
    }
    let zeros = (rows.bytes | rows.start | WIDEST_LOAD).trailing_zeros();
    1 << zeros
}

/// The kernels' name of an order of codes that follow each other.
fn name(order: BitOrder) -> &'static str {
    match order {
        BitOrder::HighFirst => "HIGH_FIRST",
        BitOrder::LowFirst => "LOW_FIRST",
        BitOrder::Stream => "STREAM",
        BitOrder::Split { .. } | BitOrder::Rows(_) => {
            unreachable!("split codes and codes in rows have functions of their own")
        }
    }
}
