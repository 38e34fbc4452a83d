//! Checks that each pattern of a config matches something in the plan, and else names what is close
//! to it.

use std::collections::BTreeSet;

use espalier_compile::params::{Param, Training};
use espalier_config::{Origin, ResolvedConfig, nearest, pattern_matches};
use espalier_interface::adaptation::{Site, SiteKind};
use espalier_interface::{DType, WeightLayout};
use espalier_registry::select::Quantizers;
use espalier_system::failure::UsageError;

use crate::Error;
use crate::plan::RunPlan;
use crate::trained_weights::EXPANDED;

/// Most names that an error lists.
const MOST_NAMES: usize = 12;

/// Refuses patterns that match nothing, and those that match only what they cannot change.
///
/// # Errors
/// [`Error::Usage`] with the pattern and the closest names.
pub fn check(
    resolved: &ResolvedConfig,
    quantizers: &Quantizers,
    plan: &RunPlan,
) -> Result<(), Error> {
    check_matches(resolved, quantizers, plan)?;
    let key = "model.keep_f32";
    let patterns = written(resolved, key, &resolved.config().model.keep_f32);
    patterns.iter().try_for_each(|pattern| {
        let matched = || matching(&plan.params, pattern);
        if matched().any(stays_wide) {
            Ok(())
        } else {
            Err(powerless(resolved, pattern, matched()))
        }
    })
}

/// Refuses patterns that match nothing.
///
/// # Errors
/// As [`check`].
pub fn check_matches(
    resolved: &ResolvedConfig,
    quantizers: &Quantizers,
    plan: &RunPlan,
) -> Result<(), Error> {
    check_sites(resolved, quantizers, &plan.sites)?;
    check_groups(resolved, plan)?;
    let options = &resolved.config().model;
    check_params(resolved, plan, "model.keep_f32", &options.keep_f32)?;
    check_params(resolved, plan, "model.train_only", &options.train_only)
}

/// Refuses patterns of `key` that match no param.
fn check_params(
    resolved: &ResolvedConfig,
    plan: &RunPlan,
    key: &str,
    patterns: &[String],
) -> Result<(), Error> {
    let names = || plan.params.iter().map(|param| param.name.as_str());
    let patterns = written(resolved, key, patterns).iter();
    let mut patterns = patterns.filter(|pattern| *pattern != EXPANDED);
    patterns.try_for_each(|pattern| {
        if names().any(|name| pattern_matches(pattern, name)) {
            Ok(())
        } else {
            // The last two parts of a weight's name distinguish weights: `q_proj.weight`.
            let near = Near::of(pattern, names(), 2);
            Err(nothing(resolved, key, key, pattern, "parameter", &near))
        }
    })
}

/// Refuses `[[optim.groups]]` that hold no trained parameter. Without training there are none.
fn check_groups(resolved: &ResolvedConfig, plan: &RunPlan) -> Result<(), Error> {
    if plan.training == Training::Nothing {
        return Ok(());
    }
    let rules = written(resolved, "optim.groups", &resolved.config().optim.groups);
    for (index, rule) in rules.iter().enumerate() {
        let key = format!("optim.groups.{index}.pattern");
        let trained = || plan.params.iter().filter(|param| param.trainable);
        let mut matched = trained().filter(|param| rule.matches(&param.name));
        let Some(param) = matched.next() else {
            let near = Near::of(&rule.pattern, trained().map(|param| param.name.as_str()), 2);
            let (origin, what) = ("optim.groups", "trained parameter");
            return Err(nothing(resolved, origin, &key, &rule.pattern, what, &near));
        };
        let earlier = |name: &str| rules[..index].iter().find(|rule| rule.matches(name));
        let Some(first) = earlier(&param.name) else {
            continue;
        };
        if matched.all(|param| earlier(&param.name).is_some()) {
            return Err(Error::Usage(UsageError {
                message: format!(
                    "`{key}`: \"{}\" ({}) holds no parameter: the first pattern that matches \
                     holds, and \"{}\" is before it",
                    rule.pattern,
                    resolved.origin("optim.groups"),
                    first.pattern
                ),
                next_step: "put the narrower pattern first, or leave this one out".to_owned(),
            }));
        }
    }
    Ok(())
}

/// Refuses `[[sites]]` that match no site, and options of a quantizer where none is used.
///
/// # Errors
/// As [`check`].
pub fn check_sites(
    resolved: &ResolvedConfig,
    quantizers: &Quantizers,
    sites: &[Site],
) -> Result<(), Error> {
    let rules = written(resolved, "sites", &resolved.config().sites);
    let sites = || sites.iter().filter(|site| site.kind != SiteKind::Norm);
    for (index, rule) in rules.iter().enumerate() {
        let key = format!("sites.{index}.match");
        if !sites().any(|site| rule.matches(&site.name)) {
            let names = sites().map(|site| site.name.as_str());
            let near = Near::of(&rule.pattern, names, 1);
            return Err(nothing(
                resolved,
                "sites",
                &key,
                &rule.pattern,
                "site",
                &near,
            ));
        }
        let used = match rule.quantizer.as_deref() {
            Some(name) => name != "none",
            None => quantizers.pack_by_default(),
        };
        if let (false, Some(option)) = (used, rule.options.keys().next()) {
            return Err(Error::Usage(UsageError {
                message: format!(
                    "`sites.{index}.options.{option}` ({}) is of a quantizer, and `{}` has none",
                    resolved.origin("sites"),
                    rule.pattern
                ),
                next_step: format!(
                    "name the quantizer as `sites.{index}.quantizer`, or leave the options out"
                ),
            }));
        }
    }
    Ok(())
}

/// The patterns of `key` that the command line or its files give; empty where they come from the
/// record of a run.
fn written<'a, T>(resolved: &ResolvedConfig, key: &str, patterns: &'a [T]) -> &'a [T] {
    match resolved.origin(key) {
        Origin::Record(_) => &[],
        _ => patterns,
    }
}

fn matching<'a>(params: &'a [Param], pattern: &'a str) -> impl Iterator<Item = &'a Param> {
    let params = params.iter();
    params.filter(move |param| pattern_matches(pattern, &param.name))
}

/// Whether a param is stored as f32 or wider.
fn stays_wide(param: &Param) -> bool {
    matches!(param.layout, WeightLayout::Dense(DType::F32 | DType::F64))
}

/// The error for a pattern of `model.keep_f32` that changes none of the params it matches.
fn powerless<'a>(
    resolved: &ResolvedConfig,
    pattern: &str,
    mut matched: impl Iterator<Item = &'a Param>,
) -> Error {
    let packed = matched.find_map(|param| match &param.layout {
        WeightLayout::Packed(format) => Some((&param.name, &format.quantizer)),
        WeightLayout::Dense(_) => None,
    });
    let (what, next_step) = match packed {
        Some((name, quantizer)) => (
            format!("packed weights (`{name}` by `{quantizer}`), which it does not unpack"),
            "keep a weight dense by [[sites]] with quantizer = \"none\", or leave the pattern out",
        ),
        None => (
            "trained parameters, whose number type is model.params".to_owned(),
            "set model.params = \"f32\", or leave the pattern out",
        ),
    };
    Error::Usage(UsageError {
        message: format!(
            "`model.keep_f32`: \"{pattern}\" ({}) matches only {what}",
            resolved.origin("model.keep_f32")
        ),
        next_step: next_step.to_owned(),
    })
}

/// Names similar to a pattern.
struct Near<'a> {
    /// The closest name, as a pattern.
    nearest: Option<String>,
    /// The endings of all names.
    endings: BTreeSet<&'a str>,
}

impl<'a> Near<'a> {
    /// The names close to `pattern` among `names`. The last `parts` parts of a name distinguish
    /// names.
    fn of(pattern: &str, names: impl Iterator<Item = &'a str>, parts: usize) -> Self {
        let endings: BTreeSet<&str> = names.map(|name| ending(name, parts)).collect();
        let wanted = ending(pattern, parts).trim_matches(['*', '.']);
        let last = ending(wanted, 1);
        let near = |wanted| nearest(wanted, endings.iter().copied());
        let found = near(wanted).or_else(|| near(last));
        Near {
            nearest: found.map(|ending| format!("*{ending}")),
            endings,
        }
    }
}

/// The last `parts` parts of a name, separated by dots.
fn ending(name: &str, parts: usize) -> &str {
    let dots = name.rmatch_indices('.');
    let dot = dots.map(|(at, _)| at).nth(parts - 1);
    dot.map_or(name, |at| &name[at + 1..])
}

/// The error for a pattern that matches nothing.
fn nothing(
    resolved: &ResolvedConfig,
    origin: &str,
    key: &str,
    pattern: &str,
    what: &str,
    near: &Near<'_>,
) -> Error {
    let meant = match &near.nearest {
        Some(nearest) => format!(", the nearest is \"{nearest}\""),
        None => String::new(),
    };
    let shown = near.endings.iter().take(MOST_NAMES);
    let mut shown: Vec<String> = shown.map(|ending| format!("`{ending}`")).collect();
    if near.endings.len() > MOST_NAMES {
        shown.push("...".to_owned());
    }
    Error::Usage(UsageError {
        message: format!(
            "`{key}`: \"{pattern}\" ({}) matches no {what} of this run{meant}; their names end in {}",
            resolved.origin(origin),
            shown.join(", ")
        ),
        next_step: "write it as one of those, with `*` for the text before it, or leave it out"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_without_a_match_report_the_nearest_ending() {
        let names = [
            "model.embed_tokens.weight",
            "model.layers.0.input_layernorm.weight",
            "model.layers.0.mlp.down_proj.weight",
            "model.norm.weight",
        ];
        let meant = |pattern| Near::of(pattern, names.into_iter(), 2).nearest;
        assert_eq!(
            meant("*.down_prj.weight").as_deref(),
            Some("*down_proj.weight")
        );
        assert_eq!(meant("*.norm").as_deref(), Some("*norm.weight"));
        assert_eq!(
            meant("*input_layernorm*").as_deref(),
            Some("*input_layernorm.weight")
        );
        assert_eq!(meant("*.experts.*"), None);
        let sites = ["model.layers.0.mlp.down_proj", "lm_head"];
        let meant = |pattern| Near::of(pattern, sites.into_iter(), 1).nearest;
        assert_eq!(meant("*.down_porj").as_deref(), Some("*down_proj"));
        assert_eq!(
            meant("model.layers.9.mlp.down_proj").as_deref(),
            Some("*down_proj")
        );
    }
}
