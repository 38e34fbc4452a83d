"""Makes small golden values of every op whose maths torch has, in f64, by torch itself.

usage: make_ops.py OUT

OUT: receives OUT/ops.safetensors. A tensor is called OP.CASE.NAME; gradients come from autograd.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)

OUT = Path(sys.argv[1])
made = {}


def keep(op, case, **tensors):
    for name, tensor in tensors.items():
        if tensor is not None:
            made[f"{op}.{case}.{name}"] = tensor.detach().contiguous().clone()


def numbers(*shape):
    return torch.randn(*shape, requires_grad=True)


def gradients(result, dy, *of):
    return torch.autograd.grad(result, of, dy)


def linear():
    for case, (t, n, m) in {"odd": (3, 5, 7), "one": (1, 1, 1), "wide": (5, 2, 33)}.items():
        x, weight, bias, dy = numbers(t, m), numbers(n, m), numbers(n), torch.randn(t, n)
        y = F.linear(x, weight, bias)
        dx, dweight, dbias = gradients(y, dy, x, weight, bias)
        keep("linear", case, x=x, weight=weight, bias=bias, y=y, plain=F.linear(x, weight), dy=dy)
        keep("linear", case, dx=dx, dweight=dweight, dbias=dbias)


def rms_norm():
    for case, (t, d, group) in {"rows": (3, 17, 17), "heads": (4, 12, 4), "one": (1, 3, 3)}.items():
        x, weight, dy = numbers(t, d), numbers(group), torch.randn(t, d)
        groups = x.reshape(t, d // group, group)
        y = F.rms_norm(groups, (group,), weight, eps=1e-5).reshape(t, d)
        dx, dweight = gradients(y, dy, x, weight)
        keep("rms_norm", case, x=x, weight=weight, dy=dy, y=y, dx=dx, dweight=dweight)


def rope():
    for case, (t, heads, width) in {"small": (5, 3, 6), "one": (1, 1, 2)}.items():
        x, dy = numbers(t, heads * width), torch.randn(t, heads * width)
        positions = torch.randint(0, 5000, (t,))
        inv_freq = (10000.0 ** (-torch.arange(width // 2) / (width // 2))).float().double()
        scaling = torch.tensor([1.25])
        angles = positions[:, None] * inv_freq[None, :]
        angles = torch.cat((angles, angles), dim=-1)
        cos, sin = angles.cos() * scaling, angles.sin() * scaling
        # [batch, heads, T, K]
        of_heads = x.reshape(1, t, heads, width).transpose(1, 2)
        y, _ = apply_rotary_pos_emb(of_heads, of_heads, cos[None], sin[None])
        y = y.transpose(1, 2).reshape(t, heads * width)
        (dx,) = gradients(y, dy, x)
        keep("rope", case, x=x, positions=positions, inv_freq=inv_freq, scaling=scaling, y=y, dy=dy, dx=dx)


def visible(length, causal, window):
    """Whether query i (row) sees key j."""
    i, j = torch.arange(length)[:, None], torch.arange(length)[None, :]
    seen = torch.ones(length, length, dtype=torch.bool)
    if causal:
        seen &= j <= i
    if window:
        seen &= i - j < window
    return seen


def attend(q, k, v, scale, softcap, seen):
    """out and lse of one sequence: q [H, T, K]; k, v [H, T, K]."""
    logits = scale * q @ k.transpose(1, 2)
    if softcap:
        logits = softcap * torch.tanh(logits / softcap)
    logits = logits.masked_fill(~seen, float("-inf"))
    out = torch.softmax(logits, dim=-1) @ v
    if not softcap:
        fused = F.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=seen, scale=scale)
        assert torch.allclose(out, fused[0], rtol=1e-12, atol=1e-12)
    return out, torch.logsumexp(logits, dim=-1)


def attention():
    cases = {
        "plain": ([3, 5], (1, 1, 4), True, 0, 0.0),
        "shared": ([1, 0, 7], (6, 2, 3), True, 0, 0.0),
        "window": ([9, 4], (2, 1, 5), True, 3, 0.0),
        "softcap": ([6], (2, 2, 4), True, 0, 1.5),
        "all": ([8, 2], (4, 2, 3), True, 4, 2.0),
        "both_ways": ([5, 2], (2, 1, 4), False, 0, 0.0),
    }
    for case, (lengths, (heads, kv_heads, width), causal, window, softcap) in cases.items():
        t, scale = sum(lengths), 1.7 / width**0.5
        q, k, v = numbers(t, heads * width), numbers(t, kv_heads * width), numbers(t, kv_heads * width)
        dout, outs, logs, start = torch.randn(t, heads * width), [], [], 0
        for length in lengths:
            part = slice(start, start + length)
            start += length
            if length == 0:
                continue
            split = lambda x, n: x[part].reshape(length, n, width).transpose(0, 1)
            share = lambda x: split(x, kv_heads).repeat_interleave(heads // kv_heads, dim=0)
            seen = visible(length, causal, window)
            out, lse = attend(split(q, heads), share(k), share(v), scale, softcap, seen)
            outs.append(out.transpose(0, 1).reshape(length, heads * width))
            logs.append(lse.transpose(0, 1))
        out, lse = torch.cat(outs), torch.cat(logs)
        dq, dk, dv = gradients(out, dout, q, k, v)
        shape = torch.tensor([heads, kv_heads, width, int(causal), window])
        keep("attention", case, shape=shape, lengths=torch.tensor(lengths), factors=torch.tensor([scale, softcap]))
        keep("attention", case, q=q, k=k, v=v, out=out, lse=lse, dout=dout, dq=dq, dk=dk, dv=dv)


def elementwise():
    a, b, dy = numbers(3, 7), numbers(3, 7), torch.randn(3, 7)
    keep("add", "0", a=a, b=b, alpha=torch.tensor([-0.3]), y=torch.add(a, b, alpha=-0.3))
    keep("mul", "0", a=a, b=b, y=torch.mul(a, b))
    keep("div", "0", a=a, b=b, y=torch.div(a, b))
    keep("scale", "0", a=a, alpha=torch.tensor([1 / 3]), y=torch.mul(a, 1 / 3))
    weight = numbers(7)
    y = a * weight
    dx, dweight = gradients(y, dy, a, weight)
    keep("scale_channels", "0", x=a, weight=weight, y=y, dy=dy, dx=dx, dweight=dweight)
    gate, up = numbers(3, 7), numbers(3, 7)
    with torch.no_grad():
        gate[0, :4] = torch.tensor([-120.0, 95.0, 0.0, -30.0])
    y = F.silu(gate) * up
    dgate, dup = gradients(y, dy, gate, up)
    keep("swiglu", "0", gate=gate, up=up, dy=dy, y=y, dgate=dgate, dup=dup)


def on_weights():
    """The ops of adapters that read their weight; a generator of its own, so that the others stay."""
    generator = torch.Generator().manual_seed(16)

    def own(*shape):
        return torch.randn(*shape, generator=generator, requires_grad=True)

    for case, (ta, tb) in {"plain": (0, 0), "left": (1, 0), "right": (0, 1), "both": (1, 1)}.items():
        a = own(*((5, 3) if ta else (3, 5)))
        b = own(*((4, 5) if tb else (5, 4)))
        dy = torch.randn(3, 4, generator=generator)
        y = (a.T if ta else a) @ (b.T if tb else b)
        da, db = gradients(y, dy, a, b)
        flags = torch.tensor([ta, tb])
        keep("matmul", case, a=a, b=b, flags=flags, y=y, dy=dy, da=da, db=db)
    weight, a, b = own(7, 11), own(3, 11), own(7, 3)
    norms = torch.linalg.norm(weight + 0.75 * b @ a, dim=1)
    keep("adapted_row_norms", "0", weight=weight, a=a, b=b, alpha=torch.tensor([0.75]), y=norms)
    x, factors, dy = own(6, 7), own(7), torch.randn(6, 7, generator=generator)
    y = x * factors
    dx, dfactors = gradients(y, dy, x, factors)
    keep("scale_by", "0", x=x, factors=factors, y=y, dy=dy, dx=dx, dfactors=dfactors)


def embedding():
    tokens = torch.tensor([4, 0, 4, 2, 4, 0])
    weight, dy = numbers(5, 3), torch.randn(6, 3)
    y = F.embedding(tokens, weight)
    (dweight,) = gradients(y, dy, weight)
    keep("embedding", "0", tokens=tokens, weight=weight, dy=dy, y=y, dweight=dweight)


def cross_entropy():
    for case, factor in {"small": 1.0, "large": 60.0}.items():
        logits = (factor * torch.randn(7, 9)).requires_grad_()
        labels = torch.tensor([0, 8, -100, 3, 5, -100, 3])
        with torch.no_grad():
            logits[3, 3] = logits[3].max() + 1
            logits[6, 3] = logits[6, 7] = logits[6].max() + 1
        loss = F.cross_entropy(logits, labels, ignore_index=-100, reduction="none")
        count = int((labels != -100).sum())
        mean = F.cross_entropy(logits, labels, ignore_index=-100)
        (dlogits,) = torch.autograd.grad(mean, logits)
        trained = labels != -100
        correct = ((logits.argmax(dim=-1) == labels) & trained).long()
        lse = torch.where(trained, torch.logsumexp(logits, dim=-1), 0.0)
        keep("cross_entropy", case, logits=logits, labels=labels, loss=loss, lse=lse, correct=correct)
        keep("cross_entropy", case, factor=torch.tensor([1 / count]), dlogits=dlogits)


def adamw():
    cases = {"decay": (2e-3, 0.9, 0.999, 1e-8, 0.01), "far": (0.1, 0.3, 0.95, 1e-3, 0.0)}
    for case, (lr, beta1, beta2, eps, decay) in cases.items():
        param = torch.nn.Parameter(torch.randn(9))
        optimizer = torch.optim.AdamW([param], lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=decay, foreach=False)
        gradients = torch.randn(4, 9)
        states = [(param.detach().clone(), torch.zeros(9), torch.zeros(9))]
        for gradient in gradients:
            param.grad = gradient.clone()
            optimizer.step()
            state = optimizer.state[param]
            states.append((param.detach().clone(), state["exp_avg"].clone(), state["exp_avg_sq"].clone()))
        scalars = torch.tensor([lr, beta1, beta2, eps, decay])
        params, m, v = (torch.stack(part) for part in zip(*states))
        keep("adamw", case, scalars=scalars, gradients=gradients, param=params, m=m, v=v)


def flat():
    x = torch.randn(257)
    keep("sum_squares", "0", x=x, y=torch.sum(x * x).reshape(1))
    for case, places in {"none": [], "last": [256], "two": [200, 31]}.items():
        y = x.clone()
        for place in places:
            y[place] = float("nan") if place % 2 else float("-inf")
        at = torch.nonzero(~torch.isfinite(y)).flatten()
        keep("first_not_finite", case, x=y, y=at[0].reshape(1) if len(at) else torch.tensor([-1]))
    ties = [1 + 1 / 256, 1 + 3 / 256, 1 + 1 / 2048, -1 - 3 / 2048, 65519.0, 65520.0, 3.4e38, 1e-41, 3e-8, 0.0]
    x = torch.cat((torch.randn(100), 1e-6 * torch.randn(50), torch.tensor(ties))).float()
    for case, dtype in {"bf16": torch.bfloat16, "f16": torch.float16}.items():
        keep("cast", case, x=x.double(), y=x.to(dtype).double())


def primitives():
    """The parts of decompositions; `contract` is the gradient of `expand`."""
    x = torch.cat((10 * torch.randn(3, 6), torch.tensor([[0.0, 1.0, -80.0, 60.0, 1e-3, -1e-3]])))
    keep("exp", "0", x=x, y=torch.exp(x))
    keep("sigmoid", "0", x=x, y=torch.sigmoid(x))
    positive = x.abs() + 0.1
    keep("log", "0", x=positive, y=torch.log(positive))
    alpha, beta = 1 / 3, 1e-5
    keep("rsqrt", "0", x=positive, y=torch.rsqrt(alpha * positive + beta), factors=torch.tensor([alpha, beta]))
    for case, (t, columns, repeat, tile) in {"rows": (3, 1, 5, 1), "heads": (4, 3, 2, 1), "both": (2, 3, 4, 2)}.items():
        x, dy = numbers(t, columns), torch.randn(t, columns * repeat * tile)
        y = x.repeat_interleave(repeat, dim=1).repeat(1, tile)
        (dx,) = gradients(y, dy, x)
        keep("expand", case, x=x, y=y, dy=dy, dx=dx, copies=torch.tensor([repeat, tile]))
    weight = torch.randn(5)
    keep("broadcast_param", "0", weight=weight, y=weight.repeat(3, 2))
    x, index = torch.randn(5, 7), torch.tensor([0, 6, -100, 3, 3])
    x[3, 5] = x[3, 3] = x[3].max() + 1
    x[4, 1] = x[4].max() + 1
    known = index != -100
    picked = torch.where(known, x.gather(1, index.clamp(min=0)[:, None])[:, 0], 0.0)
    hot = F.one_hot(index.clamp(min=0), 7) * known[:, None]
    keep("row_max", "0", x=x, index=index, y=x.amax(dim=1), is_argmax=(x.argmax(dim=1) == index).long())
    keep("pick", "0", x=x, index=index, y=picked, one_hot=hot)
    factor = 1 / 37
    keep("scale_trained", "0", x=x, labels=index, factor=torch.tensor([factor]), y=factor * x * known[:, None])
    positions, inv_freq, amplitude = torch.tensor([0, 3, 4711]), torch.rand(4).float().double(), torch.randn(4)
    angles = positions[:, None] * inv_freq[None, :]
    keep("sinusoids", "0", positions=positions, inv_freq=inv_freq, amplitude=amplitude)
    keep("sinusoids", "0", cos=amplitude * torch.cos(angles), sin=amplitude * torch.sin(angles))
    x = torch.randn(3, 10)
    heads = x.reshape(3, 2, 5)
    swapped = torch.cat((heads[..., 2:4], heads[..., :2], heads[..., 4:]), dim=-1).reshape(3, 10)
    keep("swap_halves", "0", x=x, y=swapped)


def sgd():
    cases = {"nesterov": (0.3, 0.7, True, 0.1), "momentum": (0.05, 0.9, False, 0.01), "plain": (0.1, 0.0, False, 0.2)}
    for case, (lr, momentum, nesterov, decay) in cases.items():
        param = torch.nn.Parameter(torch.randn(9))
        options = dict(lr=lr, momentum=momentum, nesterov=nesterov, weight_decay=decay, foreach=False)
        optimizer = torch.optim.SGD([param], **options)
        gradients = torch.randn(4, 9)
        states = [(param.detach().clone(), torch.zeros(9))]
        for gradient in gradients:
            param.grad = gradient.clone()
            optimizer.step()
            buffer = optimizer.state[param].get("momentum_buffer")
            # Without momentum torch keeps no buffer; the op's would be the decayed gradient.
            buffer = gradient + decay * states[-1][0] if buffer is None else buffer
            states.append((param.detach().clone(), buffer.clone()))
        scalars = torch.tensor([lr, momentum, float(nesterov), decay])
        params, buffers = (torch.stack(part) for part in zip(*states))
        keep("sgd", case, scalars=scalars, gradients=gradients, param=params, buffer=buffers)


def hyperbolic():
    """Of numbers around 0, where a difference of exponentials cancels, and where the result is 1."""
    near = torch.tensor([0.0, 1e-12, -1e-9, 1e-6, -1e-3, 0.01])
    far = torch.cat((torch.linspace(-6.0, 6.0, 49), torch.tensor([-800.0, -25.0, 15.0, 19.5, 710.0])))
    for case, x in {"near": near, "far": far}.items():
        keep("tanh", case, x=x, y=torch.tanh(x))


def layers():
    """Layer norms and GELU; a generator of their own, so that the others stay."""
    generator = torch.Generator().manual_seed(17)

    def own(*shape):
        return torch.randn(*shape, generator=generator, requires_grad=True)

    for case, (t, d) in {"rows": (3, 17), "one": (1, 3)}.items():
        x, weight, bias = own(t, d), own(d), own(d)
        dy = torch.randn(t, d, generator=generator)
        y = F.layer_norm(x, (d,), weight, bias, eps=1e-5)
        dx, dweight = gradients(y, dy, x, weight)
        plain = F.layer_norm(x, (d,), weight, None, eps=1e-5)
        keep("layer_norm", case, x=x, weight=weight, bias=bias, dy=dy)
        keep("layer_norm", case, y=y, plain=plain, dx=dx, dweight=dweight)
    for case in ("none", "tanh"):
        x, dy = own(3, 7), torch.randn(3, 7, generator=generator)
        with torch.no_grad():
            x[0, :4] = torch.tensor([-120.0, 95.0, 0.0, -3.0])
        y = F.gelu(x, approximate=case)
        (dx,) = gradients(y, dy, x)
        keep("gelu", case, x=x, dy=dy, y=y, dx=dx)
    x = own(3, 7)
    keep("erf", "0", x=x, y=torch.erf(x))


torch.manual_seed(15)
# New parts come last: the numbers drawn for the others stay.
DRAWN = (linear, rms_norm, rope, attention, elementwise, embedding, cross_entropy, adamw, flat, primitives, sgd, on_weights, hyperbolic, layers)
for part in DRAWN:
    part()
OUT.mkdir(parents=True, exist_ok=True)
save_file(made, OUT / "ops.safetensors")
