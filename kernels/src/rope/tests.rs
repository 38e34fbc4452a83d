//! Rotations and their gradients compared with finite differences.

use espalier_interface::Serial;

use super::*;
use crate::check;

const INV_FREQ: [f32; 3] = [1.0, 0.1, 0.01];

fn turned(x: &[f64], positions: &[i32], direction: Direction) -> Vec<f64> {
    let mut y = vec![0.0; x.len()];
    rope(
        &Serial,
        x,
        positions,
        (8, &INV_FREQ),
        1.5,
        direction,
        &mut y,
    );
    y
}

#[test]
fn rotates_the_halves_and_copies_the_rest() {
    let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
    let y = turned(&x, &[2], Direction::Forward);
    let (sin, cos) = 2.0f64.sin_cos();
    assert!((y[0] - 1.5 * (cos - 4.0 * sin)).abs() < 1e-12);
    assert!((y[3] - 1.5 * (4.0 * cos + sin)).abs() < 1e-12);
    assert_eq!(y[6..], [7.0, 8.0]);
}

#[test]
fn gradient_is_the_difference() {
    let (positions, width) = ([0, 5, 3], 16);
    let (x, dy) = (check::numbers(3 * width, 1), check::numbers(3 * width, 2));
    let dx = turned(&dy, &positions, Direction::Backward);
    let loss = |x: &[f64]| check::dot(&turned(x, &positions, Direction::Forward), &dy);
    check::gradient(loss, &x, &dx);
}

#[test]
fn f32_and_threads_agree() {
    let (tokens, width) = (1000, 32);
    let x = check::numbers(tokens * width, 1);
    let positions: Vec<i32> = (0..tokens as i32).collect();
    let xf = check::floats(&x);
    let run = |services: &dyn Services| {
        let mut y = vec![0f32; x.len()];
        let shape = (8, &INV_FREQ[..]);
        rope(
            services,
            &xf,
            &positions,
            shape,
            1.5,
            Direction::Forward,
            &mut y,
        );
        y
    };
    check::same_on_two_threads(run);
    // f32 angles up to 1000 are off by 3e-5.
    check::close(
        &run(&Serial),
        &turned(&x, &positions, Direction::Forward),
        3e-4,
    );
}

#[test]
fn a_pair_has_the_bits_of_two() {
    let (tokens, widths) = (1100, [32, 16]);
    let x = widths.map(|width| check::floats(&check::numbers(tokens * width, width as u32)));
    let positions: Vec<i32> = (0..tokens as i32).rev().collect();
    let shape = (8, &INV_FREQ[..]);
    for direction in [Direction::Forward, Direction::Backward] {
        let apart = [0, 1].map(|index| {
            let x = &x[index];
            let mut y = vec![0f32; x.len()];
            rope(&Serial, x, &positions, shape, 1.5, direction, &mut y);
            y
        });
        let run = |services: &dyn Services| {
            let (mut q, mut k) = (apart[1].repeat(2), apart[1].clone());
            let (x, y) = ([&x[0][..], &x[1]], [&mut q[..], &mut k]);
            rope_pair(services, x, &positions, shape, 1.5, direction, y);
            [q, k]
        };
        check::same_on_two_threads(run);
        assert!(run(&Serial) == apart, "{direction:?}");
    }
}
