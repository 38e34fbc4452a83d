//! A quantizer's `decode` -> the function pointer that a backend's kernels call for formats that
//! have no description. Failures of these calls are kept.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use espalier_interface::abi::call_site;
use espalier_interface::{Decoder, ErrorCode, PluginError, Quantizer, Result};
use espalier_numeric::first_not_finite;
use espalier_registry::Chosen;

use crate::Error;
use crate::error::of_param;

/// The context of the function pointer: a weight's quantizer and shape.
pub struct Callback {
    quantizer: Chosen<dyn Quantizer>,
    param: Arc<str>,
    shape: [u64; 2],
    /// The failure with the lowest row and column, since threads fail in any order.
    failure: Mutex<Option<([u64; 2], PluginError)>>,
}

impl Callback {
    /// The decoder of `param`, a weight `[N, M]` packed by `quantizer`. Never freed: kernels live
    /// as long as the process.
    pub fn new(
        quantizer: &Chosen<dyn Quantizer>,
        param: &str,
        shape: [u64; 2],
    ) -> &'static Callback {
        Box::leak(Box::new(Callback {
            quantizer: quantizer.clone(),
            param: Arc::from(param),
            shape,
            failure: Mutex::default(),
        }))
    }

    /// What a backend's kernels call.
    pub fn decoder(&'static self) -> Decoder {
        Decoder {
            context: std::ptr::from_ref(self).cast(),
            decode: decode_window,
        }
    }

    /// The failure of the calls so far, if one failed.
    pub fn failure(&self) -> Option<Error> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, error) = failure.as_ref()?;
        let error = of_param(&self.param, error.clone());
        Some(self.quantizer.failed("decode", error).into())
    }

    fn remember(&self, at: [u64; 2], error: PluginError) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if failure.as_ref().is_none_or(|(before, _)| at < *before) {
            *failure = Some((at, error));
        }
    }
}

/// A rectangle of a weight `[N, M]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightWindow {
    /// Its rows.
    pub rows: Range<u64>,
    /// Its columns.
    pub cols: Range<u64>,
}

/// Decodes `window` of a weight `[N, M]` into `out`. Refuses numbers that are not finite; an
/// element that the quantizer does not write is NaN.
///
/// # Errors
/// The quantizer's own error. `PROTOCOL`, with row and column, for an element that is not finite.
pub fn decode(
    quantizer: &dyn Quantizer,
    segments: &[&[u8]],
    shape: [u64; 2],
    window: WeightWindow,
    out: &mut [f32],
) -> Result<()> {
    let WeightWindow { rows, cols } = window;
    out.fill(f32::NAN);
    quantizer.decode(segments, shape, rows.clone(), cols.clone(), out)?;
    let Some(at) = first_not_finite(out) else {
        return Ok(());
    };
    let width = cols.end - cols.start;
    let (row, col) = (
        rows.start + at as u64 / width,
        cols.start + at as u64 % width,
    );
    Err(PluginError::new(
        ErrorCode::PROTOCOL,
        format!(
            "element [{row}, {col}] is {} or was not written; expected finite numbers",
            out[at]
        ),
    ))
}

extern "C" fn decode_window(
    context: *const (),
    segments: *const *const u8,
    lens: *const usize,
    count: usize,
    range: *const u64,
    out: *mut f32,
) -> u32 {
    // SAFETY: `Callback::decoder` made the context; the kernel passes `count` segments with their
    // lengths, four bounds, and room for as many elements as they span.
    let (callback, segments, range, out) = unsafe {
        let callback = &*context.cast::<Callback>();
        let starts = std::slice::from_raw_parts(segments, count);
        let lens = std::slice::from_raw_parts(lens, count);
        let segments: Vec<&[u8]> = starts
            .iter()
            .zip(lens)
            .map(|(&start, &len)| std::slice::from_raw_parts(start, len))
            .collect();
        let range = std::slice::from_raw_parts(range, 4);
        let elements = (range[1] - range[0]) * (range[3] - range[2]);
        (
            callback,
            segments,
            range,
            std::slice::from_raw_parts_mut(out, elements as usize),
        )
    };
    let window = WeightWindow {
        rows: range[0]..range[1],
        cols: range[2]..range[3],
    };
    let quantizer = callback.quantizer.plugin.as_ref();
    let _about = call_site::about(&callback.param);
    match decode(quantizer, &segments, callback.shape, window, out) {
        Ok(()) => 0,
        Err(error) => {
            let code = error.code.0;
            callback.remember([range[0], range[2]], error);
            if code == 0 {
                ErrorCode::INVALID.0
            } else {
                code
            }
        }
    }
}
