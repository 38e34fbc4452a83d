//! The shipped optimizers as data.

use super::{Bounds, Extent, OptimizerSpec, Setting, SmallParams, StateTensor};
use crate::DType;
use crate::op::{ADAMW8BIT_BLOCK, definition};

/// All of them, the default first.
pub(super) fn all() -> Vec<OptimizerSpec> {
    vec![adamw(), adamw8bit(), sgd()]
}

/// `torch.optim.AdamW`: decoupled weight decay, two moments.
fn adamw() -> OptimizerSpec {
    OptimizerSpec {
        name: "adamw".to_owned(),
        op: "adamw".to_owned(),
        version: 1,
        scalars: scalars("adamw"),
        settings: vec![
            setting("betas", &["beta1", "beta2"], Bounds::Fraction),
            setting("eps", &["eps"], Bounds::Positive),
        ],
        state: vec![
            StateTensor::per_element("first_moment"),
            StateTensor::per_element("second_moment"),
        ],
        small: None,
    }
}

/// bitsandbytes' `AdamW8bit`: the moments as 8-bit codes with an absmax per block, in place of
/// `adamw`'s. Params with fewer elements than `min_8bit_size` keep the state of `adamw`.
fn adamw8bit() -> OptimizerSpec {
    let adamw = adamw();
    let mut settings = adamw.settings.clone();
    settings.push(setting("min_8bit_size", &["min_8bit_size"], Bounds::Count));
    let codes = |name: &str| StateTensor {
        dtype: DType::U8,
        ..StateTensor::per_element(name)
    };
    let absmax = |name: &str| StateTensor {
        extent: Extent::PerBlock(ADAMW8BIT_BLOCK),
        ..StateTensor::per_element(name)
    };
    OptimizerSpec {
        name: "adamw8bit".to_owned(),
        op: "adamw8bit".to_owned(),
        version: 1,
        scalars: scalars("adamw8bit"),
        settings,
        state: vec![
            codes("first_moment"),
            absmax("first_absmax"),
            codes("second_moment"),
            absmax("second_absmax"),
        ],
        small: Some(Box::new(SmallParams {
            below: "min_8bit_size".to_owned(),
            elements: 0,
            optimizer: adamw,
        })),
    }
}

/// `torch.optim.SGD` with dampening 0: coupled weight decay; a buffer only where there is momentum.
fn sgd() -> OptimizerSpec {
    OptimizerSpec {
        name: "sgd".to_owned(),
        op: "sgd".to_owned(),
        version: 1,
        scalars: scalars("sgd"),
        settings: vec![
            setting("momentum", &["momentum"], Bounds::Fraction),
            Setting {
                needs: Some("momentum".to_owned()),
                ..setting("nesterov", &["nesterov"], Bounds::Flag)
            },
        ],
        state: vec![StateTensor {
            kept_with: Some("momentum".to_owned()),
            ..StateTensor::per_element("momentum")
        }],
        small: None,
    }
}

/// The scalars of an op, in its order.
fn scalars(op: &str) -> Vec<String> {
    let definition = definition(op, 1).expect("the op is in the table");
    names(definition.scalars)
}

fn setting(key: &str, scalars: &[&str], bounds: Bounds) -> Setting {
    Setting {
        key: key.to_owned(),
        scalars: names(scalars),
        bounds,
        needs: None,
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}
