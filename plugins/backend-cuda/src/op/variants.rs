//! Every compilation that the ops ask for: the sources, with what may stand before them.

use espalier_interface::Result;
use espalier_interface::format::{DeviceCode, Format};

use super::attention::{self, flash};
use super::{few_rows, product};
use crate::decoder::Description;
use crate::direction::Direction;
use crate::sources::{
    ARITHMETIC, ATTENTION, COLUMN_SUMS, DECODE, EMBEDDING, FEW_ROWS, FINISH, FLAT, LAYER_NORM,
    OPTIMIZER, ORDERED_SUM, PRODUCT_BF16, PRODUCT_F32, RMS_NORM, ROPE, ROW_NORMS, ROWS, Source,
};

/// Sources that are compiled as they are.
const PLAIN: &[Source] = &[
    ARITHMETIC,
    COLUMN_SUMS,
    EMBEDDING,
    FINISH,
    FLAT,
    LAYER_NORM,
    OPTIMIZER,
    ORDERED_SUM,
    PRODUCT_F32,
    RMS_NORM,
    ROPE,
    ROW_NORMS,
    ROWS,
];

/// A compilation.
#[derive(Clone)]
pub struct Variant {
    /// What it is for, empty for a source that is compiled as it is.
    pub name: String,
    /// Shared memory of a multiprocessor for which it is, in bytes; 0 for any.
    pub shared_bytes: usize,
    pub(crate) source: Source,
    pub(crate) definitions: String,
}

impl Variant {
    /// The file of the source, for example `rows.cu`.
    pub fn source(&self) -> &'static str {
        self.source.name
    }
}

/// All compilations, with a decoder for each of the named `formats`. Formats with the same
/// definitions are one compilation.
///
/// # Errors
/// `UNSUPPORTED` for a format that has no description.
pub fn variants(formats: &[(String, Format)]) -> Result<Vec<Variant>> {
    let plain = PLAIN.iter().map(|source| Variant {
        name: String::new(),
        shared_bytes: 0,
        source: *source,
        definitions: String::new(),
    });
    let widths = attention::WIDTHS.iter().map(|width| Variant {
        name: format!("heads to {width}"),
        shared_bytes: 0,
        source: ATTENTION,
        definitions: attention::definitions(*width),
    });
    let flash = flash::compilations().into_iter();
    let flash = flash.map(|made| Variant {
        name: made.name,
        shared_bytes: made.shared_bytes,
        source: made.source,
        definitions: made.definitions,
    });
    let dense = ["f32", "bf16", "f16"].map(|dtype| Variant {
        name: format!("{dtype} weights"),
        shared_bytes: 0,
        source: FEW_ROWS,
        definitions: few_rows::definitions(dtype),
    });
    let all = plain.chain(widths).chain(flash).chain(products());
    let mut all: Vec<Variant> = all.chain(dense).collect();
    for (name, format) in formats {
        let described = Description::of(format, None)?;
        let definitions = described.definitions;
        let mut same = all
            .iter_mut()
            .filter(|made| made.definitions == definitions);
        if let Some(first) = same.next() {
            for made in [first].into_iter().chain(same) {
                made.name += &format!("; {name}");
            }
            continue;
        }
        let sources = [(DECODE, true), (FEW_ROWS, described.has_runs)];
        for (source, _) in sources.into_iter().filter(|(_, is_there)| *is_there) {
            all.push(Variant {
                name: name.clone(),
                shared_bytes: 0,
                source,
                definitions: definitions.clone(),
            });
        }
    }
    Ok(all)
}

/// The compilations of a format that has no description, with its quantizer's code.
///
/// # Errors
/// `UNSUPPORTED` without code.
pub fn code_variants(format: &Format, code: Option<&DeviceCode>) -> Result<[Variant; 2]> {
    let described = Description::of(format, code)?;
    Ok([DECODE, FEW_ROWS].map(|source| Variant {
        name: format.quantizer.clone(),
        shared_bytes: 0,
        source,
        definitions: described.definitions.clone(),
    }))
}

/// Products of bf16 in every pair of directions, with rows that begin at 16 bytes and without.
fn products() -> impl Iterator<Item = Variant> {
    let directions = [(Direction::Deep, "deep"), (Direction::Wide, "wide")];
    directions.into_iter().flat_map(move |(a, of_a)| {
        directions.into_iter().flat_map(move |(b, of_b)| {
            [(true, "aligned"), (false, "unaligned")].map(|(is_aligned, aligned)| Variant {
                name: format!("{of_a} x {of_b}, {aligned}"),
                shared_bytes: 0,
                source: PRODUCT_BF16,
                definitions: product::definitions([a, b], is_aligned),
            })
        })
    })
}
