//! Products cut into chunks, passes and bands, and products that are added to other values.

use half::bf16;

use super::*;

/// A product on many threads has the sums of one on the calling thread: with columns in several
/// chunks, a depth in several passes, and rows in several bands.
#[test]
fn cutting_a_product_changes_no_bit() {
    fn check<E: Element<Acc = f32>>([m, n, k]: [usize; 3]) {
        let (a, b) = (numbers::<bf16>(m * k, 1), numbers::<E>(n * k, 2));
        let (bias, before) = (numbers::<f32>(n, 3), numbers::<E>(m * n, 4));
        let fastest = Isa::detect();
        for isa in [
            fastest.serving(E::DTYPE),
            fastest.vectors(),
            Isa::AmxModel.serving(E::DTYPE),
        ] {
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
        let further = numbers::<E>(m * n, 5);
        let sides = ((&a[..], Summed::Cols), (&b[..], Summed::Cols));
        let services = Threads(threads);
        for (isa, bias) in sets_for(E::DTYPE)
            .into_iter()
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
                    let what = format!("{isa:?}, {m} x {n}, depth {k}, {added:?}");
                    let sum = Sum {
                        alpha,
                        added,
                        ..Sum::PRODUCT
                    };
                    assert!(store(sum, out.clone()) == *expected, "{what}");
                    let residual = Some(&further[..]);
                    let expected = further.iter().zip(expected);
                    let expected = expected.map(|(r, sum)| E::store(r.load() + sum.load()));
                    let found = store(Sum { residual, ..sum }, out);
                    assert!(
                        found == expected.collect::<Vec<_>>(),
                        "{what}, and a residual"
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
