//! Layers with biases and packed weights: values, gradients and bits.

mod adapted;
mod tiled;

use half::{bf16, f16};

use super::*;
use crate::decode::{Packed, TileDecoder};
use crate::element::{Real, convert};
use crate::matmul::tests::{numbers, sets_for};
use crate::matmul::threads::Threads;

/// `y`, `dx` and `dW` of one layer.
fn layer<E: Element>(
    isa: Isa,
    weight: &dyn Rows<E::Acc>,
    tokens: usize,
    threads: usize,
) -> (Vec<E>, Vec<E>, Vec<E::Acc>)
where
    E::Acc: Scalar,
{
    let (n, m) = weight.size();
    let (x, dy) = (numbers::<E>(tokens * m, 1), numbers::<E>(tokens * n, 2));
    let bias = numbers::<bf16>(n, 3);
    let bias = Dense::new(&bias, 1, n);
    let sizes = [[tokens, n, m], [tokens, m, n], [n, m, tokens]];
    let bytes = sizes.map(|size| {
        workspace_bytes::<E>(isa, threads, size).max(workspace_bytes::<E::Acc>(isa, threads, size))
    });
    let mut workspace = vec![0; bytes[0].max(bytes[1]).max(bytes[2])];
    let (mut y, mut dx) = (
        vec![E::default(); tokens * n],
        vec![E::default(); tokens * m],
    );
    let mut dweight = vec![E::Acc::ONE; n * m];
    let services = Threads(threads);
    forward(
        isa,
        &services,
        &x,
        weight,
        Some(&bias),
        Onto::product(&mut y),
        &mut workspace,
    );
    input_backward(
        isa,
        &services,
        &dy,
        weight,
        Onto::product(&mut dx),
        &mut workspace,
    );
    weight_backward(
        isa,
        &services,
        &dy,
        &x,
        WeightGradient {
            values: &mut dweight,
            size: (n, m),
            alpha: 1.0,
        },
        &mut workspace,
    );
    (y, dx, dweight)
}

#[test]
fn gradients_are_those_of_the_output() {
    // The layer is linear: <dy, y(x) - bias> = <dx, x> = <dW - 1, W>, exactly but for rounding.
    fn check<W: Element>() {
        let [tokens, n, m] = [19, 70, 41];
        let w = numbers::<W>(n * m, 4);
        let (y, dx, dw) = layer::<f64>(Isa::detect(), &Dense::new(&w, n, m), tokens, 2);
        let (x, dy) = (numbers::<f64>(tokens * m, 1), numbers::<f64>(tokens * n, 2));
        let bias: Vec<f64> = numbers::<bf16>(n, 3).into_iter().map(convert).collect();
        let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
        let along: f64 = (0..tokens * n).map(|i| dy[i] * (y[i] - bias[i % n])).sum();
        assert!((along - dot(&dx, &x)).abs() < 1e-11);
        let grown: f64 = (0..n * m)
            .map(|i| (dw[i] - 1.0) * convert::<W, f64>(w[i]))
            .sum();
        assert!((along - grown).abs() < 1e-11);
        assert!(along.abs() > 1e-3);
    }
    check::<f64>();
    check::<f32>();
    check::<bf16>();
    check::<f16>();
}

/// Decodes to multiples of 1/64.
struct Steps(usize, usize);

impl TileDecoder for Steps {
    fn size(&self) -> (usize, usize) {
        (self.0, self.1)
    }

    fn decode(&self, rows: std::ops::Range<usize>, cols: std::ops::Range<usize>, out: &mut [f32]) {
        let flat = rows.flat_map(|row| cols.clone().map(move |col| row * self.1 + col));
        out.iter_mut()
            .zip(flat)
            .for_each(|(out, i)| *out = (i * 37 % 129) as f32 / 64.0 - 1.0);
    }
}

/// `tokens` with each instruction set of this CPU, and tiles in plain Rust.
fn on_all<E: Element>(tokens: usize) -> impl Iterator<Item = (usize, Isa)> {
    let sets = sets_for(E::DTYPE).into_iter();
    sets.map(move |isa| (tokens, isa))
}

#[test]
fn a_packed_weight_has_the_bits_of_its_decoded_values() {
    fn check<E: Element>()
    where
        E::Acc: Scalar,
    {
        let (n, m) = (150, 530);
        let mut decoded = vec![0.0f32; n * m];
        Steps(n, m).decode(0..n, 0..m, &mut decoded);
        for (tokens, isa) in [0, 1, 600].into_iter().flat_map(on_all::<E>) {
            let packed = layer::<E>(isa, &Packed(&Steps(n, m)), tokens, 1);
            let dense = layer::<E>(isa, &Dense::new(&decoded, n, m), tokens, 2);
            assert!(packed == dense, "{tokens} tokens with {isa:?}");
        }
    }
    check::<f32>();
    check::<bf16>();
    check::<f64>();
}

#[test]
fn a_power_of_two_times_a_gradient_has_the_bits_of_the_gradient_of_scaled_tokens() {
    fn check<E: Element>([tokens, n, m]: [usize; 3], alpha: f64)
    where
        E::Acc: Scalar,
    {
        let (dy, x) = (numbers::<E>(tokens * n, 1), numbers::<E>(tokens * m, 2));
        let scaled = dy.iter().map(|dy| dy.load() * E::Acc::from_f64(alpha));
        let scaled: Vec<E> = scaled.map(E::store).collect();
        for isa in sets_for(E::DTYPE) {
            let mut workspace = vec![0; workspace_bytes::<E::Acc>(isa, 2, [n, m, tokens])];
            let mut grow = |dy: &[E], alpha| {
                let mut dweight = numbers::<E::Acc>(n * m, 3);
                let grown = WeightGradient {
                    values: &mut dweight,
                    size: (n, m),
                    alpha,
                };
                weight_backward(isa, &Threads(2), dy, &x, grown, &mut workspace);
                dweight
            };
            assert!(grow(&dy, alpha) == grow(&scaled, 1.0), "{isa:?}, {alpha}");
        }
    }
    for (shape, alpha) in [([5, 70, 16], 4.0), ([600, 16, 70], 0.125), ([0, 3, 4], 2.0)] {
        check::<f32>(shape, alpha);
        check::<bf16>(shape, alpha);
        check::<f64>(shape, alpha);
    }
}

/// The product is rounded to bf16, then the sum, as two operations of torch do.
#[test]
fn a_narrow_gradient_is_the_rounded_sum_of_the_rounded_product() {
    let (tokens, n, m, alpha) = (70, 19, 33, 0.5);
    let (dy, x) = (
        numbers::<bf16>(tokens * n, 1),
        numbers::<bf16>(tokens * m, 2),
    );
    let start = numbers::<bf16>(n * m, 3);
    let threads = 2;
    for isa in sets_for(bf16::DTYPE) {
        let size = [n, m, tokens];
        let bytes = sum_workspace_bytes::<bf16>(isa, threads, size);
        let mut space = vec![0; bytes.max(workspace_bytes::<f32>(isa, threads, size))];
        let services = Threads(threads);
        let (mut product, mut sum) = (vec![0.0f32; n * m], start.clone());
        let dweight = WeightGradient {
            values: &mut product[..],
            size: (n, m),
            alpha,
        };
        weight_backward(isa, &services, &dy, &x, dweight, &mut space);
        let dweight = WeightGradient {
            values: &mut sum[..],
            size: (n, m),
            alpha,
        };
        narrow_weight_backward(isa, &services, &dy, &x, dweight, &mut space);
        for ((found, product), start) in sum.iter().zip(&product).zip(&start) {
            let expected = bf16::from_f32(start.to_f32() + bf16::from_f32(*product).to_f32());
            assert_eq!(*found, expected, "{isa:?}");
        }
    }
}
