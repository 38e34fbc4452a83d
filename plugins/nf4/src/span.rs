//! A weight -> spans of whole blocks, encoded on the host's threads; numbers that are not finite
//! are refused.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use espalier_interface::{ErrorCode, PluginError, Result, Services};
use espalier_kernels::simd::vectorized;

/// Weights in a span; every block size divides it, and so does a byte of two 4-bit codes.
const SPAN: usize = 1 << 16;

/// A span of whole blocks (the last block of the last span may be short) and where its codes go.
struct Span<'a> {
    weight: &'a [f32],
    codes: &'a mut [u8],
    absmax: &'a mut [u8],
}

/// How a component encodes one block.
pub trait EncodeBlock: Sync {
    /// Weights whose codes share a byte.
    const PER_BYTE: usize;

    /// Writes the codes of `weight` and returns its absmax.
    ///
    /// # Shapes
    /// `weight`: [b] f32, finite, b <= the block size, shorter only at the very end of the weight;
    /// `codes`: [ceil(b / PER_BYTE)] u8; `largest`: the largest magnitude in `weight`.
    fn encode(&self, weight: &[f32], largest: f32, codes: &mut [u8]) -> f32;

    /// Encodes blocks from the first on in a faster way than one by one, and returns how many:
    /// whole blocks of finite numbers, with the same bits.
    ///
    /// # Shapes
    /// As [`encode_blocks`].
    fn encode_whole(&self, weight: &[f32], codes: &mut [u8], absmax: &mut [u8]) -> usize {
        let _ = (weight, codes, absmax);
        0
    }
}

/// Encodes every block of the flat `weight` in parallel.
///
/// # Shapes
/// `weight`: [n] f32; `codes`: [ceil(n / PER_BYTE)] u8; `absmax`: [ceil(n / block_size)] f32,
/// as little-endian bytes.
///
/// # Errors
/// `NOT_FINITE`, naming the flat index of the first weight that is infinite or NaN; `CANCELLED`
/// when the user stopped the run.
pub fn encode_blocks<E: EncodeBlock>(
    encoder: &E,
    weight: &[f32],
    block_size: usize,
    codes: &mut [u8],
    absmax: &mut [u8],
    services: &dyn Services,
) -> Result<()> {
    assert!(SPAN.is_multiple_of(block_size) && block_size.is_multiple_of(E::PER_BYTE));
    assert_eq!(
        codes.len(),
        weight.len().div_ceil(E::PER_BYTE),
        "bytes of codes"
    );
    assert_eq!(
        absmax.len(),
        4 * weight.len().div_ceil(block_size),
        "bytes of absmax"
    );
    let spans: Vec<Mutex<Span>> = weight
        .chunks(SPAN)
        .zip(codes.chunks_mut(SPAN / E::PER_BYTE))
        .zip(absmax.chunks_mut(4 * (SPAN / block_size)))
        .map(|((weight, codes), absmax)| {
            Mutex::new(Span {
                weight,
                codes,
                absmax,
            })
        })
        .collect();
    let not_finite = AtomicUsize::new(usize::MAX);
    services.parallel_for(spans.len(), &|i| {
        if services.cancelled() {
            return;
        }
        let mut span = spans[i].lock().expect("each span is taken once");
        let encoded = vectorized(
            #[inline(always)]
            || encode_span(encoder, &mut span, block_size),
        );
        if let Err(index) = encoded {
            not_finite.fetch_min(i * SPAN + index, Ordering::Relaxed);
        }
    });
    match not_finite.into_inner() {
        usize::MAX if services.cancelled() => Err(PluginError::new(
            ErrorCode::CANCELLED,
            "encoding was cancelled",
        )),
        usize::MAX => Ok(()),
        index => Err(PluginError::new(
            ErrorCode::NOT_FINITE,
            format!(
                "weight {index} of {} is {}, expected a finite number; the checkpoint is damaged \
                 or was saved from a diverged run",
                weight.len(),
                weight[index]
            ),
        )),
    }
}

/// Encodes the blocks of one span, or gives the index in it of its first number that is not finite.
#[inline(always)]
fn encode_span<E: EncodeBlock>(
    encoder: &E,
    span: &mut Span,
    block_size: usize,
) -> std::result::Result<(), usize> {
    let done = encoder.encode_whole(span.weight, span.codes, span.absmax);
    let blocks = span.weight.chunks(block_size).enumerate();
    let codes = span.codes.chunks_mut(block_size / E::PER_BYTE);
    let blocks = blocks.zip(codes).zip(span.absmax.chunks_mut(4));
    for (((i, weight), codes), absmax) in blocks.skip(done) {
        let largest = largest_magnitude(weight);
        if !largest.is_finite() {
            let first = weight.iter().position(|w| !w.is_finite());
            return Err(i * block_size + first.expect("the largest magnitude is one of them"));
        }
        absmax.copy_from_slice(&encoder.encode(weight, largest, codes).to_le_bytes());
    }
    Ok(())
}

/// The largest magnitude; infinite or NaN if any number is.
#[inline(always)]
pub fn largest_magnitude(weight: &[f32]) -> f32 {
    // Without its sign, a float orders as its bits do: infinity above every number, NaN above that.
    let magnitudes = weight.iter().map(|w| (w.to_bits() & 0x7fff_ffff) as i32);
    f32::from_bits(magnitudes.fold(0, i32::max) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_magnitude_covers_every_place() {
        for n in [1, 15, 16, 17, 64, 100] {
            for i in 0..n {
                let mut weight = vec![0.5f32; n];
                weight[i] = -2.0;
                assert_eq!(largest_magnitude(&weight), 2.0, "place {i} of {n}");
                weight[i] = f32::NEG_INFINITY;
                assert!(largest_magnitude(&weight).is_infinite());
                weight[i] = -f32::NAN;
                assert!(largest_magnitude(&weight).is_nan());
            }
        }
        assert_eq!(largest_magnitude(&[]), 0.0);
    }
}
