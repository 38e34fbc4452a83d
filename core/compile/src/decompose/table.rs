//! The ops that have a decomposition, and the parts of each.

use espalier_interface::Result;

use super::parts::{Parts, Whole};
use super::{
    cross_entropy, geglu_tanh, gelu, layer_norm, linear, rms_norm, rope, scale_channels, swiglu,
};

/// Appends the parts of a call.
pub type Decompose = fn(&mut Parts<'_>, &Whole<'_>) -> Result<()>;

/// How an op is made where a backend lacks it.
pub struct Decomposition {
    /// The op.
    pub op: &'static str,
    /// Appends the parts of a call.
    pub decompose: Decompose,
    /// The ops that calls of it are made of, in any dtype.
    pub parts: &'static [&'static str],
}

/// The parts of a norm with means, or of a norm's gradient.
const NORM: &[&str] = &[
    "add",
    "broadcast_param",
    "cast",
    "contract",
    "expand",
    "mul",
    "rsqrt",
    "scale",
];

/// The ops that have a decomposition.
pub const DECOMPOSITIONS: &[Decomposition] = &[
    Decomposition {
        op: "cross_entropy",
        decompose: cross_entropy::forward,
        parts: &[
            "add",
            "cast",
            "contract",
            "exp",
            "expand",
            "is_argmax",
            "log",
            "pick",
            "row_max",
        ],
    },
    Decomposition {
        op: "cross_entropy_backward",
        decompose: cross_entropy::backward,
        parts: &["add", "cast", "exp", "expand", "one_hot", "scale_trained"],
    },
    Decomposition {
        op: "geglu_tanh",
        decompose: geglu_tanh::forward,
        parts: &["add", "cast", "mul", "scale", "sigmoid"],
    },
    Decomposition {
        op: "geglu_tanh_backward",
        decompose: geglu_tanh::backward,
        parts: &["add", "cast", "mul", "scale", "sigmoid"],
    },
    Decomposition {
        op: "gelu",
        decompose: gelu::forward,
        parts: &["add", "cast", "erf", "mul", "scale", "sigmoid"],
    },
    Decomposition {
        op: "gelu_backward",
        decompose: gelu::backward,
        parts: &["add", "cast", "erf", "exp", "mul", "scale", "sigmoid"],
    },
    Decomposition {
        op: "layer_norm",
        decompose: layer_norm::forward,
        parts: NORM,
    },
    Decomposition {
        op: "layer_norm_backward",
        decompose: layer_norm::backward,
        parts: NORM,
    },
    Decomposition {
        op: "layer_norm_weight_backward",
        decompose: layer_norm::weight_backward,
        parts: &[
            "add",
            "bias_backward",
            "cast",
            "contract",
            "expand",
            "mul",
            "rsqrt",
            "scale",
        ],
    },
    Decomposition {
        op: "rms_norm",
        decompose: rms_norm::forward,
        parts: &[
            "broadcast_param",
            "cast",
            "contract",
            "expand",
            "mul",
            "rsqrt",
        ],
    },
    Decomposition {
        op: "rms_norm_backward",
        decompose: rms_norm::backward,
        parts: NORM,
    },
    Decomposition {
        op: "rms_norm_offset",
        decompose: rms_norm::forward,
        parts: &[
            "add",
            "broadcast_param",
            "cast",
            "contract",
            "expand",
            "mul",
            "rsqrt",
        ],
    },
    Decomposition {
        op: "rms_norm_offset_backward",
        decompose: rms_norm::backward,
        parts: NORM,
    },
    Decomposition {
        op: "rms_norm_offset_weight_backward",
        decompose: rms_norm::weight_backward,
        parts: &[
            "bias_backward",
            "cast",
            "contract",
            "expand",
            "mul",
            "rsqrt",
        ],
    },
    Decomposition {
        op: "rms_norm_weight_backward",
        decompose: rms_norm::weight_backward,
        parts: &[
            "bias_backward",
            "cast",
            "contract",
            "expand",
            "mul",
            "rsqrt",
        ],
    },
    Decomposition {
        op: "rope",
        decompose: rope::forward,
        parts: &["add", "cast", "expand", "mul", "sinusoids", "swap_halves"],
    },
    Decomposition {
        op: "rope_backward",
        decompose: rope::backward,
        parts: &["add", "cast", "expand", "mul", "sinusoids", "swap_halves"],
    },
    Decomposition {
        op: "scale_channels",
        decompose: scale_channels::forward,
        parts: &["broadcast_param", "cast", "mul"],
    },
    Decomposition {
        op: "scale_channels_weight_backward",
        decompose: scale_channels::weight_backward,
        parts: &["bias_backward", "cast", "mul"],
    },
    Decomposition {
        op: "swiglu",
        decompose: swiglu::forward,
        parts: &["cast", "mul", "sigmoid"],
    },
    Decomposition {
        op: "swiglu_backward",
        decompose: swiglu::backward,
        parts: &["add", "cast", "mul", "sigmoid"],
    },
];

/// The fused ops that are version 4 of others.
const FUSED_4: &[Decomposition] = &[
    Decomposition {
        op: "linear",
        decompose: linear::adapted,
        parts: &["add", "linear", "scale"],
    },
    Decomposition {
        op: "linear_input_backward",
        decompose: linear::adapted_backward,
        parts: &[
            "add",
            "linear_input_backward",
            "linear_weight_backward",
            "scale",
        ],
    },
];

/// The fused ops that are version 3 of others.
const FUSED_3: &[Decomposition] = &[
    Decomposition {
        op: "linear",
        decompose: linear::forward,
        parts: &["add", "linear", "scale"],
    },
    Decomposition {
        op: "linear_input_backward",
        decompose: linear::both_backward,
        parts: &[
            "add",
            "linear_input_backward",
            "linear_weight_backward",
            "scale",
        ],
    },
];

/// The fused ops that are version 2 of others.
const FUSED: &[Decomposition] = &[
    Decomposition {
        op: "cross_entropy_backward",
        decompose: cross_entropy::backward_apart,
        parts: &["cross_entropy_backward"],
    },
    Decomposition {
        op: "linear",
        decompose: linear::forward,
        parts: &["add", "linear", "scale"],
    },
    Decomposition {
        op: "linear_input_backward",
        decompose: linear::input_backward,
        parts: &["add", "linear_input_backward", "scale"],
    },
    Decomposition {
        op: "linear_weight_backward",
        decompose: linear::weight_backward,
        parts: &["linear_weight_backward", "scale"],
    },
    Decomposition {
        op: "rms_norm_backward",
        decompose: rms_norm::backward_added,
        parts: &["add", "rms_norm_backward"],
    },
    Decomposition {
        op: "rope",
        decompose: |parts, whole| rope::apart(parts, whole, "rope"),
        parts: &["rope"],
    },
    Decomposition {
        op: "rope_backward",
        decompose: |parts, whole| rope::apart(parts, whole, "rope_backward"),
        parts: &["rope_backward"],
    },
];

/// How version `version` of `op` is made; none where it is not.
pub fn decomposition(op: &str, version: u32) -> Option<&'static Decomposition> {
    let table = match version {
        1 => DECOMPOSITIONS,
        2 => FUSED,
        3 => FUSED_3,
        4 => FUSED_4,
        _ => return None,
    };
    table.iter().find(|one| one.op == op)
}
