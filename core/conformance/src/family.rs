//! The checks of model families.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use espalier_interface::model::Model;
use espalier_interface::{ErrorCode, Family, PluginError};
use serde_json::{Value as Json, json};

use crate::adapter::is_finite;
use crate::checked::{Checked, Fault, calm, ensure, refusal};
use crate::{Subject, Suite, Threads, declared};

/// The capability with the text of a small `config.json` that the family reads.
pub const SAMPLE_CONFIG: &str = "sample_config";

/// Longest time for a description, however absurd the config.
const MOST_TIME: Duration = Duration::from_secs(10);

/// Runs all checks of a family, with `config` or the one in its capability `sample_config`.
pub fn family(subject: &Subject<'_, dyn Family>, config: Option<&Json>, suite: &mut Suite) {
    declared::check(&subject.component, suite);
    declared::created(subject, suite);
    let config = sample(subject, config);
    suite.check(
        "describe.model",
        "a sample config gives a whole model: graphs, units, params with names of their own and finite beginnings",
        || {
            let config = config.clone()?;
            for set in subject.option_sets() {
                let family = subject.make(&set.options, Threads::new(1))?;
                let model = family.describe(&config)?;
                whole(&model).map_err(|fault| fault.at(&set.label))?;
            }
            Ok(())
        },
    );
    suite.check(
        "describe.model_types",
        "the capability `model_types` names the sample's `model_type`",
        || {
            let config = config.clone()?;
            let kind = config["model_type"].as_str().unwrap_or_default();
            let listed = subject.component.capabilities.get("model_types");
            let listed = listed.map_or("", String::as_str);
            let named = listed.split([',', ' ']).any(|one| one == kind);
            ensure(named && !kind.is_empty(), || {
                format!(
                    "the sample's `model_type` is {}, `model_types` is `{listed}`",
                    config["model_type"]
                )
            })
        },
    );
    suite.check(
        "describe.deterministic",
        "the same config gives the same model each time, also of another instance",
        || {
            let config = config.clone()?;
            let options = &subject.option_sets()[0].options;
            let families = [
                subject.make(options, Threads::new(1))?,
                subject.make(options, Threads::new(3))?,
            ];
            let model = families[0].describe(&config)?;
            let again = [
                families[0].describe(&config)?,
                families[1].describe(&config)?,
            ];
            ensure(again.iter().all(|one| *one == model), || {
                "two descriptions of one config differ".into()
            })
        },
    );
    suite.check(
        "describe.refused",
        "a field that is missing, zero, negative, huge or of another type gives a whole model or is refused by name, soon",
        || {
            let config = config.clone()?;
            let family = subject.make(&subject.option_sets()[0].options, Threads::new(1))?;
            spoiled(family.as_ref(), &config)
        },
    );
}

/// The config to test a family with; a family without one skips the checks.
///
/// # Errors
/// [`Fault::Failed`] where the capability is not JSON, [`Fault::Skipped`] where there is no config.
pub fn sample(subject: &Subject<'_, dyn Family>, given: Option<&Json>) -> Checked<Json> {
    match (given, subject.component.capabilities.get(SAMPLE_CONFIG)) {
        (Some(config), _) => Ok(config.clone()),
        (None, Some(text)) => serde_json::from_str(text)
            .map_err(|error| Fault::Failed(format!("capability `{SAMPLE_CONFIG}`: {error}"))),
        (None, None) => Err(Fault::Skipped(format!(
            "no config to try: declare the text of a small config.json as capability `{SAMPLE_CONFIG}`, or give --model-config FILE"
        ))),
    }
}

fn whole(model: &Model) -> Checked {
    model.validate()?;
    let mut names = BTreeSet::new();
    let mut bound = vec![false; model.params.len()];
    for unit in &model.units {
        unit.params.iter().for_each(|&param| bound[param] = true);
    }
    let mut elements = 0u64;
    for (param, bound) in model.params.iter().zip(bound) {
        let name = &param.name;
        for name in std::iter::once(name).chain(&param.aliases) {
            ensure(names.insert(name), || {
                format!("two params are called `{name}`")
            })?;
        }
        ensure(is_finite(param.init), || {
            format!("param `{name}` begins as {:?}", param.init)
        })?;
        ensure(bound, || format!("param `{name}` belongs to no unit"))?;
        let count = param
            .shape
            .iter()
            .try_fold(1u64, |all, &n| all.checked_mul(n));
        let sum = count
            .filter(|&count| count > 0)
            .and_then(|count| elements.checked_add(count));
        elements = sum.ok_or_else(|| format!("param `{name}` has shape {:?}", param.shape))?;
    }
    ensure(
        model.hidden_size > 0 && model.vocab_size > 0 && model.max_positions > 0,
        || {
            let (hidden, vocab, positions) =
                (model.hidden_size, model.vocab_size, model.max_positions);
            format!("hidden size {hidden}, vocab {vocab}, positions {positions}")
        },
    )
}

/// The sample config with each field replaced by each wrong value.
fn spoiled(family: &dyn Family, config: &Json) -> Checked {
    let fields = config
        .as_object()
        .ok_or("the sample config is no object".to_owned())?;
    for (name, value) in fields {
        let mut without = fields.clone();
        without.remove(name);
        answered(family, &Json::Object(without), fields)
            .map_err(|fault| fault.at(&format!("without `{name}`")))?;
        for wrong in wrongs(value) {
            let mut with = fields.clone();
            with.insert(name.clone(), wrong.clone());
            answered(family, &Json::Object(with), fields)
                .map_err(|fault| fault.at(&format!("`{name}` = {wrong}")))?;
        }
    }
    for config in [json!(null), json!([]), json!("config"), json!({})] {
        let at = format!("the config {config}");
        answered(family, &config, fields).map_err(|fault| fault.at(&at))?;
    }
    Ok(())
}

/// Wrong values to replace a value by.
fn wrongs(value: &Json) -> Vec<Json> {
    let mut wrongs = vec![json!(null), json!([]), json!({})];
    match value {
        Json::Number(_) => wrongs.extend([
            json!(0),
            json!(-1),
            json!(0.5),
            json!(1u64 << 62),
            json!(u64::MAX),
            json!(1e308),
            json!("64"),
            json!(true),
        ]),
        Json::String(_) => wrongs.extend([json!(""), json!("no such value"), json!(7)]),
        Json::Bool(_) => wrongs.extend([json!(1), json!("true")]),
        _ => wrongs.push(json!(-1)),
    }
    wrongs
}

/// Fails unless the answer is a valid description, or a refusal that names a field.
fn answered(family: &dyn Family, config: &Json, fields: &serde_json::Map<String, Json>) -> Checked {
    let begin = Instant::now();
    let described = calm(|| Ok(family.describe(config)))?;
    let taken = begin.elapsed();
    ensure(taken <= MOST_TIME, || {
        format!("it took {} s", taken.as_secs())
    })?;
    match described {
        Ok(model) => whole(&model),
        Err(error) => {
            refusal(&error)?;
            let known = [ErrorCode::INVALID, ErrorCode::UNSUPPORTED].contains(&error.code);
            ensure(known, || code_of(&error))?;
            let names_one = fields
                .keys()
                .any(|name| error.message.contains(name.as_str()))
                || error.message.contains("config.json");
            ensure(names_one, || {
                format!("the refusal names no field: {}", error.message)
            })
        }
    }
}

fn code_of(error: &PluginError) -> String {
    let (code, message) = (error.code.0, &error.message);
    format!("expected code INVALID or UNSUPPORTED, found {code}: {message}")
}
