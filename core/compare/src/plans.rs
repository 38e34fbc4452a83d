//! Arms -> the plan of each, before any write and before any weight is read: which arms fit in
//! memory, alone and together.

use espalier_config::{Init, ResolvedConfig, Turns};
use espalier_data::DataError;
use espalier_engine::observer::{Event, Observer};
use espalier_interface::bytes::Bytes;
use espalier_interface::{ErrorCode, Role, Services, WeightLayout};
use espalier_plan::patterns;
use espalier_plan::plan::{Purpose, RunPlan};
use espalier_registry::{PluginFailure, PluginIdentity, Registry};
use espalier_system::failure::{UsageError, chain};
use espalier_system::files::Continue;
use espalier_system::memory::{self, Meter};
use espalier_system::stop::StopFlag;
use espalier_trainer::Error as TrainerError;
use espalier_trainer::session::{OpenedModel, ProcessContext, Rows, Session};
use espalier_trainer::weights::Loading;
use serde_json::{Map, Value as Json};

use super::arms::ArmConfig;
use super::base::Extra;
use crate::{ArmFailure, Error};

/// An arm and its plan before it runs.
pub(crate) struct Planned {
    pub arm: ArmConfig,
    /// Its config without an adapter, used to measure the base alone.
    pub bare: ResolvedConfig,
    /// Its components, one per role.
    pub plugins: Vec<PluginIdentity>,
    /// Peak bytes while it is measured and trained, including the program's.
    pub peak: u64,
    /// Peak bytes without the program's.
    pub needed: u64,
    /// Bytes of the weights that its runs encode from the same numbers: those of the model's files.
    pub kept_bytes: u64,
    /// Why it cannot run.
    pub refused: Option<TrainerError>,
}

/// Reads the rows shared by all arms.
///
/// # Errors
/// Rows that cannot be read; no held-out rows.
pub(crate) fn read_rows(
    base: &ResolvedConfig,
    registry: &Registry,
    process_context: &ProcessContext,
    observer: &dyn Observer,
    stop: &StopFlag,
) -> Result<Rows, TrainerError> {
    let data = &base.config().data;
    if data.eval_split.is_none() && data.eval_files.is_empty() {
        return Err(DataError::NoHeldOut.into());
    }
    // A failure of an arm's own plugins is a failure of that arm only.
    let plain = without_roles(base, &[Role::QUANTIZER, Role::ADAPTER], registry)?;
    let opened_model = OpenedModel::open(&plain, Purpose::Train, process_context)?;
    let rows = opened_model.read_rows(Purpose::Train, observer, stop)?;
    rows.ok_or(DataError::NoFiles.into())
}

/// `resolved` without the components of `roles`.
pub(crate) fn without_roles(
    resolved: &ResolvedConfig,
    roles: &[Role],
    registry: &Registry,
) -> Result<ResolvedConfig, TrainerError> {
    let named = registry.roles_of(&resolved.config().plugins)?;
    let kept = named.iter().filter(|(role, _)| !roles.contains(role));
    let kept: Vec<Json> = kept.map(|(_, name)| Json::from(name.clone())).collect();
    let plugins = Map::from_iter([("plugins".to_owned(), Json::Array(kept))]);
    let bare = if roles.contains(&Role::QUANTIZER) {
        resolved.without(&["model.adapter", "sites"])?
    } else {
        resolved.without(&["model.adapter"])?
    };
    Ok(bare.overlaid("the comparison", plugins, &[])?)
}

/// The shared inputs of planning.
pub(crate) struct Planning<'a> {
    pub registry: &'a Registry,
    pub process_context: &'a ProcessContext,
    pub purpose: Purpose,
    pub existing: Continue,
    pub observer: &'a dyn Observer,
    pub stop: &'a StopFlag,
}

/// Plans every arm.
///
/// # Errors
/// [`Error::Usage`] or [`Error::Arm`] for a user error in an arm, with its name. All other errors
/// are failures of that arm only.
pub(crate) fn plan_all(
    arms: Vec<ArmConfig>,
    planning: &Planning<'_>,
) -> Result<Vec<Planned>, Error> {
    let Planning {
        registry,
        process_context,
        purpose,
        existing,
        observer,
        stop,
    } = *planning;
    let mut planned: Vec<Planned> = Vec::new();
    for arm in arms {
        stop.check()?;
        let bare = without_roles(&arm.resolved, &[Role::ADAPTER], registry)?;
        let resolved = match purpose {
            Purpose::Train => &arm.resolved,
            Purpose::Evaluate | Purpose::Generate => &bare,
        };
        let meter = Meter::whole_process();
        let opened =
            Session::open_among(resolved, purpose, process_context, &meter, observer, stop);
        match opened {
            Ok(session) if arm.added && session.components.quantizers.packed().is_some() => {
                let note = "the model's files hold it packed: there is no dense base to compare \
                            with";
                observer.observe(&Event::Note(note));
            }
            Ok(session) => {
                let (plan, identities) = (&session.run.plan, session.components.identities());
                let of_arm = |error: espalier_plan::Error| ArmFailure::of(&arm.name, error);
                if existing == Continue::Refuse {
                    let quantizers = &session.components.quantizers;
                    patterns::check_matches(resolved, quantizers, plan).map_err(of_arm)?;
                }
                let (model, components) = (&session.directory, &session.components);
                let loading = Loading::of(resolved.config(), model, components, observer, stop);
                let readable = loading.check(plan, &|_| true);
                let needed = Extra::of(plan, process_context.services.threads()).needed(plan);
                planned.push(Planned {
                    plugins: identities.into_iter().cloned().collect(),
                    peak: needed + plan.memory.program,
                    needed,
                    kept_bytes: kept_bytes(resolved, plan),
                    refused: readable
                        .and_then(|()| {
                            Ok(plan
                                .check_needed(needed, plan.available(memory::available_bytes()))?)
                        })
                        .err(),
                    bare,
                    arm,
                });
            }
            Err(error) if is_user_error(&error) => return Err(user_error(error, &arm.name)),
            Err(error) => planned.push(Planned {
                plugins: Vec::new(),
                peak: 0,
                needed: 0,
                kept_bytes: 0,
                refused: Some(error),
                bare,
                arm,
            }),
        }
    }
    Ok(planned)
}

/// Bytes of the weights that every run of `plan` encodes from the same numbers. Random ones follow
/// from the seed.
fn kept_bytes(resolved: &ResolvedConfig, plan: &RunPlan) -> u64 {
    if resolved.config().model.init == Init::Random {
        return 0;
    }
    let params = plan.params.iter().enumerate();
    let encoded = params.filter(|(index, _)| !plan.saved.contains_key(index));
    let formats = encoded.filter_map(|(_, param)| match &param.layout {
        WeightLayout::Packed(format) => Some(format.bytes()),
        WeightLayout::Dense(_) => None,
    });
    formats.sum()
}

/// Whether an error is a user error, not one of a plugin, a file or the machine.
fn is_user_error(error: &TrainerError) -> bool {
    let refused_by_plugin = matches!(error, TrainerError::Plugin(PluginFailure { source, .. })
        if source.code == ErrorCode::INVALID);
    refused_by_plugin || error.exit_code() == 2
}

/// The error of a comparison with a user error in one arm.
fn user_error(error: TrainerError, arm: &str) -> Error {
    match &error {
        TrainerError::Plugin(_) => Error::Usage(UsageError {
            message: format!("arm `{arm}`: {}", chain(&error)),
            next_step: error.next_step(),
        }),
        _ => ArmFailure::of(arm, error).into(),
    }
}

/// The order of the arms' steps: as requested, else interleaved where the arms fit in memory
/// together.
///
/// # Errors
/// [`Error::OutOfMemory`] where interleaving is requested and they do not fit.
pub(crate) fn turns(
    asked: Option<Turns>,
    planned: &[Planned],
    observer: &dyn Observer,
) -> Result<Turns, Error> {
    let able = planned.iter().filter(|planned| planned.refused.is_none());
    let needed: u64 = able.map(|planned| planned.needed).sum();
    let available = memory::available_bytes().unwrap_or(u64::MAX);
    match asked {
        Some(Turns::Interleaved) if needed > available => Err(Error::Usage(UsageError {
            message: format!(
                "the arms do not fit together: {} needed, {} available",
                Bytes(needed),
                Bytes(available)
            ),
            next_step: "leave --schedule out, or set it to sequential".to_owned(),
        })),
        Some(turns) => Ok(turns),
        None if needed <= available => Ok(Turns::Interleaved),
        None => {
            observer.observe(&Event::Note(&format!(
                "the arms do not fit together ({} needed, {} available): one run after the other",
                Bytes(needed),
                Bytes(available)
            )));
            Ok(Turns::Sequential)
        }
    }
}
