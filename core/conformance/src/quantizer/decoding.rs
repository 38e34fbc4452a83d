//! The checks of decoders: any range equals that slice of the whole, and follows the format's
//! description.

use std::ops::Range;

use espalier_interface::Quantizer;
use espalier_interface::format::Decoding;

use super::case::{Case, bits_differ, each};
use crate::checked::{Checked, Fault};
use crate::{Subject, Suite, weights};

pub fn check(subject: &Subject<'_, dyn Quantizer>, suite: &mut Suite) {
    suite.check(
        "decode.fills",
        "every element of the output is written, and only finite numbers",
        || {
            each(subject, |case| {
                let (_, decoded) = case.round_trip(&weights::ordinary(case.shape, 5))?;
                finite(&decoded, case.shape[1])
            })
        },
    );
    suite.check(
        "decode.ranges",
        "any range of rows and columns decodes to that slice of the whole, bit for bit",
        || each(subject, ranges),
    );
    suite.check(
        "decode.description",
        "`decode` gives what the format's description says, bit for bit",
        || each(subject, description),
    );
}

/// Fails at a number that is not finite; one that was not written is NaN.
pub fn finite(decoded: &[f32], cols: u64) -> Checked {
    match decoded.iter().position(|x| !x.is_finite()) {
        None => Ok(()),
        Some(at) => Err(Fault::Failed(format!(
            "element {} decodes to {}, or was left unwritten",
            super::case::place(at, cols),
            decoded[at]
        ))),
    }
}

fn ranges(case: &Case<'_>) -> Checked {
    let [rows, cols] = case.shape;
    let (encoded, whole) = case.round_trip(&weights::ordinary(case.shape, 6))?;
    let segments = encoded.segments();
    for row_range in pieces(rows) {
        for col_range in pieces(cols) {
            let found = case.decode_range(&segments, row_range.clone(), col_range.clone())?;
            let expected: Vec<f32> = row_range
                .clone()
                .flat_map(|row| col_range.clone().map(move |col| row * cols + col))
                .map(|at| whole[at as usize])
                .collect();
            let width = col_range.end - col_range.start;
            if let Some(place) = bits_differ(&found, &expected, width) {
                return Err(Fault::Failed(format!(
                    "rows {row_range:?}, columns {col_range:?}, counted from there: {place}"
                )));
            }
        }
    }
    Ok(())
}

/// Ranges of an extent: the whole, its ends, and some that begin and end next to usual block
/// boundaries.
fn pieces(extent: u64) -> Vec<Range<u64>> {
    let mut pieces = vec![
        0..extent,
        0..1,
        extent - 1..extent,
        extent / 3..(2 * extent / 3).max(extent / 3 + 1),
    ];
    for (begin, end) in [(1, 2), (1, 4), (31, 34), (63, 65), (64, 128), (7, 95)] {
        if end <= extent {
            pieces.push(begin..end);
        }
    }
    pieces.dedup();
    pieces
}

fn description(case: &Case<'_>) -> Checked {
    if case.format.decoding == Decoding::Callback {
        let why = "its format describes no decoding: the host calls `decode`";
        return Err(Fault::Skipped(why.to_owned()));
    }
    let (encoded, found) = case.round_trip(&weights::ordinary(case.shape, 7))?;
    let mut described = vec![f32::NAN; case.elements()];
    let (rows, cols) = (0..case.shape[0], 0..case.shape[1]);
    case.format
        .decode(&encoded.segments(), rows, cols, &mut described)?;
    match bits_differ(&found, &described, case.shape[1]) {
        None => Ok(()),
        Some(place) => Err(Fault::Failed(place)),
    }
}
