//! What `vdpbf16ps`, `tdpbf16ps` and `vcvtneps2bf16` compute, to the bit, in plain Rust.
//!
//! Found on Intel's Sapphire Rapids and, but for tiles, on AMD's Zen 4, which agree on every lane
//! tried. Subnormal inputs count as zero and subnormal results become zero, independent of the
//! control register; rounding is to nearest, ties to even. The bits of a NaN beside being one are
//! not modelled.

/// `x`, or the zero of its sign where it is subnormal.
#[inline(always)]
fn flush(x: f32) -> f32 {
    if x.is_subnormal() {
        0f32.copysign(x)
    } else {
        x
    }
}

/// The value of the bf16 with these bits.
#[inline(always)]
fn widen(bits: u16) -> f32 {
    flush(f32::from_bits(u32::from(bits) << 16))
}

#[inline(always)]
fn multiply_add(a: f32, b: f32, c: f32) -> f32 {
    flush(a.mul_add(b, flush(c)))
}

/// One lane of `vdpbf16ps`: the product of the odd elements first, then that of the even ones, each
/// fused into the sum.
///
/// `a` and `b` are pairs of bf16 as the bits of an f32, the even element in the low half.
#[inline(always)]
pub fn dot_pairs(a: f32, b: f32, sum: f32) -> f32 {
    let [a, b] = [a, b].map(|pair| [pair.to_bits() as u16, (pair.to_bits() >> 16) as u16]);
    let odd = multiply_add(widen(a[1]), widen(b[1]), sum);
    multiply_add(widen(a[0]), widen(b[0]), odd)
}

/// A row of `tdpbf16ps`: 16 sums, to which products of a row's pairs and of those of 16 columns
/// are added.
///
/// Products of the even elements are a chain of fused multiply-adds from 0, those of the odd ones
/// another. The sum of both is added to the earlier sum. All are the bits of f32 or of pairs.
#[inline(always)]
pub fn dot_tile_row(sums: &mut [u32; 16], a: &[u32], b: &[[u32; 16]; 16]) {
    let (mut even, mut odd) = ([0f32; 16], [0f32; 16]);
    for (&a, b) in a.iter().zip(b) {
        for lane in 0..16 {
            even[lane] = multiply_add(widen(a as u16), widen(b[lane] as u16), even[lane]);
            let (a, b) = ((a >> 16) as u16, (b[lane] >> 16) as u16);
            odd[lane] = multiply_add(widen(a), widen(b), odd[lane]);
        }
    }
    for lane in 0..16 {
        let products = flush(even[lane] + odd[lane]);
        let sum = flush(flush(f32::from_bits(sums[lane])) + products);
        sums[lane] = sum.to_bits();
    }
}

/// `vcvtneps2bf16`: the bits of the nearest bf16, ties to even.
#[inline(always)]
pub fn round(x: f32) -> u16 {
    let bits = x.to_bits();
    if x.is_nan() {
        (bits >> 16) as u16 | 0x40
    } else if x.is_subnormal() {
        (bits >> 16) as u16 & 0x8000
    } else {
        (bits.wrapping_add(0x7FFF + ((bits >> 16) & 1)) >> 16) as u16
    }
}
