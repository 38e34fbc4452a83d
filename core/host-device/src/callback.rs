//! A packed weight whose format only its quantizer can decode -> the function that decodes it.

use espalier_interface::{Decoder, ErrorCode, PluginError, Result};

use crate::Asked;

/// A quantizer's decode function, valid as long as the kernel.
pub struct Callback {
    /// The function.
    pub decoder: Decoder,
    quantizer: String,
}

impl Callback {
    /// The function of param `index`, packed by `quantizer`, among those of a request's params.
    ///
    /// # Errors
    /// `INVALID` where none was given.
    pub fn of(
        asked: &Asked<'_>,
        decoders: &[Option<Decoder>],
        index: usize,
        quantizer: &str,
    ) -> Result<Self> {
        let quantizer = quantizer.to_owned();
        match decoders.get(index).copied().flatten() {
            Some(decoder) => Ok(Callback { decoder, quantizer }),
            None => Err(asked.invalid(format!(
                "param {index} of quantizer `{quantizer}` needs a decoder, none was given"
            ))),
        }
    }

    /// Decodes a row into `out`, which has an element for each column.
    ///
    /// # Errors
    /// [`Callback::failed`].
    pub fn decode(&self, segments: &[&[u8]], row: u64, out: &mut [f32]) -> Result<()> {
        let starts: Vec<*const u8> = segments.iter().map(|segment| segment.as_ptr()).collect();
        let lens: Vec<usize> = segments.iter().map(|segment| segment.len()).collect();
        let range = [row, row + 1, 0, out.len() as u64];
        let code = (self.decoder.decode)(
            self.decoder.context,
            starts.as_ptr(),
            lens.as_ptr(),
            segments.len(),
            range.as_ptr(),
            out.as_mut_ptr(),
        );
        match code {
            0 => Ok(()),
            code => Err(self.failed(ErrorCode(code))),
        }
    }

    /// The error of a call that returned `code`.
    pub fn failed(&self, code: ErrorCode) -> PluginError {
        let message = format!("quantizer `{}` failed to decode", self.quantizer);
        PluginError::new(code, message)
    }
}
