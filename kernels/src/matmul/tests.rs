//! Products compared with sums in f64, and between tiles, threads, vectors and addresses.

use espalier_interface::Serial;
use half::{bf16, f16};

use super::threads::Threads;
use super::*;
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
            alpha: 1.0,
            added: Added::Output,
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
            for &isa in Isa::available() {
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

#[test]
fn bits_do_not_depend_on_threads_or_addresses_or_vectors() {
    fn check<E: Element>()
    where
        E::Acc: Scalar,
    {
        for shape in [[100, 700, 300], [700, 16, 600], [1, 520, 700]] {
            let expected = bits::<E>(Isa::detect(), &Serial, shape, 0);
            for threads in [1, 2, 3, 7] {
                let found = bits::<E>(Isa::detect(), &Threads(threads), shape, threads);
                assert!(found == expected, "{shape:?} on {threads} threads");
            }
            // Fused kernels of every width agree, and instructions for bf16 with their model.
            let widest = Isa::detect();
            let model = (widest.serving(E::DTYPE) == Isa::Avx512Bf16).then_some(Isa::Bf16Model);
            let vectors = Isa::available().iter().copied();
            let vectors = vectors.filter(|&isa| isa != Isa::Portable && isa != Isa::Avx512Bf16);
            let alike = match model {
                Some(model) => vec![model],
                None => vectors.collect(),
            };
            for isa in alike {
                assert!(
                    bits::<E>(isa, &Serial, shape, 0) == expected,
                    "{shape:?} with {isa:?}"
                );
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

/// A product on many threads has the sums of one on the calling thread: with columns in several
/// chunks, a depth in several passes, and rows in several bands.
#[test]
fn cutting_a_product_changes_no_bit() {
    fn check<E: Element<Acc = f32>>([m, n, k]: [usize; 3]) {
        let (a, b) = (numbers::<bf16>(m * k, 1), numbers::<E>(n * k, 2));
        let (bias, before) = (numbers::<f32>(n, 3), numbers::<E>(m * n, 4));
        let widest = Isa::detect();
        for isa in [widest.serving(E::DTYPE), widest.vectors()] {
            let sides = (Dense::new(&a, m, k), Dense::new(&b, n, k));
            let sides = (Operand::over_cols(&sides.0), Operand::over_cols(&sides.1));
            let mut sums = vec![0.0f32; m * n];
            let mut memory = vec![0.0; space::<f32>()];
            multiply_into(isa, sides, (&mut sums, n), Update::Overwrite, &mut memory);
            let expected = sums
                .iter()
                .enumerate()
                .map(|(i, sum)| E::store(sum + bias[i % n]));
            for threads in [1, 3] {
                let mut out = before.clone();
                let (a, b) = ((&a[..], Summed::Cols), (&b[..], Summed::Cols));
                let on: (Isa, &dyn Services) = (isa, &Threads(threads));
                product(
                    on,
                    a,
                    b,
                    [m, n, k],
                    (&mut out, Update::Overwrite),
                    Some(&bias),
                );
                let same = |(found, expected): (&E, E)| found.load() == expected.load();
                assert!(
                    out.iter().zip(expected.clone()).all(same),
                    "{isa:?} {:?}",
                    [m, n, k]
                );
            }
        }
    }
    for shape in [
        [60, 2100, 40],
        [3, 2500, 700],
        [130, 70, 9000],
        [560, 40, 9000],
        [17, 600, 4300],
    ] {
        check::<bf16>(shape);
        check::<f32>(shape);
    }
}

/// Sums of products of one and of several partial sums, with and without a bias.
#[test]
fn a_sum_has_the_bits_of_a_product_and_a_sum_after_it() {
    fn check<E: Element>([m, n, k]: [usize; 3], threads: usize)
    where
        E::Acc: Scalar,
    {
        let (a, b) = (numbers::<E>(m * k, 1), numbers::<E>(n * k, 2));
        let (bias, before) = (numbers::<E::Acc>(n, 3), numbers::<E>(m * n, 4));
        let sides = ((&a[..], Summed::Cols), (&b[..], Summed::Cols));
        let services = Threads(threads);
        for (&isa, bias) in Isa::available()
            .iter()
            .flat_map(|isa| [(isa, None), (isa, Some(&bias[..]))])
        {
            let store = |sum: Sum<'_, E>, mut out: Vec<E>| {
                let to = (&mut out[..], Combine::Sum(sum));
                combined((isa, &services), sides.0, sides.1, [m, n, k], to, bias);
                out
            };
            let product = store(Sum::PRODUCT, vec![E::default(); m * n]);
            for alpha in [1.0, -0.3] {
                let times = E::Acc::from_f64(alpha);
                let expected = |earlier: Option<&E>, p: &E| {
                    let p = times * p.load();
                    E::store(earlier.map_or(p, |earlier| earlier.load() + p))
                };
                let scaled: Vec<E> = product.iter().map(|p| expected(None, p)).collect();
                let sums = before.iter().zip(&product);
                let sums: Vec<E> = sums.map(|(e, p)| expected(Some(e), p)).collect();
                let other = || vec![E::default(); m * n];
                for (added, out, expected) in [
                    (Added::Nothing, other(), &scaled),
                    (Added::Output, before.clone(), &sums),
                    (Added::Values(&before[..]), other(), &sums),
                ] {
                    let found = store(Sum { alpha, added }, out);
                    assert!(
                        found == *expected,
                        "{isa:?}, {m} x {n}, depth {k}, {added:?}"
                    );
                }
            }
        }
    }
    for (shape, threads) in [([3, 5, 1], 1), ([40, 77, 16], 1), ([70, 600, 300], 2)] {
        check::<f32>(shape, threads);
        check::<bf16>(shape, threads);
        check::<f64>(shape, threads);
    }
    check::<f32>([600, 40, 1030], 3);
    check::<bf16>([600, 40, 1030], 3);
}
