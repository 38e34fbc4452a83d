//! The checks of quantizers.
//!
//! Legend: a weight is `[N, M]`; `a` the largest magnitude of a block.

mod bound;
mod calibrated;
mod case;
mod decoding;
mod device_code;
mod encoding;
mod input;
mod options;
mod resolution;
mod saved;
mod sharing;

use espalier_interface::Quantizer;

pub use device_code::device_code;
pub use encoding::BOUNDS;

use crate::{Subject, Suite, declared};

/// Runs all checks of a quantizer.
pub fn quantizer(subject: &Subject<'_, dyn Quantizer>, suite: &mut Suite) {
    declared::check(&subject.component, suite);
    declared::created(subject, suite);
    options::check(subject, suite);
    encoding::check(subject, suite);
    decoding::check(subject, suite);
    bound::check(subject, suite);
    input::check(subject, suite);
    sharing::check(subject, suite);
    calibrated::check(subject, suite);
    saved::check(subject, suite);
}
