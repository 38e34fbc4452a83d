//! The factors of inputs of unequal sizes, and what a search does without a better answer.

use espalier_interface::Serial;

use super::*;
use crate::grid::Symmetry;
use crate::number::Number;

const SPEC: GridSpec = GridSpec {
    bits: 3,
    symmetry: Symmetry::Asymmetric,
    number: Number::F32,
};

/// A weight `[20, 24]` with all its parts of one size.
fn weight() -> Vec<f32> {
    let part = |at: usize| ((at * 37 + at / 24 * 11) % 101) as f32 / 50.0 - 1.0;
    (0..20 * 24).map(part).collect()
}

/// Codes and factors of [`weight`], whose inputs are of these sizes and independent.
fn encoded(sizes: &[f32; 24], clipping: Clipping) -> (Vec<f32>, f64) {
    let groups = Grouping::of(8, [20, 24]).expect("it fits");
    let mut gram = vec![0.0; 24 * 24];
    for (at, size) in sizes.iter().enumerate() {
        gram[at * 25] = size * size;
    }
    let inputs = Activations {
        mean_absolute: sizes,
        gram: &gram,
    };
    let mut workspace = vec![0xa5; Found::bytes(groups) as usize];
    let (mut found, _) = Found::of(groups, &mut workspace);
    let mut factors = vec![0.0; 24];
    let weight = weight();
    let awq = Awq {
        grid: SPEC,
        clipping,
    };
    let out = (&mut found, factors.as_mut_slice());
    awq.encode(groups, &weight, inputs, out, &Serial)
        .expect("coded");
    let error = weight.iter().enumerate().map(|(at, x)| {
        let code = f32::from(found.codes[at]) - found.zeros[at / 8];
        let value = code * found.scales[at / 8] * factors[at % 24];
        f64::from((x - value) * sizes[at % 24]).powi(2)
    });
    let error = error.sum();
    (factors, error)
}

#[test]
fn columns_of_large_inputs_get_small_factors_and_errors_become_less() {
    let mut sizes = [1.0; 24];
    for at in [3, 11, 19] {
        sizes[at] = 30.0;
    }
    let (factors, error) = encoded(&sizes, Clipping::Off);
    assert!(factors[3] < 0.7 * factors[4], "{factors:?}");
    let plain: f64 = plain(&sizes);
    assert!(error < 0.7 * plain, "{error} against {plain}");
    let (_, clipped) = encoded(&sizes, Clipping::Searched);
    assert!(clipped <= error, "{clipped} against {error}");
}

/// The error of the nearest codes.
fn plain(sizes: &[f32; 24]) -> f64 {
    let weight = weight();
    let of_group = |(group, weight): (usize, &[f32])| -> f64 {
        let grid = SPEC.of(weight);
        let errors = weight.iter().enumerate().map(|(at, &x)| {
            let error = x - grid.value(SPEC.code(grid, x));
            f64::from(error * sizes[(group * 8 + at) % 24]).powi(2)
        });
        errors.sum()
    };
    weight.chunks(8).enumerate().map(of_group).sum()
}

#[test]
fn inputs_of_one_size_or_without_any_leave_the_nearest_codes() {
    for sizes in [[1.0; 24], [0.0; 24]] {
        let (factors, error) = encoded(&sizes, Clipping::Off);
        assert_eq!(factors, [1.0; 24]);
        assert!((error - plain(&sizes)).abs() <= 1e-9 * error, "{error}");
    }
}

#[test]
fn factors_are_centred_powers_of_the_mean_magnitudes() {
    assert_eq!(factors(&[4.0, 1.0, 16.0], 0.5), [1.0, 2.0, 0.5]);
    // A channel without inputs has the least power.
    let found = factors(&[0.0, 1.0], 0.5);
    assert!(
        (found[0] - 100.0).abs() < 1e-3 && (found[1] - 0.01).abs() < 1e-7,
        "{found:?}"
    );
}
