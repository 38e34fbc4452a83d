//! The checks of encoders: they write all that the format declares, nothing else, and always the
//! same.

use espalier_interface::Quantizer;

use super::case::{Case, difference, each, encode};
use crate::checked::{Checked, Fault, ensure};
use crate::{Order, Subject, Suite, Threads, weights};

/// The check that must pass before an encoder gets any other memory.
pub const BOUNDS: &str = "encode.bounds";

/// Thread counts and orders in which to run the loops of an encoding.
const WAYS: [Threads; 5] = [
    Threads::new(1),
    Threads::new(2),
    Threads::new(3),
    Threads::new(7),
    Threads {
        count: 1,
        order: Order::Backward,
    },
];

pub fn check(subject: &Subject<'_, dyn Quantizer>, suite: &mut Suite) {
    suite.check(
        "format.pure",
        "a format is valid for every shape and the same each time it is asked for, also of another instance",
        || {
            each(subject, |case| {
                let other = subject.make(&case.set.options, Threads::new(3))?;
                let again = [
                    case.quantizer.format(case.shape)?,
                    other.format(case.shape)?,
                ];
                let same = again.iter().all(|format| *format == case.format);
                ensure(same, || {
                    "two formats of one shape and one set of options differ".into()
                })
            })
        },
    );
    suite.check(
        "encode.fills",
        "every byte that the format declares is written, for any earlier content of it and of the workspace",
        || each(subject, fills),
    );
    suite.check(
        BOUNDS,
        "no byte is written beside the segments, nor beside the declared workspace",
        || each(subject, bounds),
    );
    suite.check(
        "encode.deterministic",
        "a weight gives the same bytes each time, at other addresses and of another instance",
        || each(subject, |case| deterministic(subject, case)),
    );
    suite.check(
        "encode.threads",
        "a weight gives the same bytes on 1, 2, 3 and 7 threads, in any order of the loops",
        || each(subject, |case| threads(subject, case)),
    );
}

fn fills(case: &Case<'_>) -> Checked {
    let weight = weights::ordinary(case.shape, 1);
    let zeros = case.encode(&weight, 0x00)?;
    for fill in [0xff, 0xa5] {
        let other = case.encode(&weight, fill)?;
        case.same(
            &other.segments(),
            &zeros.segments(),
            "the result depends on what lay in segments or workspace before (00 against a pattern)",
        )?;
    }
    Ok(())
}

fn bounds(case: &Case<'_>) -> Checked {
    let encoded = case.encode(&weights::ordinary(case.shape, 2), 0xa5)?;
    for (segment, guarded) in case.format.segments.iter().zip(&encoded.segments) {
        outside(guarded.overrun(), &format!("segment `{}`", segment.name))?;
    }
    outside(encoded.workspace.overrun(), "the workspace")
}

fn outside(overrun: Option<i64>, what: &str) -> Checked {
    let Some(bytes) = overrun else {
        return Ok(());
    };
    let side = if bytes < 0 { "before" } else { "after" };
    let bytes = bytes.abs();
    Err(Fault::Failed(format!(
        "{what} was overrun: a byte {bytes} {side} it was written"
    )))
}

fn deterministic(subject: &Subject<'_, dyn Quantizer>, case: &Case<'_>) -> Checked {
    let weight = weights::ordinary(case.shape, 3);
    let first = case.encode(&weight, 0)?;
    let elsewhere = weight.clone();
    for _ in 0..2 {
        let again = case.encode(&elsewhere, 0)?;
        let what = "the same weight a second time";
        case.same(&again.segments(), &first.segments(), what)?;
    }
    let other = subject.make(&case.set.options, Threads::new(1))?;
    let again = encode(other.as_ref(), &case.format, &weight, 0)??;
    case.same(&again.segments(), &first.segments(), "another instance")
}

fn threads(subject: &Subject<'_, dyn Quantizer>, case: &Case<'_>) -> Checked {
    let weight = weights::ordinary(case.shape, 4);
    let alone = case.encode(&weight, 0)?;
    for way in WAYS {
        let quantizer = subject.make(&case.set.options, way)?;
        let found = encode(quantizer.as_ref(), &case.format, &weight, 0)??;
        if let Some(place) = difference(&case.format, &found.segments(), &alone.segments()) {
            let order = match way.order {
                Order::Forward => "",
                Order::Backward => ", loops backward",
            };
            let count = way.count;
            return Err(Fault::Failed(format!("on {count} threads{order}: {place}")));
        }
    }
    Ok(())
}
