//! The option `targets` and a model's sites -> the sites that are joined, matched as PEFT matches
//! `target_modules`.

use std::collections::BTreeSet;

use espalier_interface::adaptation::{Site, SiteKind};
use espalier_interface::{PluginError, Result};
use regex::Regex;
use serde_json::Value as Json;

/// The sites that are selected.
#[derive(Clone, Debug)]
pub enum Targets {
    /// Every linear inside a layer; neither embeddings nor the head.
    AllLinear,
    /// Sites whose name equals an entry or ends in `.` and an entry.
    Names(Vec<String>),
    /// Sites whose whole name matches the expression; with the expression's text.
    Pattern(Box<Regex>, String),
}

impl Targets {
    /// Reads a text or a list of texts.
    ///
    /// # Errors
    /// `INVALID` where it is neither, or not a regular expression.
    pub fn read(json: &Json) -> Result<Self> {
        match json {
            // PEFT accepts its shorthand in any letter case.
            Json::String(text) if text.to_lowercase() == "all-linear" => Ok(Targets::AllLinear),
            Json::String(text) => match Regex::new(&format!(r"\A(?:{text})\z")) {
                Ok(pattern) => Ok(Targets::Pattern(Box::new(pattern), text.clone())),
                Err(error) => {
                    let error = error.to_string();
                    let reason = error
                        .lines()
                        .last()
                        .unwrap_or("")
                        .trim_start_matches("error: ");
                    Err(PluginError::invalid(format!(
                        "targets `{text}` is no regular expression: {reason}; \
                         write a list to name sites: [\"q_proj\", \"v_proj\"]"
                    )))
                }
            },
            Json::Array(list) => {
                let texts = list.iter().map(|entry| entry.as_str().map(str::to_owned));
                match texts.collect::<Option<Vec<_>>>() {
                    Some(names) => Ok(Targets::Names(names)),
                    None => Err(expected(json)),
                }
            }
            _ => Err(expected(json)),
        }
    }

    /// Indices of the selected sites, in the order of `sites`.
    ///
    /// # Errors
    /// `INVALID` where no site matches, or an entry of a list matches none, with the endings that
    /// exist.
    pub fn pick(&self, sites: &[Site]) -> Result<Vec<usize>> {
        let joinable = || sites.iter().filter(|site| can_join(site));
        let chosen: Vec<usize> = (0..sites.len())
            .filter(|&index| can_join(&sites[index]) && self.matches(&sites[index]))
            .collect();
        match self {
            Targets::Names(names) => {
                let idle = names
                    .iter()
                    .find(|name| !joinable().any(|site| is_named(&site.name, name)));
                if let Some(name) = idle {
                    return Err(nothing(
                        &format!("target `{name}` matches no site"),
                        name,
                        joinable(),
                    ));
                }
                if names.is_empty() {
                    return Err(nothing("targets is an empty list", "", joinable()));
                }
            }
            Targets::Pattern(_, text) if chosen.is_empty() => {
                let what = format!(
                    "targets `{text}`, a regular expression for whole names, matches no site \
                     (write a list to match endings: [\"{text}\"])"
                );
                return Err(nothing(&what, text, joinable()));
            }
            Targets::AllLinear if chosen.is_empty() => {
                return Err(nothing(
                    "targets `all-linear`: no linear in any layer",
                    "",
                    joinable(),
                ));
            }
            _ => {}
        }
        Ok(chosen)
    }

    fn matches(&self, site: &Site) -> bool {
        match self {
            Targets::AllLinear => site.kind == SiteKind::Linear,
            Targets::Names(names) => names.iter().any(|name| is_named(&site.name, name)),
            Targets::Pattern(pattern, _) => pattern.is_match(&site.name),
        }
    }
}

/// The shortest `target_modules` that match exactly the sites `chosen`: name endings where all
/// sites of an ending are chosen, whole names elsewhere.
pub fn shortest(sites: &[Site], chosen: &[usize]) -> Vec<String> {
    let mut picked = vec![false; sites.len()];
    chosen.iter().for_each(|&index| picked[index] = true);
    let mut names: Vec<String> = Vec::new();
    for &index in chosen {
        let name = &sites[index].name;
        let ending = ending(name);
        let alike =
            |other: &usize| can_join(&sites[*other]) && is_named(&sites[*other].name, ending);
        let mut alike = (0..sites.len()).filter(alike);
        let entry = if alike.all(|other| picked[other]) {
            ending
        } else {
            name
        };
        if !names.iter().any(|known| known == entry) {
            names.push(entry.to_owned());
        }
    }
    names
}

/// Whether an update can join a site: a norm has no matrix.
fn can_join(site: &Site) -> bool {
    site.kind != SiteKind::Norm
}

fn is_named(site: &str, target: &str) -> bool {
    let before = site.strip_suffix(target);
    before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

/// The last part of a module's name.
pub fn ending(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

fn expected(found: &Json) -> PluginError {
    PluginError::invalid(format!(
        "targets: expected `all-linear`, a regular expression or a list of names, found {found}"
    ))
}

/// The error for `what` matches nothing, with the endings of the sites that there are.
pub fn nothing<'a>(what: &str, wanted: &str, sites: impl Iterator<Item = &'a Site>) -> PluginError {
    let endings: BTreeSet<&str> = sites.map(|site| ending(&site.name)).collect();
    let hint = nearest(wanted, &endings);
    let endings: Vec<String> = endings.iter().map(|known| format!("`{known}`")).collect();
    let endings = endings.join(", ");
    PluginError::invalid(format!(
        "{what}{hint}; sites of this model end in {endings}"
    ))
}

/// The one of `endings` that is nearest to a name, in words; empty where none is near.
pub fn nearest(wanted: &str, endings: &BTreeSet<&str>) -> String {
    let nearest = endings
        .iter()
        .map(|known| (strsim::damerau_levenshtein(known, ending(wanted)), known))
        .min()
        .filter(|(distance, known)| *distance <= known.len().div_ceil(2));
    nearest.map_or(String::new(), |(_, known)| {
        format!(", the nearest is `{known}`")
    })
}

#[cfg(test)]
mod tests;
