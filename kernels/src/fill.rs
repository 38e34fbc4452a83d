//! A key -> a tensor of constants, uniform or normal numbers.
//!
//! Element `i` draws word `i % 4` of counter `(i / 4, stream, 0, 0)`.

use espalier_interface::{Services, random};

use crate::element::{Element, Real};
use crate::split::{CHUNK, chunks_mut};

const _: () = assert!(CHUNK.is_multiple_of(4), "a chunk is whole counters");

/// Writes `value` everywhere.
pub fn constant<E: Element>(services: &dyn Services, value: f64, y: &mut [E]) {
    let value = E::store(E::Acc::from_f64(value));
    chunks_mut(services, y, CHUNK, |_, y| y.fill(value));
}

/// Writes zero bytes: zero in every dtype.
pub fn zero_bytes(services: &dyn Services, y: &mut [u8]) {
    chunks_mut(services, y, 8 * CHUNK, |_, y| y.fill(0));
}

/// Writes numbers uniform in `[low, high)` before rounding.
pub fn uniform<E: Element>(
    services: &dyn Services,
    key: [u32; 2],
    stream: u32,
    [low, high]: [f64; 2],
    y: &mut [E],
) {
    blocks(services, key, stream, y, |words| {
        words.map(|word| low + (high - low) * f64::from(random::uniform(word)))
    });
}

/// Writes numbers of a normal distribution.
pub fn normal<E: Element>(
    services: &dyn Services,
    key: [u32; 2],
    stream: u32,
    [mean, deviation]: [f64; 2],
    y: &mut [E],
) {
    blocks(services, key, stream, y, |[a, b, c, d]| {
        let ([w, x], [y, z]) = (random::normal([a, b]), random::normal([c, d]));
        [w, x, y, z].map(|value| mean + deviation * f64::from(value))
    });
}

fn blocks<E: Element>(
    services: &dyn Services,
    key: [u32; 2],
    stream: u32,
    y: &mut [E],
    draw: impl Fn([u32; 4]) -> [f64; 4] + Sync,
) {
    chunks_mut(services, y, CHUNK, |start, y| {
        for (i, y) in y.chunks_mut(4).enumerate() {
            let numbers = draw(random::philox(key, [(start / 4 + i) as u32, stream, 0, 0]));
            for (y, number) in y.iter_mut().zip(numbers) {
                *y = E::store(E::Acc::from_f64(number));
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use espalier_interface::Serial;

    use super::*;
    use crate::check;

    #[test]
    fn numbers_have_their_moments_on_any_threads() {
        let n = 3 * CHUNK + 3;
        let run = |services: &dyn Services| {
            let (mut u, mut z) = (vec![0f32; n], vec![0f32; n]);
            uniform(services, [1, 2], 3, [-2.0, 4.0], &mut u);
            normal(services, [1, 2], 3, [1.0, 0.5], &mut z);
            (u, z)
        };
        check::same_on_two_threads(run);
        let (u, z) = run(&Serial);
        assert!(u.iter().all(|v| (-2.0..4.0).contains(v)));
        let mean = |x: &[f32]| x.iter().map(|&v| f64::from(v)).sum::<f64>() / n as f64;
        assert!((mean(&u) - 1.0).abs() < 0.03, "{}", mean(&u));
        assert!((mean(&z) - 1.0).abs() < 0.01, "{}", mean(&z));
        let spread: Vec<f32> = z.iter().map(|v| (v - 1.0) * (v - 1.0)).collect();
        assert!((mean(&spread) - 0.25).abs() < 0.01, "{}", mean(&spread));
        assert_ne!(u[..4], u[CHUNK..CHUNK + 4]);
    }

    #[test]
    fn streams_differ_and_dtypes_agree() {
        let (mut a, mut b, mut c) = ([0f32; 8], [0f32; 8], [0f64; 8]);
        normal(&Serial, [1, 2], 0, [0.0, 1.0], &mut a);
        normal(&Serial, [1, 2], 1, [0.0, 1.0], &mut b);
        normal(&Serial, [1, 2], 0, [0.0, 1.0], &mut c);
        assert_ne!(a, b);
        assert_eq!(a.map(f64::from), c);
        constant(&Serial, 1.5, &mut a);
        assert_eq!(a, [1.5; 8]);
        let mut bytes = vec![3; 8 * CHUNK + 1];
        zero_bytes(&check::TwoThreads, &mut bytes);
        assert!(bytes.iter().all(|&byte| byte == 0));
    }
}
