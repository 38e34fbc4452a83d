//! A config and the registered components -> the arms: each a run's config and its changes to the
//! shared config.

use std::collections::BTreeMap;

use espalier_config::{ArmOptions, Config, ResolvedConfig, SiteRule, parse_value};
use espalier_interface::Role;
use espalier_registry::Registry;
use espalier_system::failure::UsageError;
use serde_json::{Map, Value as Json};

use crate::{ArmFailure, Error};

/// Name of the arm without a quantizer, where it is given by name or added.
pub const DENSE: &str = "dense";

/// Config keys that must be equal in all arms: a section, or one key.
const SHARED: [&str; 5] = ["data.", "run.", "model.path", "model.adapter", "model.init"];

/// An arm of the config.
#[derive(Clone, Debug)]
pub(crate) struct ArmConfig {
    /// Its name, also of its folder.
    pub name: String,
    /// Its changes to the shared config.
    pub changes: Map<String, Json>,
    /// Its config, with the first seed and without an output directory.
    pub resolved: ResolvedConfig,
    /// Whether the config names no quantizer for it.
    pub dense: bool,
    /// Whether it was added without being named.
    pub added: bool,
    /// Name of the arm whose memory its bits were chosen for.
    pub same_memory_as: Option<String>,
}

/// The bits that were chosen for the memory of an arm in short.
#[derive(Clone, Debug)]
pub(crate) struct ChosenBits {
    /// The arm as it is written.
    pub arm: String,
    /// The rules that give these bits.
    pub rules: Vec<SiteRule>,
}

/// An arm as requested.
struct RequestedArm {
    options: ArmOptions,
    /// Whether the run's own quantizer is left out.
    dense: bool,
    added: bool,
    same_memory_as: Option<String>,
}

/// The arms, the dense baseline first: the first arm that names no quantizer, or one that is added.
/// An arm in short of `chosen_bits` is followed by one with these.
///
/// # Errors
/// [`Error::Usage`] for invalid `[compare]` or `[[arms]]` sections.
pub(crate) fn arms(
    resolved: &ResolvedConfig,
    chosen_bits: &[ChosenBits],
    registry: &Registry,
) -> Result<Vec<ArmConfig>, Error> {
    let base = shared(resolved)?;
    let config = resolved.config();
    let mut requested: Vec<RequestedArm> =
        config.arms.iter().cloned().map(RequestedArm::of).collect();
    for item in &config.compare.arms {
        let in_short = in_short(item, registry)?;
        let name = in_short.options.name.clone();
        requested.push(in_short);
        let mut chosen = chosen_bits.iter();
        if let Some(chosen) = chosen.find(|chosen| chosen.arm == *item) {
            requested.push(RequestedArm::chosen(&name, chosen, &config.sites));
        }
    }
    if requested.is_empty() {
        return Err(Error::Usage(UsageError {
            message: "no arms were given: there is nothing to compare".to_owned(),
            next_step: "name them with --arms nf4,int8, or as [[arms]] in a --config file"
                .to_owned(),
        }));
    }
    refuse_names(&requested)?;
    let resolve = |requested: &RequestedArm| apply_changes(&base, requested, registry);
    let mut arms: Vec<ArmConfig> = requested.iter().map(resolve).collect::<Result<_, _>>()?;
    match arms.iter().position(|arm| arm.dense) {
        Some(dense_baseline) => arms[..=dense_baseline].rotate_right(1),
        None if config.compare.dense => {
            let taken = arms.iter().any(|arm| arm.name == DENSE);
            let name = if taken { "yardstick" } else { DENSE };
            arms.insert(0, resolve(&RequestedArm::dense(name))?);
        }
        None => {}
    }
    refuse_equal(&arms)?;
    if arms.len() == 1 && config.compare.seeds == 1 {
        return Err(Error::Usage(UsageError {
            message: format!("`{}` is the only arm, under one seed", arms[0].name),
            next_step: "name another arm, or more seeds for its noise floor".to_owned(),
        }));
    }
    Ok(arms)
}

impl RequestedArm {
    fn of(options: ArmOptions) -> Self {
        RequestedArm {
            options,
            dense: false,
            added: false,
            same_memory_as: None,
        }
    }

    fn dense(name: &str) -> Self {
        RequestedArm {
            options: ArmOptions {
                name: name.to_owned(),
                ..ArmOptions::default()
            },
            dense: true,
            added: true,
            same_memory_as: None,
        }
    }

    /// The bits chosen for the memory of the arm `uniform`; rules of the config hold over them.
    fn chosen(uniform: &str, bits: &ChosenBits, own: &[SiteRule]) -> Self {
        let sites: Vec<&SiteRule> = bits.rules.iter().chain(own).collect();
        let sites = serde_json::to_value(sites).expect("rules are plain data");
        let mut chosen = RequestedArm::dense(&format!("{uniform}-chosen"));
        chosen.options.sections.insert("sites".to_owned(), sites);
        chosen.added = false;
        chosen.same_memory_as = Some(uniform.to_owned());
        chosen
    }
}

/// The shared config of all arms. Values that depend on the first seed but must be equal under all
/// seeds are set explicitly.
fn shared(resolved: &ResolvedConfig) -> Result<ResolvedConfig, Error> {
    let base = resolved.without(&["compare", "arms", "run.out"])?;
    let run = &base.config().run;
    if run.keep_best || run.stop_after_worse.is_some() {
        return Err(Error::Usage(UsageError {
            message:
                "run.keep_best and run.stop_after_worse are set, and a comparison measures all \
                      arms after the same steps"
                    .to_owned(),
            next_step: "leave both out; run.eval_every shows how each arm's held-out loss goes"
                .to_owned(),
        }));
    }
    let data = &base.config().data;
    if data.eval_split.is_none() || data.split_seed.is_some() {
        return Ok(base);
    }
    let seed = format!("data.split_seed={}", base.config().run.seed);
    Ok(base.overlaid("the comparison", Map::new(), &[seed])?)
}

/// `nf4` or `nf4:block_size=128`: a component, with its options after colons.
fn in_short(item: &str, registry: &Registry) -> Result<RequestedArm, Error> {
    let name = item.replace(|letter| !is_name_char(letter), "-");
    if item == DENSE {
        return Ok(RequestedArm {
            added: false,
            ..RequestedArm::dense(DENSE)
        });
    }
    let component = item.split(':').next().unwrap_or_default();
    let roles = registry.roles_of(&[component]);
    let roles = roles.map_err(|error| ArmFailure::of(item, error))?;
    // The roles leave out the collective of devices, which stands beside another one.
    let role = roles.keys().next().copied().unwrap_or(Role::COLLECTIVE);
    let given = options_after_colons("arm", item)?;
    let mut sections = Map::new();
    if !given.is_empty() {
        let section = Map::from_iter([(component.to_owned(), Json::Object(given))]);
        sections.insert(role.0.to_owned(), Json::Object(section));
    }
    Ok(RequestedArm::of(ArmOptions {
        name,
        plugins: vec![component.to_owned()],
        sections,
    }))
}

/// The options of `item`, `component:option=value:..`, which is called `what` in messages.
///
/// # Errors
/// [`Error::Usage`] for text after a colon that is no assignment.
pub(crate) fn options_after_colons(what: &str, item: &str) -> Result<Map<String, Json>, Error> {
    let mut parts = item.split(':');
    let component = parts.next().unwrap_or_default();
    let mut given = Map::new();
    for part in parts {
        let (key, text) = part.split_once('=').ok_or_else(|| {
            let table = if what == "arm" {
                ", or as a table [[arms]]"
            } else {
                ""
            };
            Error::Usage(UsageError {
                message: format!(
                    "{what} `{item}`: expected option=value after a colon, found `{part}`"
                ),
                next_step: format!("write it as {component}:option=value{table}"),
            })
        })?;
        let value = parse_value(text).map_err(|message| {
            Error::Usage(UsageError {
                message: format!("{what} `{item}`: {key}: {message}"),
                next_step: "correct the value".to_owned(),
            })
        })?;
        given.insert(key.to_owned(), value);
    }
    Ok(given)
}

/// Whether the name of an arm, which is a folder name, can contain `letter`.
fn is_name_char(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "._-=+".contains(letter)
}

/// Refuses names that are no folder names, and duplicates.
fn refuse_names(requested: &[RequestedArm]) -> Result<(), Error> {
    let names = || {
        requested
            .iter()
            .map(|requested| requested.options.name.as_str())
    };
    for (index, name) in names().enumerate() {
        if name.is_empty() || name.starts_with('.') || !name.chars().all(is_name_char) {
            return Err(Error::Usage(UsageError {
                message: format!("`{name}` is not a valid arm name: it names the arm's folder"),
                next_step: "use letters, digits and . _ - = +, no point first".to_owned(),
            }));
        }
        if names().take(index).any(|earlier| earlier == name) {
            return Err(Error::Usage(UsageError {
                message: format!("two arms are called `{name}`"),
                next_step: "give each [[arms]] a name of its own".to_owned(),
            }));
        }
    }
    Ok(())
}

/// Applies an arm's changes to the shared config.
fn apply_changes(
    base: &ResolvedConfig,
    requested: &RequestedArm,
    registry: &Registry,
) -> Result<ArmConfig, Error> {
    let ArmOptions {
        name,
        plugins: own,
        sections,
    } = &requested.options;
    let roles = registry.roles_of(own);
    let roles = roles.map_err(|error| ArmFailure::of(name, error))?;
    let current = registry.roles_of(&base.config().plugins)?;
    let joins_devices = registry.device_collective(own)?.is_some();
    let on_devices = registry.device_collective(&base.config().plugins)?;
    let on_devices = on_devices.filter(|_| joins_devices);
    let replaced = |plugin: &String| {
        if on_devices.as_ref() == Some(plugin) {
            return true;
        }
        let mut playing = current.iter().filter(|(_, component)| *component == plugin);
        playing.any(|(role, _)| {
            roles.contains_key(role) || (requested.dense && *role == Role::QUANTIZER)
        })
    };
    let mut plugins = base.config().plugins.clone();
    plugins.retain(|plugin| !replaced(plugin));
    plugins.extend(own.iter().cloned());
    let mut changes = Map::new();
    if plugins != base.config().plugins {
        changes.insert("plugins".to_owned(), Json::from(plugins));
    }
    if requested.dense && !base.config().sites.is_empty() {
        changes.insert("sites".to_owned(), Json::Array(Vec::new()));
    }
    changes.extend(sections.clone());
    let resolved = base.overlaid(&format!("arm `{name}`"), changes.clone(), &[]);
    let resolved = resolved.map_err(|error| ArmFailure::of(name, error))?;
    refuse_other_data(name, base, &resolved)?;
    Ok(ArmConfig {
        dense: is_dense(resolved.config(), registry)?,
        added: requested.added,
        same_memory_as: requested.same_memory_as.clone(),
        name: name.clone(),
        changes,
        resolved,
    })
}

/// Refuses an arm with other rows, another seed or another model.
fn refuse_other_data(name: &str, base: &ResolvedConfig, arm: &ResolvedConfig) -> Result<(), Error> {
    let of = |resolved: &ResolvedConfig| -> BTreeMap<String, String> {
        let leaves = espalier_trainer::checkpoint::leaves(&Json::Object(resolved.values()));
        let shared = |key: &str| SHARED.iter().any(|shared| key.starts_with(shared));
        leaves.into_iter().filter(|(key, _)| shared(key)).collect()
    };
    let (base, arm) = (of(base), of(arm));
    let differing = base.keys().chain(arm.keys());
    let mut differing = differing.filter(|key| base.get(*key) != arm.get(*key));
    match differing.next() {
        None => Ok(()),
        Some(key) => {
            let unset = || "unset".to_owned();
            let of_arm = arm.get(key).cloned().unwrap_or_else(unset);
            let of_all = base.get(key).cloned().unwrap_or_else(unset);
            Err(Error::Usage(UsageError {
                message: format!(
                    "arm `{name}` has {key} = {of_arm}, the others {of_all}: arms must \
                     train on the same batches"
                ),
                next_step: format!("set {key} for all arms, outside of [[arms]]"),
            }))
        }
    }
}

/// Refuses two equal arms.
fn refuse_equal(arms: &[ArmConfig]) -> Result<(), Error> {
    let of = |arm: &ArmConfig| {
        let mut config = arm.resolved.config().clone();
        // Components are chosen by name, one per role: their order has no meaning.
        config.plugins.sort();
        config
    };
    for (index, arm) in arms.iter().enumerate() {
        let equal = arms[..index].iter().find(|earlier| of(earlier) == of(arm));
        if let Some(earlier) = equal {
            return Err(Error::Usage(UsageError {
                message: format!(
                    "arms `{}` and `{}` have the same config: nothing differs",
                    earlier.name, arm.name
                ),
                next_step: "leave one out, or let it differ in a plugin or an option".to_owned(),
            }));
        }
    }
    Ok(())
}

/// Whether a config names no quantizer.
fn is_dense(config: &Config, registry: &Registry) -> Result<bool, Error> {
    let roles = registry.roles_of(&config.plugins)?;
    let named = |rule: &espalier_config::SiteRule| {
        let quantizer = rule.quantizer.as_deref();
        quantizer.is_some_and(|quantizer| quantizer != "none")
    };
    Ok(!roles.contains_key(&Role::QUANTIZER) && !config.sites.iter().any(named))
}
