//! The shipped optimizers as data.

use super::{Bounds, OptimizerSpec, Setting, StateTensor};

/// All of them, the default first.
pub(super) fn all() -> Vec<OptimizerSpec> {
    vec![adamw()]
}

/// `torch.optim.AdamW`: decoupled weight decay, two moments.
fn adamw() -> OptimizerSpec {
    OptimizerSpec {
        name: "adamw".to_owned(),
        op: "adamw".to_owned(),
        scalars: names(&[
            "learning_rate",
            "beta1",
            "beta2",
            "eps",
            "weight_decay",
            "step",
            "factor",
        ]),
        settings: vec![
            setting("betas", &["beta1", "beta2"], Bounds::Fraction),
            setting("eps", &["eps"], Bounds::Positive),
        ],
        state: vec![
            StateTensor::per_element("first_moment"),
            StateTensor::per_element("second_moment"),
        ],
    }
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
