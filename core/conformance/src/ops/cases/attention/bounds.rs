//! The operands of an attention -> how far its results may be off in f32 arithmetic, and where a
//! backend rounds softmax's weights and their gradients to bf16.
//!
//! With `u` the unit roundoff: a logit is a sum of K products, scaled (K + 2 roundings of the sum
//! of absolute products), and capped (a quotient, a function good to 4 u, and a product, of at most
//! the cap). The logarithm of n exponentials moves by the mean error of the logits, each by its
//! weight, by the rounded differences to the largest logit, and by n + 8 roundings. A weight
//! `e^(l - lse)` moves by what both move by.

use espalier_interface::DType;

use crate::ops::oracle::{Mask, SlotCache, dot, queries};
use crate::ops::rounding::{U, moved_by_bf16};

/// Sums of products with softmax's weights or their gradients, which a backend that computes in
/// bf16 may round to it first: of each sum, the magnitudes of its terms and their squares.
struct Terms(Vec<[f64; 2]>);

impl Terms {
    fn new(sums: usize) -> Self {
        Terms(vec![[0.0; 2]; sums])
    }

    fn add(&mut self, sum: usize, term: f64) {
        let [magnitude, square] = &mut self.0[sum];
        *magnitude += term.abs();
        *square += term * term;
    }

    /// Adds what rounding moves to the bounds of the sums.
    fn allow_rounding(&self, compute: DType, bounds: &mut [f64]) {
        if compute != DType::BF16 {
            return;
        }
        for (bound, &[sum, squares]) in bounds.iter_mut().zip(&self.0) {
            *bound += moved_by_bf16(sum, squares);
        }
    }
}

/// The absolute sum of products.
fn size(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a * b).abs()).sum()
}

/// The error of a logit.
fn logit(mask: &Mask, q: &[f64], k: &[f64]) -> f64 {
    let sum = (mask.head_dim + 2) as f64 * U * mask.scale.abs() * size(q, k);
    match mask.softcap {
        None => sum,
        Some(c) => sum + 6.0 * U * c.min(mask.scale.abs() * dot(q, k).abs()),
    }
}

/// The bounds of one head of one query: out, and lse.
fn row(
    (compute, mask): (DType, &Mask),
    q: &[f64],
    keys: &[&[f64]],
    values: &[&[f64]],
) -> (Vec<f64>, f64) {
    let n = keys.len() as f64;
    let logits: Vec<f64> = keys.iter().map(|k| mask.logit(q, k)[0]).collect();
    let errors: Vec<f64> = keys.iter().map(|k| logit(mask, q, k)).collect();
    let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|l| (l - most).exp()).sum();
    let lse = most + sum.ln();
    let p: Vec<f64> = logits.iter().map(|l| (l - lse).exp()).collect();
    let mut moved = 0.0;
    for (p, (l, error)) in p.iter().zip(logits.iter().zip(&errors)) {
        moved += p * (error + U * (most - l));
    }
    let lse_error = moved + U * (n + 8.0) + U * (5.0 * (lse - most) + most.abs() + lse.abs());
    let (mut out, mut terms) = (vec![0.0; mask.head_dim], Terms::new(mask.head_dim));
    for ((p, v), (l, error)) in p.iter().zip(values).zip(logits.iter().zip(&errors)) {
        let relative = error + lse_error + U * ((l - lse).abs() + n + 8.0);
        for (i, v) in v.iter().enumerate() {
            out[i] += relative * p * v.abs();
            terms.add(i, p * v);
        }
    }
    terms.allow_rounding(compute, &mut out);
    (out, lse_error)
}

/// The bounds of `out` and `lse`.
pub fn forward(
    (compute, mask): (DType, &Mask),
    [q, k, v]: [&[f64]; 3],
    cu_seqlens: &[i32],
) -> (Vec<f64>, Vec<f64>) {
    let (mut out, mut lse) = (Vec::new(), Vec::new());
    for (t, seen) in queries(mask, cu_seqlens) {
        for head in 0..mask.heads {
            let keys: Vec<_> = seen.clone().map(|j| &k[mask.key(j, head)]).collect();
            let values: Vec<_> = seen.clone().map(|j| &v[mask.key(j, head)]).collect();
            let found = row((compute, mask), &q[mask.query(t, head)], &keys, &values);
            out.extend(found.0);
            lse.push(found.1);
        }
    }
    (out, lse)
}

/// The bounds of `out` over the cache as it is after the launch.
pub fn cached(
    (compute, mask): (DType, &Mask),
    q: &[f64],
    cu_seqlens: &[i32],
    [positions, sequences]: [&[i32]; 2],
    cache: &SlotCache,
) -> Vec<f64> {
    let mut out = Vec::new();
    for bounds in cu_seqlens.windows(2) {
        for t in bounds[0] as usize..bounds[1] as usize {
            let first = bounds[0] as usize;
            let slot = sequences[first] as usize * cache.capacity;
            let place = positions[first] as usize + t - first;
            for head in 0..mask.heads {
                let seen = || {
                    mask.seen(place, place + 1)
                        .map(|j| mask.key(slot + j, head))
                };
                let keys: Vec<_> = seen().map(|at| &cache.keys[at]).collect();
                let values: Vec<_> = seen().map(|at| &cache.values[at]).collect();
                let q = &q[mask.query(t, head)];
                out.extend(row((compute, mask), q, &keys, &values).0);
            }
        }
    }
    out
}

/// The bounds of dq, dk and dv. The difference `dout . v - dout . out` errs by its two sums of K
/// products. The derivative of a cap, `1 - tanh^2`, errs by twice the error of tanh. The three
/// results are sums over the keys seen, or over the queries that see the key.
pub fn backward(
    (compute, mask): (DType, &Mask),
    [dout, q, k, v, out, lse]: [&[f64]; 6],
    cu_seqlens: &[i32],
) -> [Vec<f64>; 3] {
    let tokens = queries(mask, cu_seqlens);
    let mut seen_by = vec![0; tokens.len()];
    for (_, seen) in &tokens {
        for j in seen.clone() {
            seen_by[j] += mask.heads / mask.kv_heads;
        }
    }
    let sum = (mask.head_dim + 1) as f64 * U;
    let lens = [q.len(), k.len(), v.len()];
    let (mut bounds, mut terms) = (lens.map(|len| vec![0.0; len]), lens.map(Terms::new));
    let [dq, dk, dv] = &mut bounds;
    for (t, seen) in tokens {
        for head in 0..mask.heads {
            let query = mask.query(t, head);
            let (row, own) = (&dout[query.clone()], &q[query.clone()]);
            let (delta, log) = (dot(row, &out[query.clone()]), lse[t * mask.heads + head]);
            let delta_error = sum * size(row, &out[query.clone()]);
            for j in seen.clone() {
                let key = mask.key(j, head);
                let [l, slope] = mask.logit(own, &k[key.clone()]);
                let l_error = logit(mask, own, &k[key.clone()]);
                let p = (l - log).exp();
                let p_error = l_error + U * ((l - log).abs() + 5.0);
                let x = dot(row, &v[key.clone()]) - delta;
                let x_error = sum * size(row, &v[key.clone()]) + delta_error + U * x.abs();
                let slope_error = mask.softcap.map_or(0.0, |c| {
                    2.0 * (l / c).abs() * (l_error / c + 4.0 * U) + 2.0 * U
                });
                let relative = p_error + 4.0 * U;
                let dlogit_error = slope * (x_error + x.abs() * relative) + x.abs() * slope_error;
                let factor = mask.scale.abs() * p;
                let (dlogit, dlogit_error) = (factor * (x * slope).abs(), factor * dlogit_error);
                let [over_keys, over_queries] =
                    [seen.len(), seen_by[j]].map(|n| (n + 2) as f64 * U);
                for (i, dout) in row.iter().enumerate() {
                    let (at_q, at_k) = (query.start + i, key.start + i);
                    dq[at_q] += k[at_k].abs() * (dlogit_error + over_keys * dlogit);
                    dk[at_k] += q[at_q].abs() * (dlogit_error + over_queries * dlogit);
                    dv[at_k] += dout.abs() * p * (p_error + over_queries);
                    terms[0].add(at_q, k[at_k] * dlogit);
                    terms[1].add(at_k, q[at_q] * dlogit);
                    terms[2].add(at_k, dout * p);
                }
            }
        }
    }
    for (terms, bounds) in terms.iter().zip(&mut bounds) {
        terms.allow_rounding(compute, bounds);
    }
    bounds
}
