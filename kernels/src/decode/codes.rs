//! A packed run of codes -> one byte per code -> the codebook's values.
#![allow(unsafe_code)] // Vector intrinsics.

use espalier_interface::format::{BitOrder, Codes};

use crate::matmul::Isa;
use crate::simd::vectorized;

/// Writes the codes with the flat indices `flat ..` to `out`, one a byte.
///
/// # Panics
/// Where `bytes` ends before the last code.
#[inline(always)]
pub(super) fn unpack(bytes: &[u8], layout: &Codes, flat: usize, out: &mut [u8]) {
    each_row(bytes, layout, flat, out, unpack_row);
}

/// Calls `body(bytes, layout, flat, out)` for the codes with the flat indices `flat ..`: row by row
/// where they have rows, each with the bytes from its beginning on and an index in it.
#[inline(always)]
pub(super) fn each_row<T>(
    bytes: &[u8],
    layout: &Codes,
    flat: usize,
    out: &mut [T],
    body: impl Fn(&[u8], &Codes, usize, &mut [T]),
) {
    let mut done = 0;
    while done < out.len() {
        let run = layout.run((flat + done) as u64);
        let len = run.left.min((out.len() - done) as u64) as usize;
        let out = &mut out[done..done + len];
        body(
            &bytes[run.byte as usize..],
            &run.codes,
            run.first as usize,
            out,
        );
        done += len;
    }
}

/// [`unpack`] of codes without rows.
#[inline(always)]
fn unpack_row(bytes: &[u8], layout: &Codes, flat: usize, out: &mut [u8]) {
    match (layout.bits, layout.order) {
        (_, BitOrder::Split { .. }) => {
            split_runs(bytes, layout, flat, out, |out, code| *out = code as u8)
        }
        (4, BitOrder::HighFirst) => unpack_bits::<4, 2, true>(bytes, flat, out),
        (4, BitOrder::LowFirst | BitOrder::Stream) => unpack_bits::<4, 2, false>(bytes, flat, out),
        (2, BitOrder::HighFirst) => unpack_bits::<2, 4, true>(bytes, flat, out),
        (2, BitOrder::LowFirst | BitOrder::Stream) => unpack_bits::<2, 4, false>(bytes, flat, out),
        (1, BitOrder::HighFirst) => unpack_bits::<1, 8, true>(bytes, flat, out),
        (1, BitOrder::LowFirst | BitOrder::Stream) => unpack_bits::<1, 8, false>(bytes, flat, out),
        (3, BitOrder::Stream) => unpack_stream::<3>(bytes, layout, flat, out),
        (5, BitOrder::Stream) => unpack_stream::<5>(bytes, layout, flat, out),
        (6, BitOrder::Stream) => unpack_stream::<6>(bytes, layout, flat, out),
        (7, BitOrder::Stream) => unpack_stream::<7>(bytes, layout, flat, out),
        _ => {
            let (mask, bytes) = (layout.mask(), &bytes[flat..flat + out.len()]);
            for (out, &byte) in out.iter_mut().zip(bytes) {
                *out = byte & mask;
            }
        }
    }
}

/// Calls `body(out[i], code)` for codes that are side by side in one slot of neighbouring words,
/// from index `flat` on.
///
/// # Panics
/// Where `bytes` ends before the last code, or the codes are not split.
#[inline(always)]
pub(super) fn split_runs<T>(
    bytes: &[u8],
    layout: &Codes,
    flat: usize,
    out: &mut [T],
    body: impl Fn(&mut T, u32),
) {
    let BitOrder::Split { words } = layout.order else {
        panic!("codes in order {:?} are not split", layout.order);
    };
    let mask = u32::from(layout.mask());
    let mut done = 0;
    while done < out.len() {
        let (word, shift) = layout.place((flat + done) as u64);
        let first = word as usize;
        let len = (words as usize - first).min(out.len() - done);
        let run = &mut out[done..done + len];
        if layout.bits == 3 {
            let bytes = bytes[4 * first..4 * (first + len)].as_chunks::<4>().0;
            for (out, &word) in run.iter_mut().zip(bytes) {
                body(out, (u32::from_le_bytes(word) >> shift) & mask);
            }
        } else {
            for (out, &byte) in run.iter_mut().zip(&bytes[first..first + len]) {
                body(out, (u32::from(byte) >> shift) & mask);
            }
        }
        done += len;
    }
}

/// [`unpack`] for `PER = 8 / BITS` codes per byte.
#[inline(always)]
fn unpack_bits<const BITS: usize, const PER: usize, const HIGH_FIRST: bool>(
    bytes: &[u8],
    flat: usize,
    out: &mut [u8],
) {
    let code = |byte: u8, slot: usize| {
        let shift = if HIGH_FIRST {
            8 - BITS * (slot + 1)
        } else {
            BITS * slot
        };
        (byte >> shift) & ((1u16 << BITS) - 1) as u8
    };
    let head = (PER - flat % PER) % PER;
    let (first, rest) = out.split_at_mut(head.min(out.len()));
    for (i, out) in first.iter_mut().enumerate() {
        *out = code(bytes[flat / PER], flat % PER + i);
    }
    let bytes = &bytes[flat.div_ceil(PER)..];
    let whole = rest.len() / PER;
    let (body, tail) = rest.split_at_mut(whole * PER);
    for (out, &byte) in body.chunks_exact_mut(PER).zip(&bytes[..whole]) {
        for (slot, out) in out.iter_mut().enumerate() {
            *out = code(byte, slot);
        }
    }
    for (slot, out) in tail.iter_mut().enumerate() {
        *out = code(bytes[whole], slot);
    }
}

/// [`unpack`] for a stream: eight codes in `BITS` bytes.
#[inline(always)]
fn unpack_stream<const BITS: usize>(bytes: &[u8], layout: &Codes, flat: usize, out: &mut [u8]) {
    let head = ((8 - flat % 8) % 8).min(out.len());
    let (first, rest) = out.split_at_mut(head);
    let (whole, tail) = rest.as_chunks_mut::<8>();
    let from = (flat + head) / 8 * BITS;
    let mask = ((1u16 << BITS) - 1) as u8;
    let put = |out: &mut [u8; 8], word: u64| {
        for (slot, out) in out.iter_mut().enumerate() {
            *out = (word >> (BITS * slot)) as u8 & mask;
        }
    };
    let groups = bytes[from..from + whole.len() * BITS].as_chunks::<BITS>().0;
    // Words of eight bytes, as far as the segment reaches.
    let words = (bytes.len() - from).saturating_sub(8 - BITS) / BITS;
    let (words, last) = whole.split_at_mut(words.min(whole.len()));
    for (at, out) in (from..).step_by(BITS).zip(words.iter_mut()) {
        let word = bytes[at..].first_chunk().expect("a word of the segment");
        put(out, u64::from_le_bytes(*word));
    }
    for (out, bytes) in last.iter_mut().zip(&groups[words.len()..]) {
        let mut word = [0; 8];
        word[..BITS].copy_from_slice(bytes);
        put(out, u64::from_le_bytes(word));
    }
    let after = flat + head + 8 * whole.len();
    for (run, flat) in [(first, flat), (tail, after)] {
        for (out, flat) in run.iter_mut().zip(flat..) {
            *out = layout.read(bytes, flat as u64);
        }
    }
}

/// Values of the codes with the flat indices `flat ..`, at most 4 bits each.
///
/// # Panics
/// Where `bytes` ends before the last code.
pub(super) fn look_up_packed(
    isa: Isa,
    bytes: &[u8],
    layout: &Codes,
    flat: usize,
    table: &[f32; 16],
    out: &mut [f32],
) {
    if let BitOrder::Rows(_) = layout.order {
        return each_row(bytes, layout, flat, out, |bytes, layout, flat, out| {
            look_up_row(isa, bytes, layout, flat, table, out);
        });
    }
    look_up_row(isa, bytes, layout, flat, table, out);
}

/// [`look_up_packed`] of codes without rows.
fn look_up_row(
    isa: Isa,
    bytes: &[u8],
    layout: &Codes,
    flat: usize,
    table: &[f32; 16],
    out: &mut [f32],
) {
    #[cfg(target_arch = "x86_64")]
    if isa.vectors() == Isa::Avx512
        && layout.bits == 4
        && matches!(layout.order, BitOrder::HighFirst | BitOrder::LowFirst)
        && flat.is_multiple_of(2)
    {
        let bytes = &bytes[flat / 2..];
        let whole = out.len() / 32 * 32;
        assert!(bytes.len() >= whole / 2, "codes end before their last");
        // SAFETY: `isa` was detected; `whole / 2` bytes hold `whole` codes.
        unsafe { nibbles(table, bytes, layout.order, None, &mut out[..whole]) };
        if whole < out.len() {
            let rest = &mut out[whole..];
            look_up_unpacked(isa, &bytes[whole / 2..], layout, 0, table, rest);
        }
        return;
    }
    look_up_unpacked(isa, bytes, layout, flat, table, out);
}

/// [`look_up_row`] through one byte per code.
fn look_up_unpacked(
    isa: Isa,
    bytes: &[u8],
    layout: &Codes,
    flat: usize,
    table: &[f32; 16],
    out: &mut [f32],
) {
    let mut codes = [0u8; 256];
    for (start, out) in (flat..).step_by(256).zip(out.chunks_mut(256)) {
        let codes = &mut codes[..out.len()];
        vectorized(
            #[inline(always)]
            || unpack(bytes, layout, start, codes),
        );
        look_up_16(isa, table, codes, out);
    }
}

/// Values of codes of 4 bits from `flat` on, each times the scale of its block of `size` elements,
/// where one pass can; returns how many. Both passes have the bits of a product.
///
/// # Panics
/// Where `bytes` or `scales` end before the last.
pub(super) fn look_up_scaled(
    isa: Isa,
    bytes: &[u8],
    (layout, flat): (&Codes, usize),
    table: &[f32; 16],
    (scales, size): (&[f32], usize),
    out: &mut [f32],
) -> usize {
    #[cfg(target_arch = "x86_64")]
    if isa.vectors() == Isa::Avx512
        && layout.bits == 4
        && matches!(layout.order, BitOrder::HighFirst | BitOrder::LowFirst)
        && matches!(size, 16 | 32)
        && flat.is_multiple_of(size)
    {
        let bytes = &bytes[flat / 2..];
        let whole = out.len() / 32 * 32;
        assert!(
            bytes.len() >= whole / 2 && scales.len() >= whole / size,
            "codes or scales end before their last"
        );
        let scaled = (scales.as_ptr(), size / 16);
        // SAFETY: `isa` was detected; `whole / 2` bytes hold `whole` codes, and their blocks have
        // scales.
        unsafe { nibbles(table, bytes, layout.order, Some(scaled), &mut out[..whole]) };
        return whole;
    }
    let _ = (isa, bytes, layout, flat, table, scales, size, out);
    0
}

/// Codes of 4 bits, 32 at a time; with scales each 16 values times that of their block, which has
/// so many sixteens, one or two.
///
/// # Safety
/// The CPU has AVX-512 F; `out` holds a multiple of 32 elements, `bytes` their codes, and the
/// scales one for each block of them.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn nibbles(
    table: &[f32; 16],
    bytes: &[u8],
    order: BitOrder,
    scales: Option<(*const f32, usize)>,
    out: &mut [f32],
) {
    use std::arch::x86_64::*;
    // SAFETY: 16 values of the table; 16 bytes and 32 values at each step, in blocks with scales.
    unsafe {
        let table = _mm512_loadu_ps(table.as_ptr());
        let mask = _mm_set1_epi8(15);
        for i in (0..out.len()).step_by(32) {
            let pairs = _mm_loadu_si128(bytes.as_ptr().add(i / 2).cast());
            let high = _mm_and_si128(_mm_srli_epi16::<4>(pairs), mask);
            let low = _mm_and_si128(pairs, mask);
            let (first, second) = match order {
                BitOrder::LowFirst => (low, high),
                _ => (high, low),
            };
            let codes = [
                _mm_unpacklo_epi8(first, second),
                _mm_unpackhi_epi8(first, second),
            ];
            for (half, codes) in codes.into_iter().enumerate() {
                let mut values = _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(codes), table);
                if let Some((scales, sixteens)) = scales {
                    let scale = *scales.add((i / 16 + half) / sixteens);
                    values = _mm512_mul_ps(values, _mm512_set1_ps(scale));
                }
                _mm512_storeu_ps(out.as_mut_ptr().add(i + 16 * half), values);
            }
        }
    }
}

/// `out[i] = table[codes[i]]` for codes under 16.
#[inline]
pub(super) fn look_up_16(isa: Isa, table: &[f32; 16], codes: &[u8], out: &mut [f32]) {
    assert_eq!(codes.len(), out.len(), "codes and values differ in number");
    let done = match isa.vectors() {
        // SAFETY: `isa` was detected on this CPU.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { avx512(table, codes, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { avx2(table, codes, out) },
        _ => 0,
    };
    for (out, &code) in out[done..].iter_mut().zip(&codes[done..]) {
        *out = table[usize::from(code & 15)];
    }
}

/// Sixteen codes at a time; returns the number of decoded codes.
///
/// # Safety
/// The CPU has AVX-512 F; `out` is as long as `codes`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn avx512(table: &[f32; 16], codes: &[u8], out: &mut [f32]) -> usize {
    use std::arch::x86_64::*;
    let whole = codes.len() / 16 * 16;
    // SAFETY: 16 values of the table; 16 codes and values at each step.
    unsafe {
        let table = _mm512_loadu_ps(table.as_ptr());
        for i in (0..whole).step_by(16) {
            let codes = _mm_loadu_si128(codes.as_ptr().add(i).cast());
            let values = _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(codes), table);
            _mm512_storeu_ps(out.as_mut_ptr().add(i), values);
        }
    }
    whole
}

/// Eight codes at a time; returns the number of decoded codes.
///
/// # Safety
/// The CPU has AVX2; `out` is as long as `codes`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn avx2(table: &[f32; 16], codes: &[u8], out: &mut [f32]) -> usize {
    use std::arch::x86_64::*;
    let whole = codes.len() / 8 * 8;
    // SAFETY: 16 values of the table; eight codes and values at each step.
    unsafe {
        let low = _mm256_loadu_ps(table.as_ptr());
        let high = _mm256_loadu_ps(table.as_ptr().add(8));
        for i in (0..whole).step_by(8) {
            let codes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(codes.as_ptr().add(i).cast()));
            // Permutations read the low three bits; bit 3, moved to the sign, chooses the half.
            let half = _mm256_castsi256_ps(_mm256_slli_epi32::<28>(codes));
            let low = _mm256_permutevar8x32_ps(low, codes);
            let high = _mm256_permutevar8x32_ps(high, codes);
            _mm256_storeu_ps(out.as_mut_ptr().add(i), _mm256_blendv_ps(low, high, half));
        }
    }
    whole
}

#[cfg(test)]
mod tests;
