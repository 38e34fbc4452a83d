//! Attention over the keys of one sequence, and its gradients, as products of all heads.
//!
//! Queries are taken in blocks, so that the logits of a block have a bounded number of elements.
//! Legend: `H` query heads, `J` key heads, `K` head width, `n` queries, `m` keys.

use espalier_interface::{DType, Result};

use crate::{Compare, Reduce, Tensors, Unary};

/// Which keys a query sees, and what becomes of a logit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionMask {
    /// Factor of the logits.
    pub scale: f64,
    /// Whether later keys are hidden.
    pub future: Future,
    /// Most keys back that a query sees, its own included.
    pub window: Option<usize>,
    /// `c` of `c tanh(l / c)`.
    pub softcap: Option<f64>,
    /// The key of the first query; the others follow.
    pub first: usize,
}

/// Whether a query sees the keys after its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Future {
    /// It does not.
    Hidden,
    /// It does.
    Visible,
}

/// A block of queries and the keys that one of them sees.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// First query.
    pub begin: usize,
    /// Number of queries.
    pub len: usize,
    /// First key.
    pub keys_begin: usize,
    /// Number of keys.
    pub keys: usize,
}

/// The blocks of `n` queries of `heads` heads over `m` keys, of at most `logits` logits each.
pub fn blocks(mask: &AttentionMask, logits: usize, heads: usize, [n, m]: [usize; 2]) -> Vec<Block> {
    let most = (logits / (heads * m).max(1)).clamp(1, n.max(1));
    let block = |begin: usize| {
        let len = most.min(n - begin);
        let own = mask.first + begin;
        let keys_begin = mask
            .window
            .map_or(0, |window| (own + 1).saturating_sub(window));
        let keys_end = match mask.future {
            Future::Hidden => own + len,
            Future::Visible => m,
        };
        Block {
            begin,
            len,
            keys_begin,
            keys: keys_end - keys_begin,
        }
    };
    (0..n).step_by(most).map(block).collect()
}

/// The shared extents of a call's operands.
struct Extents {
    /// `[J, H / J, K]`.
    heads: [usize; 3],
    /// `[n, m]`.
    tokens: [usize; 2],
}

impl Extents {
    fn of<L: Tensors>(library: &L, q: &L::Tensor, k: &L::Tensor) -> Self {
        let (q, k) = (library.shape(q), library.shape(k));
        Extents {
            heads: [k[0], q[0] / k[0], q[2]],
            tokens: [q[1], k[1]],
        }
    }

    /// Queries `[H, n, K]` of a block as `[J, H / J * len, K]`; also of what is one number wide.
    fn queries<L: Tensors>(&self, library: &L, x: &L::Tensor, block: Block) -> Result<L::Tensor> {
        let ([kv, shared, _], width) = (self.heads, library.shape(x)[2]);
        let x = library.narrow(x, 1, block.begin, block.len)?;
        library.reshape(&x, &[kv, shared * block.len, width])
    }

    /// `[J, H / J * len, C]` as `[H, len, C]`.
    fn rows<L: Tensors>(&self, library: &L, x: &L::Tensor, block: Block) -> Result<L::Tensor> {
        let ([kv, shared, _], width) = (self.heads, library.shape(x)[2]);
        library.reshape(x, &[kv * shared, block.len, width])
    }

    /// The keys of a block.
    fn keys<L: Tensors>(&self, library: &L, x: &L::Tensor, block: Block) -> Result<L::Tensor> {
        library.narrow(x, 1, block.keys_begin, block.keys)
    }

    /// Logits `[J, H / J * len, keys]` of a block, `-inf` where a key is hidden, and the slopes of
    /// their cap.
    fn logits<L: Tensors>(
        &self,
        library: &L,
        mask: &AttentionMask,
        block: Block,
        [q, k]: [&L::Tensor; 2],
    ) -> Result<(L::Tensor, Option<L::Tensor>)> {
        let logits = library.matmul(q, &library.transpose(k, 1, 2)?)?;
        let (logits, slope) = match mask.softcap {
            None => (library.scaled(&logits, mask.scale)?, None),
            Some(cap) => {
                let scaled = library.scaled(&logits, mask.scale)?;
                let tanh = library.unary(Unary::Tanh, &library.scaled(&scaled, 1.0 / cap)?)?;
                let slope = library.affine(&library.unary(Unary::Square, &tanh)?, -1.0, 1.0)?;
                (library.scaled(&tanh, cap)?, Some(slope))
            }
        };
        let Some(hidden) = hidden(library, mask, block)? else {
            return Ok((logits, slope));
        };
        let [kv, shared, _] = self.heads;
        let apart = [kv * shared, block.len, block.keys];
        let logits = library.add(&library.reshape(&logits, &apart)?, &hidden)?;
        let together = [kv, shared * block.len, block.keys];
        Ok((library.reshape(&logits, &together)?, slope))
    }
}

/// `-inf` where a key is hidden from a query, else 0, `[len, keys]`; nothing where all are seen.
fn hidden<L: Tensors>(
    library: &L,
    mask: &AttentionMask,
    block: Block,
) -> Result<Option<L::Tensor>> {
    let own = mask.first + block.begin;
    let sees_later = mask.future == Future::Visible || block.len == 1;
    let sees_all = mask
        .window
        .is_none_or(|window| own + block.len - block.keys_begin <= window);
    if sees_later && sees_all {
        return Ok(None);
    }
    let queries = library.reshape(&library.range(own, own + block.len)?, &[block.len, 1])?;
    let keys = library.range(block.keys_begin, block.keys_begin + block.keys)?;
    let keys = library.reshape(&keys, &[1, block.keys])?;
    let shape = [block.len, block.keys];
    let none = library.full(f64::NEG_INFINITY, &shape, DType::F32)?;
    let mut sum = library.full(0.0, &shape, DType::F32)?;
    if mask.future == Future::Hidden {
        let later = library.compare(Compare::Less, &queries, &keys)?;
        sum = library.choose(&later, &none, &sum)?;
    }
    if let Some(window) = mask.window {
        let last = library.affine(&keys, 1.0, window as f64)?;
        let before = library.compare(Compare::LessOrEqual, &last, &queries)?;
        sum = library.choose(&before, &none, &sum)?;
    }
    Ok(Some(sum))
}

/// [`Tensors::attention`] of other methods.
///
/// # Errors
/// Of the library.
pub fn forward<L: Tensors>(
    library: &L,
    mask: &AttentionMask,
    [q, k, v]: [&L::Tensor; 3],
) -> Result<[L::Tensor; 2]> {
    let extents = Extents::of(library, q, k);
    let [kv, shared, _] = extents.heads;
    let (mut out, mut lse) = (Vec::new(), Vec::new());
    for block in blocks(mask, library.logits_at_once(), kv * shared, extents.tokens) {
        let q = extents.queries(library, q, block)?;
        let k = extents.keys(library, k, block)?;
        let (logits, _) = extents.logits(library, mask, block, [&q, &k])?;
        let most = library.reduce(Reduce::Max, &logits, 2)?;
        let weights = library.unary(Unary::Exp, &library.sub(&logits, &most)?)?;
        let sum = library.sum(&weights, 2)?;
        let v = extents.keys(library, v, block)?;
        let product = library.div(&library.matmul(&weights, &v)?, &sum)?;
        out.push(extents.rows(library, &product, block)?);
        let log = library.add(&library.unary(Unary::Log, &sum)?, &most)?;
        lse.push(extents.rows(library, &log, block)?);
    }
    Ok([library.concat(&out, 1)?, library.concat(&lse, 1)?])
}

/// [`Tensors::attention_backward`] of other methods.
///
/// # Errors
/// Of the library.
pub fn backward<L: Tensors>(
    library: &L,
    mask: &AttentionMask,
    [dout, q, k, v, out, lse]: [&L::Tensor; 6],
) -> Result<[L::Tensor; 3]> {
    let extents = Extents::of(library, q, k);
    let ([kv, shared, _], [_, m]) = (extents.heads, extents.tokens);
    let (mut dq, mut dk, mut dv) = (Vec::new(), None, None);
    for block in blocks(mask, library.logits_at_once(), kv * shared, extents.tokens) {
        let [dout, q, out, lse] = [dout, q, out, lse].map(|x| extents.queries(library, x, block));
        let (dout, q, out, lse) = (dout?, q?, out?, lse?);
        let (k, v) = (
            extents.keys(library, k, block)?,
            extents.keys(library, v, block)?,
        );
        let (logits, slope) = extents.logits(library, mask, block, [&q, &k])?;
        let weights = library.unary(Unary::Exp, &library.sub(&logits, &lse)?)?;
        drop(logits);
        let delta = library.sum(&library.mul(&dout, &out)?, 2)?;
        let dweights = library.matmul(&dout, &library.transpose(&v, 1, 2)?)?;
        let mut dlogits = library.mul(&weights, &library.sub(&dweights, &delta)?)?;
        drop(dweights);
        if let Some(slope) = slope {
            dlogits = library.mul(&dlogits, &slope)?;
        }
        let dlogits = library.scaled(&dlogits, mask.scale)?;
        dq.push(extents.rows(library, &library.matmul(&dlogits, &k)?, block)?);
        let of_k = library.matmul(&library.transpose(&dlogits, 1, 2)?, &q)?;
        dk = Some(added(library, dk, of_k, block, m)?);
        let of_v = library.matmul(&library.transpose(&weights, 1, 2)?, &dout)?;
        dv = Some(added(library, dv, of_v, block, m)?);
    }
    let zeros = || library.full(0.0, &library.shape(k), DType::F32);
    let or_zeros = |sum: Option<L::Tensor>| sum.map_or_else(zeros, Ok);
    Ok([library.concat(&dq, 1)?, or_zeros(dk)?, or_zeros(dv)?])
}

/// `sum`, `[J, m, K]`, with what a block adds to the keys that it sees.
fn added<L: Tensors>(
    library: &L,
    sum: Option<L::Tensor>,
    part: L::Tensor,
    block: Block,
    m: usize,
) -> Result<L::Tensor> {
    let shape = library.shape(&part);
    let mut parts = Vec::with_capacity(3);
    let after = m - block.keys_begin - block.keys;
    let zeros = |keys: usize| library.full(0.0, &[shape[0], keys, shape[2]], DType::F32);
    if block.keys_begin > 0 {
        parts.push(zeros(block.keys_begin)?);
    }
    parts.push(part);
    if after > 0 {
        parts.push(zeros(after)?);
    }
    let whole = match &parts[..] {
        [part] => part.clone(),
        parts => library.concat(parts, 1)?,
    };
    match sum {
        None => Ok(whole),
        Some(sum) => library.add(&sum, &whole),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_all_queries_and_what_they_see() {
        let mask = AttentionMask {
            scale: 1.0,
            future: Future::Hidden,
            window: Some(100),
            softcap: None,
            first: 37,
        };
        let found = blocks(&mask, 1 << 20, 8, [1000, 1037]);
        assert!(found.len() > 1);
        let mut next = 0;
        for block in &found {
            assert_eq!(block.begin, next);
            next += block.len;
            assert!(8 * block.len * 1037 <= 1 << 20);
            assert_eq!(block.keys_begin, (37 + block.begin + 1).saturating_sub(100));
            assert_eq!(block.keys_begin + block.keys, 37 + block.begin + block.len);
        }
        assert_eq!(next, 1000);
        assert!(blocks(&mask, 1 << 20, 8, [0, 0]).is_empty());
    }
}
