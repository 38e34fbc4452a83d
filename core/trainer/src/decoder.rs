//! A quantizer's `decode` -> the function pointer that a backend's kernels call for formats no description covers.
#![allow(unsafe_code)]

use std::sync::Arc;

use espalier_interface::{Decoder, ErrorCode, Quantizer};

/// What the function pointer finds behind its context.
struct Context {
    quantizer: Arc<dyn Quantizer>,
    shape: [u64; 2],
}

/// The decoder of weights `[N, M]` packed by `quantizer`. Its context is never freed: kernels live as long as the process.
pub fn of(quantizer: &Arc<dyn Quantizer>, shape: [u64; 2]) -> Decoder {
    let context = Box::leak(Box::new(Context {
        quantizer: Arc::clone(quantizer),
        shape,
    }));
    Decoder {
        context: std::ptr::from_ref(context).cast(),
        decode,
    }
}

extern "C" fn decode(
    context: *const (),
    segments: *const *const u8,
    lens: *const usize,
    count: usize,
    range: *const u64,
    out: *mut f32,
) -> u32 {
    // SAFETY: `of` made the context; the kernel passes `count` segments with their lengths, four bounds, and room for as
    // many elements as they span.
    let (context, segments, range, out) = unsafe {
        let context = &*context.cast::<Context>();
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
            context,
            segments,
            range,
            std::slice::from_raw_parts_mut(out, elements as usize),
        )
    };
    let (rows, cols) = (range[0]..range[1], range[2]..range[3]);
    match context
        .quantizer
        .decode(&segments, context.shape, rows, cols, out)
    {
        Ok(()) => 0,
        Err(error) if error.code.0 != 0 => error.code.0,
        Err(_) => ErrorCode::INVALID.0,
    }
}
