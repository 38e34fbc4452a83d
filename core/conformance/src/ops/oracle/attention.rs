//! `attention`, its gradients and `attention_cached` in f64.

use std::ops::Range;

/// The attributes of an attention.
#[derive(Clone, Copy, Debug)]
pub struct Mask {
    /// `H`.
    pub heads: usize,
    /// `J`, a divisor of `H`.
    pub kv_heads: usize,
    /// `K`.
    pub head_dim: usize,
    /// Factor of the logits.
    pub scale: f64,
    /// Whether tokens see only those before them and themselves.
    pub causal: bool,
    /// Most tokens back that one sees, itself included.
    pub window: Option<usize>,
    /// `c` of `c tanh(l / c)`.
    pub softcap: Option<f64>,
}

impl Mask {
    /// The keys that query `i` of a sequence of `len` tokens sees.
    pub fn seen(&self, i: usize, len: usize) -> Range<usize> {
        let first = self
            .window
            .map_or(0, |window| (i + 1).saturating_sub(window));
        first..if self.causal { i + 1 } else { len }
    }

    /// The logit of two vectors of a head, and the slope of its cap.
    pub fn logit(&self, q: &[f64], k: &[f64]) -> [f64; 2] {
        let logit = self.scale * dot(q, k);
        match self.softcap {
            None => [logit, 1.0],
            Some(c) => {
                let tanh = (logit / c).tanh();
                [c * tanh, 1.0 - tanh * tanh]
            }
        }
    }

    /// The elements of query head `head` of token `t` in `[T, H K]`.
    pub fn query(&self, t: usize, head: usize) -> Range<usize> {
        let at = (t * self.heads + head) * self.head_dim;
        at..at + self.head_dim
    }

    /// The elements of the keys and values that query head `head` reads, of token `t` in
    /// `[T, J K]`.
    pub fn key(&self, t: usize, head: usize) -> Range<usize> {
        let shared = self.heads / self.kv_heads;
        let at = (t * self.kv_heads + head / shared) * self.head_dim;
        at..at + self.head_dim
    }
}

/// `sum_i a_i b_i`.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// One head of one query over the keys and values that it sees: `lse = log sum_j e^l_j`, `out =
/// sum_j e^(l_j - lse) v_j`.
pub fn attend(mask: &Mask, q: &[f64], keys: &[&[f64]], values: &[&[f64]]) -> (Vec<f64>, f64) {
    let logits: Vec<f64> = keys.iter().map(|k| mask.logit(q, k)[0]).collect();
    let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|l| (l - most).exp()).sum();
    let lse = most + sum.ln();
    let mut out = vec![0.0; mask.head_dim];
    for (l, v) in logits.iter().zip(values) {
        for (out, v) in out.iter_mut().zip(*v) {
            *out += (l - lse).exp() * v;
        }
    }
    (out, lse)
}

/// The queries of packed sequences: for each, its token and the tokens that it sees.
pub fn queries(mask: &Mask, cu_seqlens: &[i32]) -> Vec<(usize, Range<usize>)> {
    let mut all = Vec::new();
    for bounds in cu_seqlens.windows(2) {
        let (begin, end) = (bounds[0] as usize, bounds[1] as usize);
        for i in 0..end - begin {
            let seen = mask.seen(i, end - begin);
            all.push((begin + i, begin + seen.start..begin + seen.end));
        }
    }
    all
}

/// `out` `[T, H K]` and `lse` `[T, H]` of q `[T, H K]`, k and v `[T, J K]`.
pub fn attention(mask: &Mask, [q, k, v]: [&[f64]; 3], cu_seqlens: &[i32]) -> (Vec<f64>, Vec<f64>) {
    let (mut out, mut lse) = (Vec::new(), Vec::new());
    for (t, seen) in queries(mask, cu_seqlens) {
        for head in 0..mask.heads {
            let keys: Vec<_> = seen.clone().map(|j| &k[mask.key(j, head)]).collect();
            let values: Vec<_> = seen.clone().map(|j| &v[mask.key(j, head)]).collect();
            let (row, log) = attend(mask, &q[mask.query(t, head)], &keys, &values);
            out.extend(row);
            lse.push(log);
        }
    }
    (out, lse)
}

/// dq, dk and dv from dout, out and lse.
///
/// With `p_ij = e^(l_ij - lse_i)` and `dl_ij = p_ij (dout_i . v_j - dout_i . out_i)`, times the
/// slope of the cap: `dq_i = scale sum_j dl_ij k_j`, `dk_j = scale sum_i dl_ij q_i`, `dv_j = sum_i
/// p_ij dout_i`.
pub fn attention_backward(
    mask: &Mask,
    [dout, q, k, v, out, lse]: [&[f64]; 6],
    cu_seqlens: &[i32],
) -> [Vec<f64>; 3] {
    let mut gradients = [vec![0.0; q.len()], vec![0.0; k.len()], vec![0.0; v.len()]];
    let [dq, dk, dv] = &mut gradients;
    for (t, seen) in queries(mask, cu_seqlens) {
        for head in 0..mask.heads {
            let query = mask.query(t, head);
            let row = &dout[query.clone()];
            let delta = dot(row, &out[query.clone()]);
            for j in seen.clone() {
                let key = mask.key(j, head);
                let [logit, slope] = mask.logit(&q[query.clone()], &k[key.clone()]);
                let p = (logit - lse[t * mask.heads + head]).exp();
                let dlogit = p * (dot(row, &v[key.clone()]) - delta) * slope * mask.scale;
                for i in 0..mask.head_dim {
                    dq[query.start + i] += dlogit * k[key.start + i];
                    dk[key.start + i] += dlogit * q[query.start + i];
                    dv[key.start + i] += p * row[i];
                }
            }
        }
    }
    gradients
}

/// A cache of keys and values, `[N, L, J K]` each.
#[derive(Clone, Debug)]
pub struct SlotCache {
    /// The keys.
    pub keys: Vec<f64>,
    /// The values.
    pub values: Vec<f64>,
    /// `L`.
    pub capacity: usize,
}

/// `out` `[T, H K]`, and the cache with k and v in it. Each sequence continues in slot
/// `sequences[t]` at place `positions[t]`, where `t` is its first token.
pub fn attention_cached(
    mask: &Mask,
    [q, k, v]: [&[f64]; 3],
    cu_seqlens: &[i32],
    [positions, sequences]: [&[i32]; 2],
    mut cache: SlotCache,
) -> (Vec<f64>, SlotCache) {
    let mut out = Vec::new();
    let width = mask.kv_heads * mask.head_dim;
    for bounds in cu_seqlens.windows(2) {
        for t in bounds[0] as usize..bounds[1] as usize {
            let first = bounds[0] as usize;
            let slot = sequences[first] as usize * cache.capacity;
            let place = positions[first] as usize + t - first;
            let (from, to) = (t * width, (slot + place) * width);
            cache.keys[to..to + width].copy_from_slice(&k[from..from + width]);
            cache.values[to..to + width].copy_from_slice(&v[from..from + width]);
            for head in 0..mask.heads {
                let seen = || {
                    mask.seen(place, place + 1)
                        .map(|j| mask.key(slot + j, head))
                };
                let keys: Vec<_> = seen().map(|at| &cache.keys[at]).collect();
                let values: Vec<_> = seen().map(|at| &cache.values[at]).collect();
                out.extend(attend(mask, &q[mask.query(t, head)], &keys, &values).0);
            }
        }
    }
    (out, cache)
}
