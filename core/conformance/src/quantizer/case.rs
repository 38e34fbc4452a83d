//! One quantizer with one set of options at one shape: encode, decode, compare.

use std::ops::Range;

use espalier_interface::format::Format;
use espalier_interface::{ErrorCode, PluginError, Quantizer};

use crate::checked::{Checked, Fault, calm, ensure};
use crate::guarded::Guarded;
use crate::{OptionSet, Subject, Threads};

/// Shapes that every quantizer must accept with its defaults.
const USUAL: [[u64; 2]; 3] = [[64, 64], [128, 256], [8, 4096]];
/// Shapes that it may refuse with `INVALID`: one row, one column, one element, odd counts, no
/// multiples of a block.
const ODD: [[u64; 2]; 8] = [
    [1, 1],
    [1, 33],
    [33, 1],
    [3, 5],
    [5, 37],
    [17, 100],
    [64, 176],
    [1, 4096],
];
/// Shapes for options other than the defaults.
const FEW: [[u64; 2]; 5] = [[64, 64], [1, 33], [17, 100], [64, 176], [8, 4096]];

/// Most bytes per element of any format, without the fixed bytes of a whole weight.
const MOST_BYTES: u64 = 64;
const MOST_BYTES_ONCE: u64 = 1 << 20;

/// A quantizer and a shape that it accepts.
pub struct Case<'a> {
    /// The instance that was made for this case.
    pub quantizer: &'a dyn Quantizer,
    /// The options that it was made with.
    pub set: &'a OptionSet,
    /// `[N, M]`.
    pub shape: [u64; 2],
    /// Its format for that shape, validated.
    pub format: Format,
}

/// The buffers of an encoder after it ran.
pub struct Encoded {
    /// One buffer per segment.
    pub segments: Vec<Guarded>,
    /// The workspace.
    pub workspace: Guarded,
}

impl Encoded {
    /// The segments as `decode` takes them.
    pub fn segments(&self) -> Vec<&[u8]> {
        self.segments.iter().map(Guarded::bytes).collect()
    }
}

/// Calls `body` for every set of options and every shape that the quantizer accepts, on one thread.
/// Skipped where `body` skips all of them.
pub fn each(
    subject: &Subject<'_, dyn Quantizer>,
    mut body: impl FnMut(&Case<'_>) -> Checked,
) -> Checked {
    let mut skipped = Fault::Skipped("no shape is accepted".to_owned());
    let mut passed = false;
    for (index, set) in subject.option_sets().iter().enumerate() {
        let quantizer = match calm(|| Ok(subject.make(&set.options, Threads::new(1))))? {
            Ok(quantizer) => quantizer,
            Err(error) if index > 0 && error.code == ErrorCode::INVALID => continue,
            Err(error) => return Err(Fault::from(error).at(&format!("create with {}", set.label))),
        };
        let shapes: Vec<[u64; 2]> = match index {
            0 => USUAL.into_iter().chain(ODD).collect(),
            _ => FEW.to_vec(),
        };
        for shape in shapes {
            let at = format!("{}, shape {shape:?}", set.label);
            let must = index == 0 && USUAL.contains(&shape);
            let done = calm(|| match case(quantizer.as_ref(), set, shape, must)? {
                Some(case) => body(&case).map(|()| true),
                None => Ok(false),
            });
            match done {
                Ok(ran) => passed |= ran,
                Err(Fault::Skipped(reason)) => skipped = Fault::Skipped(reason),
                Err(failed) => return Err(failed.at(&at)),
            }
        }
    }
    // A shape to which the check does not apply hides none of the others.
    if passed { Ok(()) } else { Err(skipped) }
}

/// The case for `shape`; none where the quantizer may refuse the shape and does.
fn case<'a>(
    quantizer: &'a dyn Quantizer,
    set: &'a OptionSet,
    shape: [u64; 2],
    must: bool,
) -> Checked<Option<Case<'a>>> {
    let format = match quantizer.format(shape) {
        Ok(format) => format,
        Err(error) if !must && error.code == ErrorCode::INVALID => return Ok(None),
        Err(error) => return Err(Fault::from(error).at("format")),
    };
    format.validate()?;
    ensure(format.shape == shape, || {
        format!("the format is one of shape {:?}", format.shape)
    })?;
    let most = MOST_BYTES * shape[0] * shape[1] + MOST_BYTES_ONCE;
    let bytes = format.segments.iter().try_fold(0u64, |sum, segment| {
        sum.checked_add(segment.len.checked_mul(segment.dtype.bytes())?)
    });
    ensure(bytes.is_some_and(|bytes| bytes <= most), || {
        let bytes = bytes.map_or("more than 2^64".to_owned(), |bytes| bytes.to_string());
        format!("the format takes {bytes} bytes, expected at most {most}")
    })?;
    Ok(Some(Case {
        quantizer,
        set,
        shape,
        format,
    }))
}

impl Case<'_> {
    /// Number of elements.
    pub fn elements(&self) -> usize {
        (self.shape[0] * self.shape[1]) as usize
    }

    /// Encodes into segments and workspace that hold `fill`.
    pub fn encode(&self, weight: &[f32], fill: u8) -> Checked<Encoded> {
        encode(self.quantizer, &self.format, weight, fill)?.map_err(|error| {
            Fault::Failed(format!("encode: {}", crate::checked::described(&error)))
        })
    }

    /// Decodes the whole weight into a buffer of NaN.
    pub fn decode(&self, segments: &[&[u8]]) -> Checked<Vec<f32>> {
        self.decode_range(segments, 0..self.shape[0], 0..self.shape[1])
    }

    /// Decodes a range into a buffer of NaN.
    pub fn decode_range(
        &self,
        segments: &[&[u8]],
        rows: Range<u64>,
        cols: Range<u64>,
    ) -> Checked<Vec<f32>> {
        decode(self.quantizer, self.shape, segments, (rows, cols))
    }

    /// Encodes a weight and decodes all of it.
    pub fn round_trip(&self, weight: &[f32]) -> Checked<(Encoded, Vec<f32>)> {
        let encoded = self.encode(weight, 0)?;
        let decoded = self.decode(&encoded.segments())?;
        Ok((encoded, decoded))
    }

    /// Fails where two encodings differ; `what` names the change that should have no effect.
    pub fn same(&self, found: &[&[u8]], expected: &[&[u8]], what: &str) -> Checked {
        match difference(&self.format, found, expected) {
            None => Ok(()),
            Some(place) => Err(Fault::Failed(format!("{what}: {place}"))),
        }
    }
}

/// Encodes with any instance. The outer error is a failed check, the inner one the encoder's
/// refusal.
pub fn encode(
    quantizer: &dyn Quantizer,
    format: &Format,
    weight: &[f32],
    fill: u8,
) -> Checked<Result<Encoded, PluginError>> {
    let workspace = quantizer.encode_workspace(format.shape)?;
    let most = MOST_BYTES * weight.len() as u64 + MOST_BYTES_ONCE;
    ensure(workspace <= most, || {
        format!("encode_workspace wants {workspace} bytes, expected at most {most}")
    })?;
    let mut encoded = Encoded {
        segments: format
            .segments
            .iter()
            .map(|segment| Guarded::new(segment.bytes() as usize, fill))
            .collect(),
        workspace: Guarded::new(workspace as usize, fill),
    };
    let mut segments: Vec<&mut [u8]> = encoded
        .segments
        .iter_mut()
        .map(Guarded::bytes_mut)
        .collect();
    let workspace = encoded.workspace.bytes_mut();
    let done = quantizer.encode(weight, format.shape, &mut segments, workspace);
    Ok(done.map(|()| encoded))
}

/// Decodes with any instance.
pub fn decode(
    quantizer: &dyn Quantizer,
    shape: [u64; 2],
    segments: &[&[u8]],
    (rows, cols): (Range<u64>, Range<u64>),
) -> Checked<Vec<f32>> {
    let elements = (rows.end - rows.start) * (cols.end - cols.start);
    let mut out = vec![f32::NAN; elements as usize];
    let done = quantizer.decode(segments, shape, rows, cols, &mut out);
    done.map_err(|error| Fault::from(error).at("decode"))?;
    Ok(out)
}

/// The first byte in which two encodings differ.
pub fn difference(format: &Format, found: &[&[u8]], expected: &[&[u8]]) -> Option<String> {
    let runs = format.segments.iter().zip(found.iter().zip(expected));
    for (segment, (found, expected)) in runs {
        let at = found.iter().zip(*expected).position(|(a, b)| a != b);
        if let Some(at) = at {
            return Some(format!(
                "segment `{}`, byte {at} of {}: expected {:#04x}, found {:#04x}",
                segment.name,
                expected.len(),
                expected[at],
                found[at]
            ));
        }
    }
    None
}

/// The first element in which two lists of numbers differ in a bit; `cols` is the width of a row.
pub fn bits_differ(found: &[f32], expected: &[f32], cols: u64) -> Option<String> {
    let mut pairs = found.iter().zip(expected);
    let at = pairs.position(|(a, b)| a.to_bits() != b.to_bits())?;
    Some(format!(
        "element {}: expected {:e}, found {:e}",
        place(at, cols),
        expected[at],
        found[at]
    ))
}

/// `(row, column)` of a flat index.
pub fn place(at: usize, cols: u64) -> String {
    format!("({}, {})", at as u64 / cols, at as u64 % cols)
}
