//! A quantizer's decode function -> a decoder for products.
#![allow(unsafe_code)] // Calls a plugin's function pointer.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use espalier_interface::{Decoder, ErrorCode};

use super::TileDecoder;

/// Most segments of a packed weight.
const SEGMENTS: usize = 16;

/// A packed weight whose format only its quantizer can decode.
pub struct CallbackDecoder<'a> {
    decoder: Decoder,
    segments: &'a [&'a [u8]],
    size: (usize, usize),
    failure: AtomicU32,
}

impl<'a> CallbackDecoder<'a> {
    /// A weight of `size` rows and columns, in `segments`.
    ///
    /// # Panics
    /// Where there are more than 16 segments.
    ///
    /// # Safety
    /// `decoder` is alive as long as this and decodes these segments.
    pub unsafe fn new(decoder: Decoder, segments: &'a [&'a [u8]], size: (usize, usize)) -> Self {
        assert!(
            segments.len() <= SEGMENTS,
            "a weight has over {SEGMENTS} segments"
        );
        let failure = AtomicU32::new(0);
        CallbackDecoder {
            decoder,
            segments,
            size,
            failure,
        }
    }

    /// The code of the last failed call; its values were taken as 0.
    pub fn failure(&self) -> Option<ErrorCode> {
        match self.failure.load(Ordering::Relaxed) {
            0 => None,
            code => Some(ErrorCode(code)),
        }
    }
}

impl TileDecoder for CallbackDecoder<'_> {
    fn size(&self) -> (usize, usize) {
        self.size
    }

    fn decode(&self, rows: Range<usize>, cols: Range<usize>, out: &mut [f32]) {
        assert!(
            out.len() >= rows.len() * cols.len(),
            "a window is too small"
        );
        let mut starts = [std::ptr::null(); SEGMENTS];
        let mut lens = [0; SEGMENTS];
        for (i, segment) in self.segments.iter().enumerate() {
            (starts[i], lens[i]) = (segment.as_ptr(), segment.len());
        }
        let range = [rows.start, rows.end, cols.start, cols.end].map(|x| x as u64);
        let code = (self.decoder.decode)(
            self.decoder.context,
            starts.as_ptr(),
            lens.as_ptr(),
            self.segments.len(),
            range.as_ptr(),
            out.as_mut_ptr(),
        );
        if code != 0 {
            self.failure.store(code, Ordering::Relaxed);
            out.fill(0.0);
        }
    }
}
