//! What `vdpbf16ps` and `vcvtneps2bf16` compute, to the bit, in plain Rust.
//!
//! Found on Intel's Sapphire Rapids and on AMD's Zen 4, which agree on every lane tried. Subnormal
//! inputs count as zero and subnormal results become zero, independent of the control register;
//! rounding is to nearest, ties to even. The bits of a NaN beside being one are not modelled.

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
