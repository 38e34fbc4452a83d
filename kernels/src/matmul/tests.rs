//! Products compared with sums in f64, and between tiles, threads, vectors and addresses.

mod cut;

use espalier_interface::{DType, Serial};
use half::{bf16, f16};

use super::threads::Threads;
use super::*;
use crate::added::Added;
use crate::element::convert_real;

/// Pseudo-random numbers in (-1, 1).
pub(crate) fn numbers<E: Element>(len: usize, seed: u64) -> Vec<E> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            E::store(convert_real(
                (state >> 33) as f64 / (1u64 << 30) as f64 - 1.0,
            ))
        })
        .collect()
}

/// A sum after `tdpbf16ps`, from at most 32 elements of both sides: the products of even elements
/// and those of odd ones are added up from 0 each, then to each other, then to the sum.
pub(super) fn add_tile(sum: f32, some: impl Iterator<Item = [u16; 2]>) -> f32 {
    let normal = |x: f32| {
        if x.is_subnormal() {
            0f32.copysign(x)
        } else {
            x
        }
    };
    let value = |bits: u16| normal(f32::from_bits(u32::from(bits) << 16));
    let mut elements = [[0; 2]; 32];
    elements.iter_mut().zip(some).for_each(|(to, of)| *to = of);
    let chain = |first: usize| {
        let mut products = 0f32;
        for [a, b] in elements.iter().skip(first).step_by(2) {
            products = normal(value(*a).mul_add(value(*b), products));
        }
        products
    };
    normal(normal(sum) + normal(chain(0) + chain(1)))
}

/// An element of a product by tiles, from the bits of its row and column: one sum, to which 32
/// products are added at a time.
pub(crate) fn tiled_sum(
    depth: usize,
    left: impl Fn(usize) -> u16,
    right: impl Fn(usize) -> u16,
) -> f32 {
    (0..depth).step_by(32).fold(0.0, |sum, k| {
        let elements = (k..depth).map(|k| [left(k), right(k)]);
        add_tile(sum, elements.take(32))
    })
}

/// The bits of `x`, rounded to bf16 as instructions do.
pub(crate) fn rounded(x: f32) -> u16 {
    bf16_model::round(x)
}

/// The instruction sets of this CPU and, for outputs of bf16, tiles in plain Rust.
pub(crate) fn sets_for(dtype: DType) -> Vec<Isa> {
    let mut sets = Isa::available().to_vec();
    if dtype == DType::BF16 {
        sets.push(Isa::AmxModel);
    }
    sets
}

/// `left [m, k] right [k, n]` from the given storage of each side.
fn product<A: Element, B: Element, E: Element>(
    (isa, services): (Isa, &dyn Services),
    (a, a_summed): (&[A], Summed),
    (b, b_summed): (&[B], Summed),
    [m, n, k]: [usize; 3],
    (out, update): (&mut [E], Update),
    bias: Option<&[E::Acc]>,
) where
    E::Acc: Scalar,
{
    let combine = match update {
        Update::Overwrite => Combine::PRODUCT,
        Update::Accumulate if E::DTYPE == E::Acc::DTYPE => Combine::Accumulate,
        Update::Accumulate => Combine::Sum(Sum {
            added: Added::Output,
            ..Sum::PRODUCT
        }),
    };
    combined(
        (isa, services),
        (a, a_summed),
        (b, b_summed),
        [m, n, k],
        (out, combine),
        bias,
    );
}

/// [`product`], for an output that comes of it in any way.
fn combined<A: Element, B: Element, E: Element>(
    (isa, services): (Isa, &dyn Services),
    (a, a_summed): (&[A], Summed),
    (b, b_summed): (&[B], Summed),
    [m, n, k]: [usize; 3],
    (out, combine): (&mut [E], Combine<'_, E>),
    bias: Option<&[E::Acc]>,
) where
    E::Acc: Scalar,
{
    let left = match a_summed {
        Summed::Cols => Dense::new(a, m, k),
        Summed::Rows => Dense::new(a, k, m),
    };
    let right = match b_summed {
        Summed::Cols => Dense::new(b, n, k),
        Summed::Rows => Dense::new(b, k, n),
    };
    let most = [m, n, k];
    let bytes = sum_workspace_bytes::<E>(isa, services.threads(), most);
    let mut workspace = vec![0xFF; bytes];
    let bias = bias.map(|bias| Dense::new(bias, 1, n));
    matmul(
        isa,
        services,
        Operand {
            source: &left,
            summed: a_summed,
        },
        Operand {
            source: &right,
            summed: b_summed,
        },
        Output {
            values: out,
            stride: n,
            combine,
            bias: bias.as_ref().map(|bias| bias as &dyn Rows<E::Acc>),
        },
        &mut workspace,
    );
}

/// The same in f64, one element at a time.
fn reference<A: Element, B: Element>(
    (a, a_summed): (&[A], Summed),
    (b, b_summed): (&[B], Summed),
    [m, n, k]: [usize; 3],
) -> Vec<f64> {
    let mut out = vec![0.0; m * n];
    for i in 0..m {
        for j in 0..n {
            for p in 0..k {
                let x = a[if a_summed == Summed::Cols {
                    i * k + p
                } else {
                    p * m + i
                }];
                let y = b[if b_summed == Summed::Cols {
                    j * k + p
                } else {
                    p * n + j
                }];
                out[i * n + j] += x.load().to_f64() * y.load().to_f64();
            }
        }
    }
    out
}

use crate::element::Real;

fn check<A: Element, B: Element, E: Element>(shape: [usize; 3], tolerance: f64)
where
    E::Acc: Scalar,
{
    let [m, n, k] = shape;
    let (a, b) = (numbers::<A>(m * k, 1), numbers::<B>(n * k, 2));
    let bias: Vec<E::Acc> = numbers(n, 3);
    let before: Vec<E> = numbers(m * n, 4);
    for a_summed in [Summed::Cols, Summed::Rows] {
        for b_summed in [Summed::Cols, Summed::Rows] {
            let (a, b) = ((&a[..], a_summed), (&b[..], b_summed));
            let expected = reference(a, b, shape);
            for isa in sets_for(E::DTYPE) {
                let on: (Isa, &dyn Services) = (isa, &Serial);
                let mut out = vec![E::store(E::Acc::from_f64(f64::NAN)); m * n];
                product(on, a, b, shape, (&mut out, Update::Overwrite), None);
                let mut added = before.clone();
                product(
                    on,
                    a,
                    b,
                    shape,
                    (&mut added, Update::Accumulate),
                    Some(&bias),
                );
                for i in 0..m * n {
                    let limit = tolerance * (1.0 + (k as f64).sqrt());
                    let found = out[i].load().to_f64();
                    assert!(
                        (found - expected[i]).abs() <= limit,
                        "{isa:?} {shape:?} at {i}: {found}"
                    );
                    let expected = expected[i] + bias[i % n].to_f64() + before[i].load().to_f64();
                    let found = added[i].load().to_f64();
                    assert!(
                        (found - expected).abs() <= limit,
                        "{isa:?} {shape:?} at {i}: {found}"
                    );
                }
            }
        }
    }
}

#[test]
fn equals_sums_in_f64() {
    for shape in [
        [1, 1, 1],
        [1, 70, 33],
        [70, 1, 300],
        [3, 17, 5],
        [14, 32, 256],
        [15, 33, 257],
    ] {
        check::<f32, f32, f32>(shape, 1e-6);
        check::<f64, f64, f64>(shape, 1e-14);
        check::<f64, bf16, f64>(shape, 1e-14);
        check::<bf16, f16, bf16>(shape, 1e-2);
        check::<f16, f32, f32>(shape, 1e-6);
    }
    check::<f32, f32, f32>([230, 600, 20], 1e-6);
    check::<f32, f32, f32>([90, 300, 270], 1e-6);
    check::<bf16, bf16, bf16>([90, 300, 270], 1e-2);
    check::<bf16, bf16, bf16>([600, 530, 9], 1e-2);
    check::<f32, f32, f32>([5, 6, 0], 1e-6);
    check::<bf16, bf16, bf16>([5, 6, 0], 1e-2);
    check::<f32, f32, f32>([0, 6, 3], 1e-6);
    check::<f32, f32, f32>([6, 0, 3], 1e-6);
}

/// The bits of one product on some threads, with operands and output at odd addresses.
fn bits<E: Element>(isa: Isa, services: &dyn Services, shape: [usize; 3], offset: usize) -> Vec<E>
where
    E::Acc: Scalar,
{
    let [m, n, k] = shape;
    let mut a = vec![E::default(); offset];
    let mut b = vec![E::default(); offset];
    a.extend(numbers::<E>(m * k, 5));
    b.extend(numbers::<E>(n * k, 6));
    let mut out = vec![E::default(); m * n + offset];
    let to = (&mut out[offset..], Update::Overwrite);
    let (a, b) = ((&a[offset..], Summed::Cols), (&b[offset..], Summed::Cols));
    product((isa, services), a, b, shape, to, None);
    out.split_off(offset)
}

/// The instruction sets of this CPU whose products of `dtype` have the same bits: fused kernels of
/// every width, and instructions for bf16 with their models.
fn alike(dtype: DType) -> Vec<Vec<Isa>> {
    let there = |isa: &Isa| {
        let is_model = matches!(isa, Isa::Bf16Model | Isa::AmxModel);
        is_model || Isa::available().contains(isa)
    };
    let mut sets = vec![vec![Isa::Avx512, Isa::Avx2]];
    if dtype == DType::BF16 {
        sets.push(vec![Isa::Avx512Bf16, Isa::Bf16Model]);
        sets.push(vec![Isa::AmxBf16, Isa::AmxModel]);
    }
    sets.iter_mut().for_each(|sets| sets.retain(there));
    sets.retain(|sets| !sets.is_empty());
    sets
}

#[test]
fn bits_do_not_depend_on_threads_or_addresses_or_vectors() {
    fn check<E: Element>()
    where
        E::Acc: Scalar,
    {
        for shape in [[100, 700, 300], [700, 16, 600], [1, 520, 700]] {
            for sets in alike(E::DTYPE) {
                let expected = bits::<E>(sets[0], &Serial, shape, 0);
                for threads in [1, 2, 3, 7] {
                    let found = bits::<E>(sets[0], &Threads(threads), shape, threads);
                    assert!(found == expected, "{shape:?} on {threads} threads");
                }
                for &isa in &sets[1..] {
                    let found = bits::<E>(isa, &Serial, shape, 0);
                    assert!(found == expected, "{shape:?} with {isa:?}");
                }
            }
        }
    }
    check::<f32>();
    check::<f64>();
    check::<bf16>();
}

#[test]
fn a_row_does_not_depend_on_the_rows_around_it() {
    let [n, k] = [130, 520];
    let (x, w) = (numbers::<f32>(40 * k, 7), numbers::<f32>(n * k, 8));
    let mut all = vec![0.0f32; 40 * n];
    let on: (Isa, &dyn Services) = (Isa::detect(), &Serial);
    let w = (&w[..], Summed::Cols);
    product(
        on,
        (&x, Summed::Cols),
        w,
        [40, n, k],
        (&mut all, Update::Overwrite),
        None,
    );
    for row in [0, 13, 14, 39] {
        let mut one = vec![0.0f32; n];
        let x = (&x[row * k..(row + 1) * k], Summed::Cols);
        product(on, x, w, [1, n, k], (&mut one, Update::Overwrite), None);
        assert_eq!(one, all[row * n..(row + 1) * n]);
    }
}

#[test]
fn strided_outputs_keep_the_elements_between_rows() {
    let (x, w) = (numbers::<f32>(20 * 8, 1), numbers::<f32>(40 * 8, 2));
    let (left, right) = (Dense::new(&x, 20, 8), Dense::new(&w, 40, 8));
    let mut out = vec![7.0f32; 20 * 50];
    let mut workspace = vec![0; workspace_bytes::<f32>(Isa::detect(), 2, [20, 40, 8])];
    matmul(
        Isa::detect(),
        &Threads(2),
        Operand::over_cols(&left),
        Operand::over_cols(&right),
        Output {
            values: &mut out,
            stride: 50,
            combine: Combine::PRODUCT,
            bias: None,
        },
        &mut workspace,
    );
    for row in out.chunks(50) {
        assert!(row[..40].iter().all(|&x| x != 7.0) && row[40..].iter().all(|&x| x == 7.0));
    }
}
