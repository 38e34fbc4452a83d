//! Ticks and positions of linear, logarithmic and signed axes.

use super::*;

fn labels(axis: &Axis) -> Vec<String> {
    axis.ticks.iter().map(|tick| axis.label(*tick)).collect()
}

#[test]
fn ticks_are_round_and_cover_the_range() {
    let axis = Axis::rounded(4.26, 5.91, 4);
    assert_eq!(labels(&axis), ["4", "4.5", "5", "5.5", "6"]);
    assert_eq!(
        labels(&Axis::rounded(0.0, 0.003, 3)),
        ["0", "1e-3", "2e-3", "3e-3"]
    );
    assert_eq!(
        labels(&Axis::exact(1.0, 120.0, 5)),
        ["25", "50", "75", "100"]
    );
    assert_eq!(
        labels(&Axis::exact(1.0, 100_000.0, 4)),
        ["25k", "50k", "75k", "100k"]
    );
}

#[test]
fn logarithmic_axes_begin_and_end_at_round_numbers() {
    let axis = Axis::logarithmic(0.0031, 0.24);
    assert_eq!((axis.low, axis.high), (0.002, 0.5));
    assert_eq!(
        labels(&axis),
        [
            "0.002", "0.005", "0.01", "0.02", "0.05", "0.1", "0.2", "0.5"
        ]
    );
    assert_eq!(
        labels(&Axis::logarithmic(1e-4, 0.9)),
        ["0.0001", "0.001", "0.01", "0.1", "1"]
    );
    assert_eq!(
        labels(&Axis::logarithmic(0.01, 0.01)),
        ["0.005", "0.01", "0.02"]
    );
    assert_eq!(labels(&Axis::doubling(2.1, 19.0)), ["4", "8", "16"]);
    assert!((Axis::doubling(1.0, 16.0).at(4.0) - 0.5).abs() < 1e-12);
}

#[test]
fn a_signed_axis_shows_small_values_beside_large_ones() {
    let narrow = Axis::signed(&[-0.1, 0.3], &[0.1, 0.2]);
    assert_eq!(narrow, Axis::rounded(-0.1, 0.3, 5));
    let wide = Axis::signed(&[-0.002, 2.0], &[0.004, 0.01, 0.5]);
    let shown = labels(&wide);
    assert!(
        shown.contains(&"0".to_owned()) && shown.contains(&"1".to_owned()),
        "{shown:?}"
    );
    assert!(wide.at(0.01) - wide.at(0.0) > 0.05);
    assert!(wide.low < -0.002 && wide.high > 2.0);
    let nothing = Axis::signed(&[0.0, f64::NAN], &[]);
    assert_eq!(nothing.at(0.0), 0.5);
}

#[test]
fn a_flat_curve_is_centred() {
    let axis = Axis::rounded(3.0, 3.0, 4);
    assert_eq!(axis.at(3.0), 0.5);
    assert_eq!(Axis::exact(1.0, 1.0, 5).at(1.0), 0.0);
}
