//! Answers of plugins -> checked values: every size, index and name is checked before it is used.

mod adaptation;
mod model;

use std::fmt;

use espalier_compile::decompose::BackendOps;
use espalier_interface::adaptation::Site;
use espalier_interface::calibration::Calibration;
use espalier_interface::format::{DeviceCode, Format};
use espalier_interface::schedule::{Act, Action, Schedule, ShardingRequest};
use espalier_interface::{
    Adapter, Backend, DType, ErrorCode, PluginError, Quantizer, Result as PluginResult, Sharding,
};
use espalier_system::failure::UsageError;
use serde_json::Value as Json;

use crate::Error;
use crate::chosen::Chosen;

pub use adaptation::{adaptation, adapted, adapter_sites};
pub use model::model;

/// Most bytes that one answer may ask for: what a process can address. A larger number is a wrong
/// answer; a smaller one may still exceed the machine's memory.
pub const MOST_BYTES: u64 = 1 << 47;
/// Most elements of all params of a plugin together, which leaves room for their bytes, gradients
/// and moments.
const MOST_ELEMENTS: u64 = MOST_BYTES / 8;

/// Most ops that a backend may list.
const MOST_OPS: usize = 1 << 16;

/// The ops that `backend` has.
///
/// # Errors
/// [`Error::Plugin`] for an error of the backend, and for a list that is too long.
pub fn ops(backend: &Chosen<dyn Backend>) -> Result<BackendOps, Error> {
    let name = &backend.identity.component;
    let listed = backend.plugin.ops().and_then(|listed| {
        let count = listed.as_ref().map_or(0, Vec::len);
        if count <= MOST_OPS {
            return Ok(BackendOps::new(name, listed));
        }
        Err(lie(format!(
            "it lists {count} ops, at most {MOST_OPS} are accepted"
        )))
    });
    listed.map_err(|error| backend.failed("ops", error))
}

/// How `quantizer` packs a weight of `shape`. The format has the component's name.
///
/// # Errors
/// [`Error::Plugin`] for an error of the quantizer, and for a format that is inconsistent or of
/// another shape.
pub fn format(quantizer: &Chosen<dyn Quantizer>, shape: [u64; 2]) -> Result<Format, Error> {
    let answer = || -> PluginResult<Format> {
        let mut format = quantizer.plugin.format(shape)?;
        format.quantizer.clone_from(&quantizer.identity.component);
        if format.shape != shape {
            return Err(lie(format!(
                "a format of shape {:?}, expected {shape:?}",
                format.shape
            )));
        }
        match format.validate() {
            Ok(()) => Ok(format),
            Err(error) => Err(lie(error.message)),
        }
    };
    answer().map_err(|error| quantizer.failed("format", error))
}

/// The code with which devices decode weights of `quantizer`, if it has one.
///
/// # Errors
/// The quantizer's error, and `PROTOCOL` for a text that is too long or lacks the function; with
/// the quantizer's name.
pub fn device_code(quantizer: &Chosen<dyn Quantizer>) -> PluginResult<Option<DeviceCode>> {
    let answer = quantizer.plugin.device_code().and_then(|code| {
        let checked = code.as_ref().map_or(Ok(()), DeviceCode::validate);
        checked.map_err(|error| lie(error.message)).map(|()| code)
    });
    answer.map_err(|error| {
        let name = &quantizer.identity.component;
        PluginError::new(error.code, format!("quantizer `{name}`: {}", error.message))
    })
}

/// Bytes of workspace for `what`, which a process can address.
fn workspace(bytes: u64, what: fmt::Arguments<'_>) -> PluginResult<u64> {
    if bytes <= MOST_BYTES {
        return Ok(bytes);
    }
    Err(lie(format!(
        "{bytes} bytes of workspace for {what}, expected at most {MOST_BYTES}"
    )))
}

/// Bytes of workspace that `quantizer` needs for a weight of `shape`.
///
/// # Errors
/// [`Error::Plugin`] for an error of the quantizer, and for more bytes than a process can address.
pub fn encode_workspace(quantizer: &Chosen<dyn Quantizer>, shape: [u64; 2]) -> Result<u64, Error> {
    let wanted = quantizer.plugin.encode_workspace(shape);
    let wanted = wanted.and_then(|bytes| workspace(bytes, format_args!("a weight {shape:?}")));
    wanted.map_err(|error| quantizer.failed("encode_workspace", error))
}

/// What `quantizer` wants to know of the inputs of `site`, whose weight has `shape`; none where it
/// packs the weight without.
///
/// # Errors
/// [`Error::Plugin`] for an error of the quantizer, and for a statistic that is asked for twice or
/// in another dtype than f32 and f64.
pub fn calibration(
    quantizer: &Chosen<dyn Quantizer>,
    site: &str,
    shape: [u64; 2],
) -> Result<Option<Calibration>, Error> {
    let wanted = quantizer.plugin.calibration(site, shape);
    let wanted = wanted.and_then(|wanted| {
        let statistics = wanted.iter().flat_map(|one| &one.statistics);
        let mut seen = Vec::new();
        for statistic in statistics {
            let dtype = statistic.dtype();
            if ![DType::F32, DType::F64].contains(&dtype) {
                return Err(lie(format!("a statistic in {dtype}, expected f32 or f64")));
            }
            if seen.contains(statistic) {
                return Err(lie(format!("{statistic:?} is asked for twice")));
            }
            seen.push(*statistic);
        }
        Ok(wanted)
    });
    wanted.map_err(|error| quantizer.failed("calibration", error))
}

/// Bytes of workspace that `quantizer` needs to pack a weight of `shape` with statistics.
///
/// # Errors
/// As [`encode_workspace`].
pub fn calibrated_workspace(
    quantizer: &Chosen<dyn Quantizer>,
    shape: [u64; 2],
) -> Result<u64, Error> {
    let wanted = quantizer.plugin.calibrated_workspace(shape);
    let wanted = wanted.and_then(|bytes| workspace(bytes, format_args!("a weight {shape:?}")));
    wanted.map_err(|error| quantizer.failed("calibrated_workspace", error))
}

/// Bytes of workspace that `adapter` needs to make initial values from the weight of `site`.
///
/// # Errors
/// As [`encode_workspace`].
pub fn initialise_workspace(adapter: &Chosen<dyn Adapter>, site: &Site) -> Result<u64, Error> {
    let wanted = adapter.plugin.initialise_workspace(site);
    let wanted = wanted.and_then(|bytes| workspace(bytes, format_args!("`{}`", site.name)));
    wanted.map_err(|error| adapter.failed("initialise_workspace", error))
}

/// The text of `adapter_config.json` for an adapter on `base_model`.
///
/// # Errors
/// [`Error::Plugin`] for an error of the adapter, and for an answer that is not an object.
pub fn saved_config(
    adapter: &Chosen<dyn Adapter>,
    sites: &[Site],
    base_model: &str,
) -> Result<Json, Error> {
    let config = adapter.plugin.saved_config(sites, base_model);
    let config = config.and_then(|config| {
        if config.is_object() {
            Ok(config)
        } else {
            Err(lie(format!("expected an object, found {config}")))
        }
    });
    config.map_err(|error| adapter.failed("saved_config", error))
}

/// The schedule that `sharding` makes for `request`.
///
/// # Errors
/// [`Error::Usage`] for a world that the strategy refuses. [`Error::Plugin`] for its other errors
/// and for an invalid schedule.
pub fn schedule(
    sharding: &Chosen<dyn Sharding>,
    request: &ShardingRequest,
) -> Result<Schedule, Error> {
    let schedule = match sharding.plugin.schedule(request) {
        Err(error) if error.code == ErrorCode::INVALID => {
            if request.update_in_backward {
                let afterwards = ShardingRequest {
                    update_in_backward: false,
                    ..request.clone()
                };
                if sharding.plugin.schedule(&afterwards).is_ok() {
                    return Err(updates_afterwards(sharding, &error.message));
                }
            }
            return Err(Error::Usage(UsageError {
                message: error.message,
                next_step: format!(
                    "change that, or name another strategy in --plugins (`ddp`, `fsdp`); `host plugins inspect {}` shows its \
                     options",
                    sharding.identity.component
                ),
            }));
        }
        answer => answer.map_err(|error| sharding.failed("schedule", error))?,
    };
    let updates = |actions: &[Action]| actions.iter().any(|one| one.act == Act::Optimize);
    if request.update_in_backward && updates(&schedule.update) {
        return Err(updates_afterwards(
            sharding,
            "it leaves all updates for after it",
        ));
    }
    let valid = schedule.validate(request);
    valid.map_err(|error| sharding.failed("schedule", error))?;
    Ok(schedule)
}

/// The error for a strategy that serves the run, and no updates in the backward pass.
fn updates_afterwards(sharding: &Chosen<dyn Sharding>, why: &str) -> Error {
    Error::Usage(UsageError {
        message: format!(
            "the sharding strategy `{}` does not serve optim.in_backward = true, updates in the backward pass: {why}",
            sharding.identity.component
        ),
        next_step: "change that, set optim.in_backward = false, or name `single`, `ddp` or `fsdp` in --plugins"
            .to_owned(),
    })
}

/// The error for a wrong answer.
fn lie(message: String) -> PluginError {
    PluginError::new(ErrorCode::PROTOCOL, message)
}

/// Elements of a shape, added to `before`.
fn elements(name: &str, shape: &[u64], before: u64) -> PluginResult<u64> {
    let product = shape.iter().try_fold(1u64, |n, &size| n.checked_mul(size));
    match product.and_then(|elements| elements.checked_add(before)) {
        Some(sum) if sum <= MOST_ELEMENTS && sum > before => Ok(sum),
        _ => Err(lie(format!(
            "param `{name}` of shape {shape:?} has no elements, or more than can be addressed"
        ))),
    }
}
