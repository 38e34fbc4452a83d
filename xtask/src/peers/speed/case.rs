//! A way of training and a number type -> the host's settings, and how far losses may differ.

use std::fmt;

use clap::ValueEnum;
use serde::Serialize;

/// What is trained, on which base.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// LoRA on an NF4 base with double quantization
    Nf4,
    /// LoRA on a base encoded by hqq: 4 bits, groups of 64, axis 1
    Hqq,
    /// LoRA on the dense base
    Lora,
    /// All weights, which are f32 on both sides
    Full,
}

impl Method {
    /// Every method, in the table's order.
    pub const ALL: [Method; 4] = [Method::Nf4, Method::Hqq, Method::Lora, Method::Full];

    /// The host's plugins, none for full fine-tuning.
    pub fn plugins(self) -> Option<&'static str> {
        match self {
            Method::Nf4 => Some("nf4,lora"),
            Method::Hqq => Some("hqq,lora"),
            Method::Lora => Some("lora"),
            Method::Full => None,
        }
    }

    /// The host's settings of its quantizer: blocks, groups and scales as the peer's.
    pub fn quantizer_settings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Method::Nf4 => &[
                ("quantizer.nf4.block_size", "64"),
                ("quantizer.nf4.double_quant", "true"),
            ],
            Method::Hqq => &[
                ("quantizer.hqq.bits", "4"),
                ("quantizer.hqq.group_size", "64"),
                ("quantizer.hqq.axis", "1"),
            ],
            Method::Lora | Method::Full => &[],
        }
    }

    /// As in `LEARNING_RATES` of `tests/peers/speed_peer.py`.
    pub fn learning_rate(self) -> f64 {
        match self {
            Method::Full => 1e-5,
            Method::Nf4 | Method::Hqq | Method::Lora => 2e-4,
        }
    }
}

/// Number type of products and activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// bfloat16 values, f32 sums
    Bf16,
    /// f32 throughout
    F32,
}

/// One line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Case {
    pub method: Method,
    pub dtype: Dtype,
}

impl Case {
    /// Most that the losses of a step may differ, relative to the peer's. It is the same for every
    /// method: codes are the peers' own (`tests/golden`), and `full` trains f32 weights on both
    /// sides. For comparison: the losses of `nf4` and `lora` differ by 1e-3, and training lowers a
    /// loss by 1e-2 in eight steps.
    ///
    /// f32: sums have another order, and training carries that on; `check_adapter_starts.py` holds
    /// twenty steps of a larger learning rate to 1e-5. Found with the 124M model: up to 3e-7.
    ///
    /// bf16: values between products are rounded at other places, by 2^-9 each, and the peer's
    /// adapters are rounded after each step. Found: up to 2e-4, growing with the steps.
    pub fn bound(self) -> f64 {
        match self.dtype {
            Dtype::F32 => 1e-5,
            Dtype::Bf16 => 1e-3,
        }
    }

    /// The steps whose losses are compared, with products of the host by `instructions`.
    ///
    /// Full training in bf16 keeps f32 weights. The peer, and instructions for bf16, round them
    /// before they multiply, which hides most of an update of 1e-5. Other instructions of the
    /// backend `cpu` do not round: its losses are then those of f32 within 2e-4, and the peer's are
    /// 1e-2 above them from the second step on. So only the first step is compared there.
    pub fn compared_steps(self, instructions: Option<&str>) -> usize {
        let keeps_f32 = matches!(
            instructions,
            Some("avx512" | "avx2" | std::env::consts::ARCH)
        );
        match self {
            Case {
                method: Method::Full,
                dtype: Dtype::Bf16,
            } if keeps_f32 => 1,
            _ => usize::MAX,
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Method::Nf4 => "nf4",
            Method::Hqq => "hqq",
            Method::Lora => "lora",
            Method::Full => "full",
        })
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Dtype::Bf16 => "bf16",
            Dtype::F32 => "f32",
        })
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.dtype)
    }
}
