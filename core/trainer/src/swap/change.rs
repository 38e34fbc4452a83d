//! A run's config and a request -> the config of a run started with these settings.

use espalier_config::ResolvedConfig;
use espalier_interface::Role;
use espalier_registry::select::{Components, saved_options};
use espalier_system::failure::UsageError;
use serde_json::{Map, Value as Json};

use super::{SwapRequest, plugin_dirs};
use crate::Error;

/// The config under `request`, of a run with `components` under `current`.
///
/// # Errors
/// A change that the run cannot make; an option of another type or out of its range.
pub(super) fn of(
    current: &ResolvedConfig,
    components: &Components,
    request: &SwapRequest,
) -> Result<ResolvedConfig, Error> {
    request.check()?;
    let role = request.role()?;
    let config = current.config();
    if role == Role::QUANTIZER && !config.model.train_only.is_empty() {
        return Err(Error::Usage(UsageError {
            message: "the run trains weights of the model itself (model.train_only): its \
                      quantizer stays"
                .to_owned(),
            next_step: "start another run with the quantizer, or without one".to_owned(),
        }));
    }
    refuse(components, role, request)?;
    let identities = components.identities();
    let plays = |name: &String| {
        let mut playing = identities.iter().filter(|one| one.role == role.0);
        playing.any(|one| &one.component == name)
    };
    let mut plugins = config.plugins.clone();
    plugins.retain(|name| !plays(name));
    plugins.extend(request.component().map(str::to_owned));
    let mut values = Map::from_iter([("plugins".to_owned(), Json::from(plugins))]);
    let mut run = Map::new();
    if role == Role::BACKEND {
        run.insert("backend".to_owned(), Json::from(request.name.clone()));
    }
    let dirs = plugin_dirs::after(&request.plugin_dirs, config);
    run.insert("plugin_dirs".to_owned(), dirs);
    values.insert("run".to_owned(), Json::Object(run));
    if let (Role::ADAPTER, Some(adapter)) = (role, &components.adapter)
        && let Some(saved) = &components.saved_adapter
        && !current.has_own_adapter_options()
    {
        // From here on the options come from the config instead of the saved adapter's files.
        let options = Json::Object(saved_options(adapter, saved)?);
        let name = adapter.identity.component.clone();
        let section = Map::from_iter([(name, options)]);
        values.insert("adapter".to_owned(), Json::Object(section));
    }
    let changed = current.overlaid("host swap", values, &request.set)?;
    let own = role == Role::ADAPTER || current.has_own_adapter_options();
    Ok(changed.with_own_adapter_options(own))
}

/// Refuses changes that are incompatible with the run's model or kind of training.
fn refuse(components: &Components, role: Role, request: &SwapRequest) -> Result<(), Error> {
    let refused = |message: String, next_step: &str| {
        let next_step = next_step.to_owned();
        Err(Error::Usage(UsageError { message, next_step }))
    };
    if role == Role::ADAPTER && components.adapter.is_none() {
        return refused(
            "the run trains the model itself: it has no adapter to swap".to_owned(),
            "start another run with the adapter",
        );
    }
    let Some(quantizer) = request.component().filter(|_| role == Role::QUANTIZER) else {
        return match components.quantizers.packed() {
            Some(packed) if role == Role::QUANTIZER => refused(
                format!(
                    "the model's files hold it packed by `{}`: its dense weights are not there",
                    packed.component()
                ),
                "start another run from the model's original weights",
            ),
            _ => Ok(()),
        };
    };
    if let Some(packed) = components.quantizers.packed()
        && packed.component() != quantizer
    {
        return refused(
            format!(
                "the model's files hold it packed by `{}`: the dense weights that `{quantizer}` \
                 would pack are not there",
                packed.component()
            ),
            "start another run from the model's original weights",
        );
    }
    if components.adapter.is_none() {
        return refused(
            format!(
                "the run trains the model itself: `{quantizer}` would pack weights that are trained"
            ),
            "start another run with an adapter",
        );
    }
    Ok(())
}
