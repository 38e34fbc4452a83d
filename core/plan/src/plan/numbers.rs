//! A config -> the dtypes of a run, and its optimizer in them.

use espalier_compile::params::Dtypes;
use espalier_config::{ComputeType, Config, ParamType};
use espalier_interface::DType;
use espalier_interface::optimizer::{Numbers, OptimizerSpec, Rounding};
use espalier_system::failure::UsageError;

use crate::Error;

/// The dtypes that a config asks for.
pub fn dtypes(config: &Config) -> Dtypes {
    let (compute, reduce) = match config.model.compute {
        ComputeType::Bf16 => (DType::BF16, DType::F32),
        ComputeType::F32 => (DType::F32, DType::F32),
        ComputeType::F64 => (DType::F64, DType::F64),
    };
    let params = match (config.model.compute, config.model.params) {
        (ComputeType::F64, _) => DType::F64,
        (_, ParamType::F32) => DType::F32,
        (_, ParamType::Bf16) => DType::BF16,
    };
    let gradients = match (config.model.compute, config.model.gradients) {
        (ComputeType::F64, _) => DType::F64,
        (_, ParamType::F32) => DType::F32,
        (_, ParamType::Bf16) => DType::BF16,
    };
    Dtypes {
        compute,
        reduce,
        params,
        gradients,
    }
}

/// The optimizer that a config names.
pub(super) fn optimizer(config: &Config, dtypes: Dtypes) -> Result<OptimizerSpec, Error> {
    let numbers = Numbers {
        gradients: dtypes.gradients,
        state: match (config.model.compute, config.optim.state) {
            (ComputeType::F64, _) | (_, ParamType::F32) => dtypes.reduce,
            (_, ParamType::Bf16) => DType::BF16,
        },
        rounding: if config.optim.stochastic_rounding {
            Rounding::Stochastic
        } else {
            Rounding::Nearest
        },
        ..Numbers::all(dtypes.reduce)
    };
    let optimizer = config.optim.optimizer(numbers);
    optimizer.ok_or_else(|| unknown_optimizer(config))
}

/// The error for an optimizer that is not shipped.
fn unknown_optimizer(config: &Config) -> Error {
    let shipped = OptimizerSpec::shipped().into_iter();
    let names: Vec<String> = shipped.map(|one| format!("`{}`", one.name)).collect();
    Error::Usage(UsageError {
        message: format!("optim.name: no optimizer is called `{}`", config.optim.name),
        next_step: format!("name one of {}", names.join(", ")),
    })
}
