//! The ops of a step of QLoRA on an 8B Llama -> their requests, with the sizes of a launch.
//!
//! T tokens, D model width, E width of keys and values, F feed-forward width, V vocab, R lora rank.

use espalier_interface::format::Format;
use espalier_interface::graph::{Attributes, Dim};
use espalier_interface::{DType, KernelRequest, Operand, ParamOperand, Result, WeightLayout};
use espalier_nf4::NF4;
use espalier_tests_gpu::format;
use serde_json::json;

const BF16: DType = DType::BF16;
const F32: DType = DType::F32;

/// Scalars of a step of AdamW: rate, two decays, eps, decay of weights, number, factor.
const ADAMW: [f64; 7] = [2e-4, 0.9, 0.999, 1e-8, 0.0, 10.0, 1.0];

/// An op with the sizes of its launches.
pub struct Shaped {
    /// Its name, with what is special about it.
    pub name: String,
    /// Its request.
    pub request: KernelRequest,
    /// Tokens of a launch, in sequences of `sequence`.
    pub tokens: u64,
    /// Tokens of a sequence.
    pub sequence: u64,
    /// Scalars of a launch.
    pub scalars: Vec<f64>,
}

/// The sizes of a Llama, and of a step.
#[derive(Clone, Copy)]
pub struct Sizes {
    width: u64,
    kv_width: u64,
    feed_forward: u64,
    vocab: u64,
    head_dim: u64,
    lora_rank: u64,
    tokens: u64,
    sequence: u64,
    /// Tokens of a chunk of the head.
    chunk: u64,
}

impl Sizes {
    /// Llama 3 8B, two rows of 2048 tokens; chunks as the backend's 256 MiB of logits make them.
    pub const LLAMA_8B: Sizes = Sizes {
        width: 4096,
        kv_width: 1024,
        feed_forward: 14_336,
        vocab: 128_256,
        head_dim: 128,
        lora_rank: 16,
        tokens: 4096,
        sequence: 2048,
        chunk: 1024,
    };
    /// What a model of a card computes in a moment.
    pub const SMALL: Sizes = Sizes {
        width: 128,
        kv_width: 64,
        feed_forward: 192,
        vocab: 256,
        head_dim: 64,
        lora_rank: 8,
        tokens: 32,
        sequence: 16,
        chunk: 16,
    };

    /// All ops.
    ///
    /// # Errors
    /// Where the quantizer refuses a shape.
    pub fn ops(&self) -> Result<Vec<Shaped>> {
        let mut ops = Vec::new();
        self.products(&mut ops)?;
        self.adapters(&mut ops)?;
        self.attention(&mut ops);
        self.by_token(&mut ops);
        self.flat(&mut ops);
        Ok(ops)
    }

    /// The weights of a layer by name, `[N, M]`.
    fn weights(&self) -> [(&'static str, [u64; 2]); 4] {
        [
            ("q, o", [self.width, self.width]),
            ("k, v", [self.kv_width, self.width]),
            ("gate, up", [self.feed_forward, self.width]),
            ("down", [self.width, self.feed_forward]),
        ]
    }

    fn shaped(&self, name: String, request: KernelRequest) -> Shaped {
        self.launched(name, request, self.tokens)
    }

    fn launched(&self, name: String, request: KernelRequest, tokens: u64) -> Shaped {
        let sequences = tokens.div_ceil(self.sequence);
        Shaped {
            name,
            request: request.limits(tokens, sequences),
            tokens,
            sequence: self.sequence.min(tokens),
            scalars: Vec::new(),
        }
    }

    /// Products with frozen weights, dense and packed, and their inputs' gradients.
    fn products(&self, ops: &mut Vec<Shaped>) -> Result<()> {
        let mut put = |of: &str, [n, m]: [u64; 2], layout: &WeightLayout, tokens: u64| {
            let weight = param(&[n, m], layout.clone());
            let kind = if matches!(layout, WeightLayout::Dense(_)) {
                "bf16"
            } else {
                "nf4"
            };
            for (op, [from, to]) in [("linear", [m, n]), ("linear_input_backward", [n, m])] {
                let request = KernelRequest::new(op)
                    .inputs(vec![rows(from)])
                    .params(vec![weight.clone()])
                    .outputs(vec![rows(to)]);
                let name = format!("{op} {of} [{n}, {m}] {kind}");
                ops.push(self.launched(name, request, tokens));
            }
        };
        let dense = WeightLayout::Dense(BF16);
        for (of, shape) in self.weights() {
            put(of, shape, &dense, self.tokens);
            put(of, shape, &packed(shape)?, self.tokens);
        }
        put("head", [self.vocab, self.width], &dense, self.chunk);
        for (of, shape) in self.weights() {
            ops.push(values(format!("{of} {shape:?} nf4"), shape, nf4(shape)?));
        }
        Ok(())
    }

    /// The products of adapters on top of the weights', and their gradients.
    fn adapters(&self, ops: &mut Vec<Shaped>) -> Result<()> {
        let r = self.lora_rank;
        let alpha = Attributes::new().with("alpha", 2.0);
        let f32 = WeightLayout::Dense(F32);
        for (of, [n, m]) in self.weights() {
            let (down, up) = (param(&[r, m], f32.clone()), param(&[n, r], f32.clone()));
            let weight = param(&[n, m], packed([n, m])?);
            let linear = |version| KernelRequest::new("linear").version(version);
            let input = |version| KernelRequest::new("linear_input_backward").version(version);
            let requests = [
                linear(1)
                    .inputs(vec![rows(m)])
                    .params(vec![down.clone()])
                    .outputs(vec![rows(r)]),
                linear(2)
                    .inputs(vec![rows(r), rows(n)])
                    .params(vec![up.clone()])
                    .outputs(vec![rows(n)])
                    .attributes(alpha.clone()),
                linear(4)
                    .inputs(vec![rows(m), rows(r)])
                    .params(vec![weight.clone(), up.clone()])
                    .outputs(vec![rows(n)])
                    .attributes(alpha.clone()),
                input(3)
                    .inputs(vec![rows(n), rows(r)])
                    .params(vec![up])
                    .outputs(vec![rows(r), fixed(&[n, r], F32)])
                    .attributes(alpha.clone()),
                input(3)
                    .inputs(vec![rows(r), rows(m), rows(m)])
                    .params(vec![down.clone()])
                    .outputs(vec![rows(m), fixed(&[r, m], F32)]),
                input(4)
                    .inputs(vec![rows(n), rows(r), rows(m), rows(m)])
                    .params(vec![weight, down])
                    .outputs(vec![rows(m), fixed(&[r, m], F32)]),
            ];
            let parts = ["down", "up", "adapted", "up", "down", "adapted"];
            for (request, part) in requests.into_iter().zip(parts) {
                let (op, version) = (&request.op, request.version);
                let name = format!("{op}.{version} {part} of {of} [{n}, {m}]");
                ops.push(self.shaped(name, request));
            }
        }
        Ok(())
    }

    fn attention(&self, ops: &mut Vec<Shaped>) {
        let heads = self.width / self.head_dim;
        let attributes = Attributes::new()
            .with("heads", heads)
            .with("kv_heads", self.kv_width / self.head_dim)
            .with("head_dim", self.head_dim)
            .with("scale", (self.head_dim as f64).powf(-0.5))
            .with("causal", true);
        let (q, k) = (rows(self.width), rows(self.kv_width));
        let lse = Operand::per_token(heads, F32);
        let bounds = Operand {
            shape: vec![Dim::Boundaries],
            dtype: DType::I32,
        };
        let forward = KernelRequest::new("attention")
            .inputs(vec![q.clone(), k.clone(), k.clone(), bounds.clone()])
            .outputs(vec![q.clone(), lse.clone()])
            .attributes(attributes.clone());
        let of = [&q, &q, &k, &k, &q, &lse, &bounds];
        let backward = KernelRequest::new("attention_backward")
            .inputs(of.map(Clone::clone).to_vec())
            .outputs(vec![q, k.clone(), k])
            .attributes(attributes);
        for request in [forward, backward] {
            let name = format!("{}, {heads} heads of {}", request.op, self.head_dim);
            ops.push(self.shaped(name, request));
        }
    }

    /// Norms, rotations, gates, tables and losses.
    fn by_token(&self, ops: &mut Vec<Shaped>) {
        let (d, f, v) = (rows(self.width), rows(self.feed_forward), rows(self.vocab));
        let integers = per_token(DType::I32);
        let eps = Attributes::new().with("eps", 1e-5);
        let norm = param(&[self.width], WeightLayout::Dense(BF16));
        let new = KernelRequest::new;
        let half = self.head_dim / 2;
        let frequencies = (0..half).map(|i| 500_000f64.powf(-(i as f64) / half as f64));
        let turned = Attributes::new()
            .with("head_dim", self.head_dim)
            .with("inv_freq", json!(frequencies.collect::<Vec<f64>>()))
            .with("scaling", 1.0);
        let pair = vec![rows(self.width), rows(self.kv_width)];
        let rotated = [pair.clone(), vec![integers.clone()]].concat();
        let rotation = |op: &str| {
            let request = new(op).version(2).inputs(rotated.clone());
            request.outputs(pair.clone()).attributes(turned.clone())
        };
        let normed = |version, inputs| {
            let request = new("rms_norm_backward").version(version).inputs(inputs);
            let request = request.params(vec![norm.clone()]).outputs(vec![d.clone()]);
            request.attributes(eps.clone())
        };
        let whole = [
            new("embedding")
                .inputs(vec![integers.clone()])
                .params(vec![param(
                    &[self.vocab, self.width],
                    WeightLayout::Dense(BF16),
                )])
                .outputs(vec![d.clone()])
                .attributes(Attributes::new().with("transposed", false)),
            new("rms_norm")
                .inputs(vec![d.clone()])
                .params(vec![norm.clone()])
                .outputs(vec![d.clone()])
                .attributes(eps.clone()),
            normed(1, vec![d.clone(); 2]),
            normed(2, vec![d.clone(); 3]),
            rotation("rope"),
            rotation("rope_backward"),
            new("swiglu")
                .inputs(vec![f.clone(); 2])
                .outputs(vec![f.clone()]),
            new("swiglu_backward")
                .inputs(vec![f.clone(); 3])
                .outputs(vec![f; 2]),
            new("add").inputs(vec![d.clone(); 2]).outputs(vec![d]),
        ];
        for request in whole {
            let name = format!("{}.{}", request.op, request.version);
            ops.push(self.shaped(name, request));
        }
        let float = per_token(F32);
        let losses = new("cross_entropy")
            .inputs(vec![v.clone(), integers.clone()])
            .outputs(vec![float.clone(), float.clone(), integers.clone()]);
        let gradients = new("cross_entropy_backward")
            .inputs(vec![v.clone(), integers, float])
            .outputs(vec![v]);
        for (request, scalars) in [(losses, vec![]), (gradients, vec![1.0 / 4096.0])] {
            let name = format!("{}, {} tokens", request.op, self.chunk);
            let shaped = self.launched(name, request, self.chunk);
            ops.push(Shaped { scalars, ..shaped });
        }
    }

    /// The optimizer's ops on the adapters of a layer.
    fn flat(&self, ops: &mut Vec<Shaped>) {
        let of_layer = self.weights().map(|(of, [n, m])| {
            // Two of each but `down`.
            let count = if of == "down" { 1 } else { 2 };
            count * self.lora_rank * (n + m)
        });
        let n = of_layer.iter().sum();
        let run = Operand::flat(n, F32);
        let new = KernelRequest::new;
        let one = Operand::flat(1, DType::F64);
        let requests = [
            (
                new("adamw")
                    .inputs(vec![run.clone()])
                    .outputs(vec![run.clone(); 3]),
                ADAMW.to_vec(),
            ),
            (
                new("sum_squares")
                    .inputs(vec![run.clone()])
                    .outputs(vec![one]),
                vec![],
            ),
            (
                new("cast")
                    .inputs(vec![run])
                    .outputs(vec![Operand::flat(n, BF16)]),
                vec![],
            ),
        ];
        for (request, scalars) in requests {
            let name = format!("{}, {n} elements", request.op);
            let shaped = self.launched(name, request, 0);
            ops.push(Shaped { scalars, ..shaped });
        }
    }
}

/// The product of square bf16 matrices that is taken for a card's ceiling.
pub fn square(extent: u64) -> Shaped {
    let request = KernelRequest::new("linear")
        .inputs(vec![rows(extent)])
        .params(vec![param(&[extent; 2], WeightLayout::Dense(BF16))])
        .outputs(vec![rows(extent)])
        .limits(extent, 1);
    Shaped {
        name: format!("linear [{extent}, {extent}] bf16, {extent} tokens"),
        request,
        tokens: extent,
        sequence: extent,
        scalars: Vec::new(),
    }
}

/// The values of a packed weight `[N, M]` in bf16.
pub fn values(of: String, shape: [u64; 2], format: Format) -> Shaped {
    let packed = WeightLayout::Packed(Box::new(format));
    let request = KernelRequest::new("param_value")
        .params(vec![param(&shape, packed)])
        .outputs(vec![fixed(&shape, BF16)])
        .limits(0, 0);
    Shaped {
        name: format!("param_value {of}"),
        request,
        tokens: 0,
        sequence: 0,
        scalars: Vec::new(),
    }
}

fn rows(width: u64) -> Operand {
    Operand::per_token(width, BF16)
}

fn per_token(dtype: DType) -> Operand {
    Operand {
        shape: vec![Dim::Tokens],
        dtype,
    }
}

fn fixed(extents: &[u64], dtype: DType) -> Operand {
    Operand {
        shape: extents.iter().map(|&extent| Dim::Fixed(extent)).collect(),
        dtype,
    }
}

fn param(shape: &[u64], layout: WeightLayout) -> ParamOperand {
    ParamOperand {
        shape: shape.to_vec(),
        layout,
    }
}

fn packed(shape: [u64; 2]) -> Result<WeightLayout> {
    Ok(WeightLayout::Packed(Box::new(nf4(shape)?)))
}

/// NF4 with double quantization, blocks of 64.
fn nf4(shape: [u64; 2]) -> Result<Format> {
    format(&NF4, &json!({"double_quant": true}), shape)
}
