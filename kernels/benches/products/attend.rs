//! Attention at training's shapes -> GFLOP/s of both passes, beside those of a product in the same
//! turns.
//!
//! Work is counted as that of the visible keys: two products forward, five backward. Blocks on the
//! diagonal and the softmax are not counted.

use std::time::Instant;

use espalier_interface::Services;
use espalier_kernels::attention::{self, AttentionShape, Future, Gradients, Inputs};
use espalier_kernels::element::Element;
use espalier_kernels::linear::{self, Onto};
use espalier_kernels::matmul::{Dense, Isa, Scalar};
use half::bf16;

use crate::clock::thread_secs;
use crate::numbers::Lined;
use crate::threads::Threads;
use crate::workspace;

const TURNS: usize = 15;
/// `[T, N, M]` of the product beside.
const PRODUCT: [usize; 3] = [2048, 768, 768];
const LENGTHS: [&[usize]; 3] = [&[512; 4], &[2048], &[16; 128]];
const SHAPE: AttentionShape = AttentionShape {
    heads: 12,
    kv_heads: 4,
    head_dim: 64,
    scale: 0.125,
    future: Future::Hidden,
    window: None,
    softcap: None,
};

/// Prints a line a shape, dtype and number of threads.
pub fn run() {
    let one_head = AttentionShape {
        heads: 3,
        kv_heads: 1,
        ..SHAPE
    };
    for on in &Threads::one_and_all() {
        for lens in LENGTHS {
            compare::<f32>(SHAPE, lens, on);
            compare::<bf16>(SHAPE, lens, on);
        }
        compare::<f32>(one_head, LENGTHS[1], on);
        compare::<bf16>(one_head, LENGTHS[1], on);
    }
}

/// The seconds that `body` takes. One thread is timed by its own clock, which a busy machine
/// changes little.
fn secs(on: &Threads, body: impl FnOnce()) -> f64 {
    let (start, busy) = (Instant::now(), thread_secs());
    body();
    match on.threads() {
        1 => thread_secs() - busy,
        _ => start.elapsed().as_secs_f64(),
    }
}

#[allow(clippy::print_stdout)] // A benchmark prints its figures.
fn compare<E: Element>(shape: AttentionShape, lens: &[usize], on: &Threads)
where
    E::Acc: Scalar,
{
    let (isa, threads) = (Isa::detect(), on.threads());
    let tokens: usize = lens.iter().sum();
    let ends = lens.iter().scan(0, |end, &len| {
        *end += len as i32;
        Some(*end)
    });
    let cu_seqlens: Vec<i32> = std::iter::once(0).chain(ends).collect();
    let [wide, narrow] = [shape.heads, shape.kv_heads].map(|heads| tokens * heads * shape.head_dim);
    let [q, dout]: [Lined<E>; 2] = [(); 2].map(|()| Lined::numbers(wide));
    let [k, v]: [Lined<E>; 2] = [(); 2].map(|()| Lined::numbers(narrow));
    let inputs = Inputs {
        q: &q,
        k: &k,
        v: &v,
        cu_seqlens: &cu_seqlens,
    };
    let mut out = Lined::<E>::numbers(wide);
    let mut lse = vec![E::Acc::default(); tokens * shape.heads];
    let [mut dq, mut dk, mut dv]: [Lined<E>; 3] = [wide, narrow, narrow].map(Lined::numbers);
    let bytes = [
        attention::forward_workspace_bytes::<E>(&shape, threads),
        attention::backward_workspace_bytes::<E>(&shape, tokens, threads),
        workspace(threads, PRODUCT),
    ];
    let mut space = vec![0; bytes.into_iter().fold(0, usize::max)];
    let [t, n, m] = PRODUCT;
    let [x, weight, mut y]: [Lined<E>; 3] = [t * m, n * m, t * n].map(Lined::numbers);
    let weight = Dense::new(&weight, n, m);
    let mut least = [f64::INFINITY; 3];
    for _ in 0..TURNS {
        let forward = secs(on, || {
            let to = (&mut out[..], &mut lse[..]);
            attention::forward(isa, on, &shape, inputs, to, &mut space);
        });
        let backward = secs(on, || {
            let gradients = Gradients {
                dout: &dout,
                out: &out,
                lse: &lse,
                dq: &mut dq,
                dk: &mut dk,
                dv: &mut dv,
            };
            attention::backward(isa, on, &shape, inputs, gradients, &mut space);
        });
        let product = secs(on, || {
            linear::forward(
                isa,
                on,
                &x,
                &weight,
                None,
                Onto::product(&mut y),
                &mut space,
            );
        });
        for (least, secs) in least.iter_mut().zip([forward, backward, product]) {
            *least = least.min(secs);
        }
    }
    let pairs: usize = lens.iter().map(|len| len * (len + 1) / 2).sum();
    let work = (2 * pairs * shape.heads * shape.head_dim) as f64 * 1e-9;
    let product = (2 * t * n * m) as f64 * 1e-9 / least[2];
    let [forward, backward] = [2.0 * work / least[0], 5.0 * work / least[1]];
    println!(
        "{threads} threads, {:4} H {} J {} K {}, {} sequences of {}: forward {forward:6.1} ({:.2} of \
         product), backward {backward:6.1} ({:.2}), product {product:6.1}",
        E::DTYPE.name(),
        shape.heads,
        shape.kv_heads,
        shape.head_dim,
        lens.len(),
        lens[0],
        forward / product,
        backward / product,
    );
}
