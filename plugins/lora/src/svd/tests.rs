//! Matrices whose singular values are known -> what both ways find.

use espalier_conformance::largest_difference;
use espalier_interface::Serial;

use super::*;

/// A matrix `[rows, cols]` with these singular values, and its vectors from random bases.
fn made(rows: usize, cols: usize, values: &[f64]) -> Vec<f32> {
    let base = |length: usize, seed: u64| orthonormal(&drawn(values.len(), length, seed));
    let (left, right) = (base(rows, 1).transpose(), base(cols, 2));
    let matrix = left * DMatrix::from_diagonal(&values.to_vec().into()) * right;
    matrix.transpose().iter().map(|&x| x as f32).collect()
}

fn product(svd: &Svd) -> DMatrix<f64> {
    let values = DMatrix::from_diagonal(&svd.values.clone().into());
    &svd.left * values * svd.right.transpose()
}

#[test]
fn values_and_vectors_of_a_known_matrix_are_found_by_both() {
    let values = [9.0, 4.0, 4.0, 2.5, 1.0, 0.5];
    for (rows, cols) in [(40, 24), (24, 40), (200, 70), (6, 6)] {
        let matrix = made(rows, cols, &values);
        let top = made_top(&matrix, cols, 4);
        for (name, svd) in [
            ("exact", Svd::exact((&matrix, cols), 4)),
            (
                "randomised",
                Svd::randomised((&matrix, cols), (4, 4), 7, &Serial),
            ),
        ] {
            let svd = svd.expect("found");
            for (found, expected) in svd.values.iter().zip(values) {
                let off = (found - expected).abs();
                assert!(
                    off < 1e-5,
                    "{name} {rows} x {cols}: {found}, expected {expected}"
                );
            }
            let off = largest_difference(product(&svd).as_slice(), top.as_slice());
            assert!(off < 1e-5, "{name} {rows} x {cols}: off by {off}");
            let square = svd.left.transpose() * &svd.left;
            let one = DMatrix::<f64>::identity(4, 4);
            let off = largest_difference(square.as_slice(), one.as_slice());
            assert!(off < 1e-9, "{name}: left vectors are off by {off}");
        }
    }
}

/// The part of a matrix of its `rank` largest values, by the eigenvectors of `W^T W`.
fn made_top(matrix: &[f32], cols: usize, rank: usize) -> DMatrix<f64> {
    let rows = matrix.len() / cols;
    let matrix = DMatrix::from_row_iterator(rows, cols, matrix.iter().map(|&x| f64::from(x)));
    let eigen = (matrix.transpose() * &matrix).symmetric_eigen();
    let mut order: Vec<usize> = (0..cols).collect();
    order.sort_by(|&a, &b| eigen.eigenvalues[b].total_cmp(&eigen.eigenvalues[a]));
    let vectors = eigen.eigenvectors.select_columns(&order[..rank]);
    &matrix * &vectors * vectors.transpose()
}

#[test]
fn iterations_bring_the_randomised_values_to_the_exact_ones() {
    let (rows, cols, rank) = (96, 80, 8);
    let numbers = drawn(rows, cols, 3);
    let matrix: Vec<f32> = numbers.iter().map(|&x| x as f32).collect();
    let exact = Svd::exact((&matrix, cols), rank).expect("found");
    let off = |niter: u64| {
        let found = Svd::randomised((&matrix, cols), (rank, niter), 5, &Serial).expect("found");
        let pairs = found.values.iter().zip(&exact.values);
        pairs.map(|(found, exact)| exact - found).sum::<f64>()
    };
    let [none, few, many] = [0, 4, 60].map(off);
    assert!(
        none > few && few > many && many >= -1e-9,
        "{none}, {few}, {many}"
    );
    assert!(many < 0.02 * exact.values[0], "{many}");
}

/// A packed weight may lose nothing.
#[test]
fn zeros_have_values_of_zero() {
    let zeros = vec![0.0; 30 * 20];
    for svd in [
        Svd::exact((&zeros, 20), 4),
        Svd::randomised((&zeros, 20), (4, 2), 7, &Serial),
    ] {
        let svd = svd.expect("found");
        assert_eq!(svd.values, [0.0; 4]);
        assert!(svd.left.iter().chain(&svd.right).all(|x| x.is_finite()));
    }
}
