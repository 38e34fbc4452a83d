//! The check of a quantizer's device code, on a device that compiles it.

use espalier_interface::format::Decoding;
use espalier_interface::{Device, Quantizer};

use super::case::{Case, bits_differ, each};
use crate::checked::{Checked, Fault};
use crate::ops::decoded;
use crate::{Subject, Suite, weights};

/// Checks that the device code gives what `decode` gives. `device` is called where there is code;
/// it gives a device that compiles such code, or why there is none.
pub fn device_code<'d>(
    subject: &Subject<'_, dyn Quantizer>,
    device: impl Fn() -> Checked<&'d dyn Device>,
    suite: &mut Suite,
) {
    suite.check(
        "decode.device_code",
        "the device code of a format without a description gives what `decode` gives, bit for bit",
        || each(subject, |case| decodes(case, &device)),
    );
}

fn decodes<'d>(case: &Case<'_>, device: impl Fn() -> Checked<&'d dyn Device>) -> Checked {
    let code = case.quantizer.device_code()?;
    if case.format.decoding != Decoding::Callback {
        let why = "its format is described, which is all that a device needs";
        return Err(Fault::Skipped(why.to_owned()));
    }
    let Some(code) = code else {
        let why = "it has no device code: only backends that call `decode` read its weights";
        return Err(Fault::Skipped(why.to_owned()));
    };
    code.validate()?;
    let device = device()?;
    let (encoded, expected) = case.round_trip(&weights::ordinary(case.shape, 8))?;
    let found = decoded(device, &case.format, &encoded.segments(), Some(&code));
    // A device was found that says it compiles such code.
    let found = found.map_err(|fault| match fault {
        Fault::Skipped(why) | Fault::Failed(why) => Fault::Failed(why),
    })?;
    match bits_differ(&found, &expected, case.shape[1]) {
        None => Ok(()),
        Some(place) => Err(Fault::Failed(place)),
    }
}
