//! Attention by libtorch's blocked kernels for processors, where the mask is theirs.
//!
//! Legend: `H` query heads, `J` key heads, `K` head width, `n` tokens. A key head and the query
//! heads that share it are a batch entry of libtorch's, in which the keys are repeated with a
//! stride of 0: no copies.
//!
//! Operands are f32. With bf16 these kernels approximate `exp`, and the log of the sum is off by
//! 6e-5.

use espalier_interface::Result;
use espalier_tensor_ops::attention::{self, AttentionMask, Future};
use tch::Tensor;

use crate::error::checked;
use crate::torch::{Shared, Torch};

/// Whether the kernels have the mask: each query sees all keys up to its own.
fn is_causal(mask: &AttentionMask, q: &Tensor, k: &Tensor) -> bool {
    let (queries, keys) = (q.size()[1], k.size()[1]);
    mask.future == Future::Hidden
        && mask.first == 0
        && mask.softcap.is_none()
        && mask.window.is_none_or(|window| window as i64 >= keys)
        && queries == keys
        && queries > 0
}

/// `[H, n, C]` as `[J, H / J, n, C]`.
fn grouped(x: &Tensor, key_heads: i64) -> Result<Tensor> {
    let size = x.size();
    checked(x.f_reshape([key_heads, size[0] / key_heads, size[1], size[2]]))
}

/// `[J, n, K]` as `[J, H / J, n, K]`, with a stride of 0.
fn repeated(x: &Tensor, shared: i64) -> Result<Tensor> {
    let size = x.size();
    let apart = checked(x.f_unsqueeze(1))?;
    checked(apart.f_expand([size[0], shared, size[1], size[2]], false))
}

/// `[J, H / J, n, C]` as `[H, n, C]`.
fn heads(x: &Tensor) -> Result<Shared> {
    let size = x.size();
    checked(x.f_reshape([size[0] * size[1], size[2], size[3]])).map(Shared::from)
}

/// [`Tensors::attention`].
pub fn forward(
    library: &Torch,
    mask: &AttentionMask,
    [q, k, v]: [&Shared; 3],
) -> Result<[Shared; 2]> {
    if !is_causal(mask, q, k) {
        return attention::forward(library, mask, [q, k, v]);
    }
    let key_heads = k.size()[0];
    let shared = q.size()[0] / key_heads;
    let (q, k, v) = (
        grouped(q, key_heads)?,
        repeated(k, shared)?,
        repeated(v, shared)?,
    );
    let none: Option<&Tensor> = None;
    let (out, lse) = checked(
        Tensor::f_internal_scaled_dot_product_flash_attention_for_cpu(
            &q, &k, &v, 0.0, true, none, mask.scale,
        ),
    )?;
    let lse = checked(lse.f_unsqueeze(3))?;
    Ok([heads(&out)?, heads(&lse)?])
}

/// [`Tensors::attention_backward`].
pub fn backward(
    library: &Torch,
    mask: &AttentionMask,
    operands: [&Shared; 6],
) -> Result<[Shared; 3]> {
    let [dout, q, k, v, out, lse] = operands;
    if !is_causal(mask, q, k) {
        return attention::backward(library, mask, operands);
    }
    let key_heads = k.size()[0];
    let shared = q.size()[0] / key_heads;
    let lse = checked(grouped(lse, key_heads)?.f_squeeze_dim(3))?;
    let none: Option<&Tensor> = None;
    let (dq, dk, dv) = checked(
        Tensor::f_internal_scaled_dot_product_flash_attention_for_cpu_backward(
            &grouped(dout, key_heads)?,
            &grouped(q, key_heads)?,
            &repeated(k, shared)?,
            &repeated(v, shared)?,
            &grouped(out, key_heads)?,
            &lse,
            0.0,
            true,
            none,
            mask.scale,
        ),
    )?;
    // Each query head's part of a key head's gradient, summed in f32.
    let of_keys = |x: Tensor| -> Result<Shared> {
        let sum = if shared == 1 {
            x.f_squeeze_dim(1)
        } else {
            x.f_sum_dim_intlist(&[1i64][..], false, tch::Kind::Float)
        };
        checked(sum).map(Shared::from)
    };
    Ok([heads(&dq)?, of_keys(dk)?, of_keys(dv)?])
}
