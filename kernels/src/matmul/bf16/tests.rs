//! Instructions for bf16 compared with their model, and whole products with sums of the model.

use half::bf16;

use crate::element::Element;
use crate::matmul::bf16_model::{dot_pairs, round};
use crate::matmul::block::{multiply_into, space};
use crate::matmul::tests::{numbers, tiled_sum};
use crate::matmul::{DEPTH, Dense, Isa, Operand, Rows, Update};

/// The models and, where this CPU has them, the instructions.
fn kernels() -> Vec<Isa> {
    let mut all = vec![Isa::Bf16Model, Isa::AmxModel];
    let found = Isa::available();
    all.extend(found.iter().filter(|isa| isa.depth_of_step() > 1));
    all
}

/// Equal bits, or both NaN.
pub(crate) fn alike(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

/// Element `(i, j)`, from the elements of its row and column, rounded to bf16: a chain of pairs for
/// each [`DEPTH`] of them; with tiles, as [`tiled_sum`] says.
fn expected(
    isa: Isa,
    depth: usize,
    left: impl Fn(usize) -> u16,
    right: impl Fn(usize) -> u16,
) -> f32 {
    if isa.has_tiles() {
        return tiled_sum(depth, left, right);
    }
    let pair = |side: &dyn Fn(usize) -> u16, k: usize| {
        let odd = if k + 1 < depth { side(k + 1) } else { 0 };
        f32::from_bits(u32::from(side(k)) | u32::from(odd) << 16)
    };
    let partial = |from: usize| {
        let steps = (from..(from + 2 * DEPTH).min(depth)).step_by(2);
        steps.fold(0.0, |sum, k| {
            dot_pairs(pair(&left, k), pair(&right, k), sum)
        })
    };
    let sums = (0..depth).step_by(2 * DEPTH).map(partial);
    sums.reduce(|a, b| a + b).unwrap_or(0.0)
}

/// `len` numbers, among them subnormal ones, infinities and zeros.
fn odd_numbers(len: usize, seed: u64) -> Vec<f32> {
    let odd = [1e-40, -3e-39, 1e-20, -1e19, 0.0, -0.0, 3e38, f32::INFINITY];
    let mut all = numbers::<f32>(len, seed);
    for (i, x) in all.iter_mut().enumerate().filter(|(i, _)| i % 37 == 5) {
        *x = odd[(i / 37) % odd.len()];
    }
    all
}

/// All four products of operands stored along or across the depth, in `A` and `B`.
fn check<A, B>([rows, cols, depth]: [usize; 3], from: fn(usize, u64) -> Vec<f32>)
where
    A: Element<Acc = f32>,
    B: Element<Acc = f32>,
{
    let left: Vec<A> = from(rows * depth, 1).into_iter().map(A::store).collect();
    let right: Vec<B> = from(cols * depth, 2).into_iter().map(B::store).collect();
    // Three elements between rows, at an odd address.
    let spread = |width: usize| width + 3;
    fn strided<E: Element>(values: &[E], width: usize, stride: usize) -> Vec<E> {
        let mut all = vec![E::default(); 1];
        for row in values.chunks_exact(width) {
            all.extend(row);
            all.resize(all.len() + stride - width, E::store(convert_nan::<E>()));
        }
        all
    }
    let mut memory = vec![f32::NAN; space::<f32>()];
    for (left_along, right_along) in [(true, true), (true, false), (false, true), (false, false)] {
        let size = |along: bool, lanes: usize| {
            if along {
                (lanes, depth)
            } else {
                (depth, lanes)
            }
        };
        let ((a_rows, a_cols), (b_rows, b_cols)) =
            (size(left_along, rows), size(right_along, cols));
        let a = strided(&left, a_cols, spread(a_cols));
        let b = strided(&right, b_cols, spread(b_cols));
        let a = Dense::strided(&a[1..], a_rows, a_cols, spread(a_cols));
        let b = Dense::strided(&b[1..], b_rows, b_cols, spread(b_cols));
        let operand = |along: bool, of| {
            if along {
                Operand::over_cols(of)
            } else {
                Operand::over_rows(of)
            }
        };
        let (x, y): (&dyn Rows<f32>, &dyn Rows<f32>) = (&a, &b);
        for isa in kernels() {
            let mut out = vec![7.0f32; rows * (cols + 2)];
            let sides = (operand(left_along, x), operand(right_along, y));
            multiply_into(
                isa,
                sides,
                (&mut out, cols + 2),
                Update::Overwrite,
                &mut memory,
            );
            let at = |along: bool, lanes: usize, lane: usize, k: usize| {
                if along {
                    lane * depth + k
                } else {
                    k * lanes + lane
                }
            };
            for i in 0..rows {
                for j in 0..cols {
                    let expected = expected(
                        isa,
                        depth,
                        |k| round(left[at(left_along, rows, i, k)].load()),
                        |k| round(right[at(right_along, cols, j, k)].load()),
                    );
                    let found = out[i * (cols + 2) + j];
                    assert!(
                        alike(found, expected),
                        "{isa:?} ({i}, {j}) of {rows} x {cols} x {depth}, along {left_along} \
                         {right_along}: {found}, expected {expected}"
                    );
                }
                assert_eq!(out[i * (cols + 2) + cols..][..2], [7.0; 2]);
            }
        }
    }
}

/// The filling between rows, which must not be read as an element.
fn convert_nan<E: Element>() -> E::Acc {
    crate::element::convert_real(f64::NAN)
}

#[test]
fn products_are_sums_of_the_model() {
    for shape in [
        [1, 1, 1],
        [2, 16, 2],
        [17, 33, 7],
        [14, 32, 64],
        [15, 31, 513],
        [3, 48, 1030],
        [1, 65, 300],
    ] {
        check::<bf16, bf16>(shape, odd_numbers);
        check::<bf16, f32>(shape, odd_numbers);
        check::<f32, bf16>(shape, numbers::<f32>);
        check::<half::f16, f32>(shape, numbers::<f32>);
    }
    check::<bf16, f32>([130, 530, 9], numbers::<f32>);
    for shape in [[33, 17, 32], [32, 16, 96], [65, 40, 544]] {
        check::<bf16, bf16>(shape, odd_numbers);
        check::<bf16, f32>(shape, odd_numbers);
    }
    check::<bf16, bf16>([120, 20, 40], odd_numbers);
}

#[test]
fn a_row_does_not_depend_on_the_rows_around_it() {
    let [cols, depth] = [130, 1100];
    let x = numbers::<bf16>(40 * depth, 7);
    let w = numbers::<f32>(cols * depth, 8);
    let w: &dyn Rows<f32> = &Dense::new(&w, cols, depth);
    let mut memory = vec![0.0; space::<f32>()];
    let mut product = |isa: Isa, x: &[bf16]| {
        let rows = x.len() / depth;
        let x: &dyn Rows<f32> = &Dense::new(x, rows, depth);
        let mut out = vec![0.0f32; rows * cols];
        let sides = (Operand::over_cols(x), Operand::over_cols(w));
        multiply_into(isa, sides, (&mut out, cols), Update::Overwrite, &mut memory);
        out
    };
    for isa in kernels() {
        let all = product(isa, &x);
        for (first, count) in [(0, 1), (13, 1), (14, 2), (22, 17), (39, 1), (0, 16)] {
            let some = product(isa, &x[first * depth..(first + count) * depth]);
            assert_eq!(some, all[first * cols..(first + count) * cols], "{isa:?}");
        }
    }
}

/// Pseudo-random bits.
pub(crate) struct Bits(pub u64);

impl Bits {
    pub fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as u32
    }

    /// The bits of a bf16: any, of like exponents, or one that products of are subnormal.
    pub fn half(&mut self, kind: u32) -> u32 {
        const ODD: [u32; 8] = [0, 0x8000, 0x7F80, 0xFF80, 0x7FC1, 0x7F81, 1, 0x8001];
        let (bits, exponent) = (self.next() & 0x807F, self.next());
        match kind {
            0 => self.next() & 0xFFFF,
            1 => bits | (exponent % 6 + 124) << 7,
            2 => bits | (exponent % 64 + 32) << 7,
            3 => bits | (exponent % 12 + 185) << 7,
            _ => ODD[exponent as usize % 8],
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn pair(&mut self, kind: u32) -> f32 {
        f32::from_bits(self.half(kind) | self.half(kind) << 16)
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
#[allow(unsafe_code)] // The instructions themselves.
fn the_model_is_what_the_instructions_compute() {
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx512f,avx512bf16")]
    fn dot(sums: &[f32; 16], a: &[f32; 16], b: &[f32; 16]) -> [f32; 16] {
        // SAFETY: sixteen numbers each; all vectors are 512 bits that are all valid.
        unsafe {
            let load = |from: &[f32; 16]| std::mem::transmute(_mm512_loadu_ps(from.as_ptr()));
            let sums = _mm512_loadu_ps(sums.as_ptr());
            std::mem::transmute(_mm512_dpbf16_ps(sums, load(a), load(b)))
        }
    }

    #[target_feature(enable = "avx512f,avx512bf16")]
    fn rounded(x: &[f32; 16]) -> [u16; 16] {
        // SAFETY: sixteen numbers; 256 bits that are all valid.
        unsafe { std::mem::transmute(_mm512_cvtneps_pbh(_mm512_loadu_ps(x.as_ptr()))) }
    }

    if !crate::simd::has_avx512_bf16() {
        return;
    }
    let mut bits = Bits(0x1234_5678_9ABC_DEF1);
    for round_idx in 0..200_000 {
        let kind = round_idx % 5;
        let (a, b) = (
            [(); 16].map(|()| bits.pair(kind)),
            [(); 16].map(|()| bits.pair(kind)),
        );
        let sums = [(); 16].map(|()| match kind {
            1 => f32::from_bits(bits.next() & 0x807F_FFFF | (bits.next() % 8 + 122) << 23),
            2 => f32::from_bits(bits.next() & 0x80FF_FFFF),
            _ => f32::from_bits(bits.next()),
        });
        // SAFETY: the features were detected.
        let (found, halves) = unsafe { (dot(&sums, &a, &b), rounded(&sums)) };
        for lane in 0..16 {
            let expected = dot_pairs(a[lane], b[lane], sums[lane]);
            assert!(
                alike(found[lane], expected),
                "{:08x} + {:08x} . {:08x}: {:08x}, expected {:08x}",
                sums[lane].to_bits(),
                a[lane].to_bits(),
                b[lane].to_bits(),
                found[lane].to_bits(),
                expected.to_bits()
            );
            assert_eq!(
                halves[lane],
                round(sums[lane]),
                "{:08x}",
                sums[lane].to_bits()
            );
        }
    }
}

#[test]
fn rounding_is_that_of_stored_values_but_for_subnormal_ones() {
    for i in 0..200_000u32 {
        let x = f32::from_bits(i.wrapping_mul(2_654_435_761));
        let stored = <bf16 as Element>::store(x);
        let zero = u16::from(x.is_sign_negative()) << 15;
        let expected = if x.is_subnormal() {
            zero
        } else {
            stored.to_bits()
        };
        assert_eq!(round(x), expected, "{x:e}");
    }
}
