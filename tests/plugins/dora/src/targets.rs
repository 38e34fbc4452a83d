//! The option `targets` and a model's sites -> the linears that are joined, matched as PEFT matches
//! `target_modules`.

use espalier_interface::adaptation::{Site, SiteKind};
use espalier_interface::{PluginError, Result};
use serde_json::{Value as Json, json};

/// The linears that are selected.
#[derive(Clone, Debug, PartialEq)]
pub enum Targets {
    /// Every linear inside a layer.
    AllLinear,
    /// Linears whose name equals an entry or ends in `.` and an entry.
    Names(Vec<String>),
}

impl Targets {
    /// Reads `all-linear` or a list of texts.
    ///
    /// # Errors
    /// `UNSUPPORTED` for another text, which PEFT takes as a regular expression; `INVALID` for
    /// anything else.
    pub fn read(json: &Json) -> Result<Self> {
        match json {
            Json::String(text) if text.to_lowercase() == "all-linear" => Ok(Targets::AllLinear),
            Json::String(text) => Err(PluginError::unsupported(format!(
                "targets `{text}` is a regular expression, expected `all-linear` or a list of names"
            ))),
            Json::Array(list) => {
                let texts = list.iter().map(|entry| entry.as_str().map(str::to_owned));
                let names = texts.collect::<Option<Vec<_>>>();
                names.map(Targets::Names).ok_or_else(|| expected(json))
            }
            _ => Err(expected(json)),
        }
    }

    /// `target_modules` as PEFT writes it: the last parts of names where they name no other site,
    /// else whole names.
    ///
    /// # Errors
    /// As [`Targets::pick`].
    pub fn saved(&self, sites: &[Site]) -> Result<Json> {
        let chosen = self.pick(sites)?;
        let mut names: Vec<&str> = Vec::new();
        for &index in &chosen {
            let name = sites[index].name.as_str();
            let last = name.rsplit('.').next().unwrap_or(name);
            let mut alike = (0..sites.len()).filter(|&other| ends(&sites[other], last));
            let entry = if alike.all(|other| chosen.contains(&other)) {
                last
            } else {
                name
            };
            if !names.contains(&entry) {
                names.push(entry);
            }
        }
        Ok(json!(names))
    }

    /// The indices of the selected sites.
    ///
    /// # Errors
    /// `INVALID` for a target that names no linear, with the sites that exist.
    pub fn pick(&self, sites: &[Site]) -> Result<Vec<usize>> {
        let refuse = |what: String| {
            let known: Vec<&str> = sites.iter().map(|site| site.name.as_str()).collect();
            let known = known.join(", ");
            Err(PluginError::invalid(format!(
                "{what}; the sites are {known}"
            )))
        };
        if let Targets::Names(names) = self {
            for name in names {
                let mut named = sites.iter().filter(|site| ends(site, name)).peekable();
                if named.peek().is_none() {
                    return refuse(format!("target `{name}` ends the name of no site"));
                }
                if let Some(table) = named.find(|site| site.kind == SiteKind::Embedding) {
                    return refuse(format!(
                        "target `{name}` names the token table `{}`: this adapter joins linears alone",
                        table.name
                    ));
                }
            }
        }
        let chosen = |site: &Site| match self {
            Targets::AllLinear => site.kind == SiteKind::Linear,
            Targets::Names(names) => names.iter().any(|name| ends(site, name)),
        };
        let picked: Vec<usize> = (0..sites.len()).filter(|&at| chosen(&sites[at])).collect();
        if picked.is_empty() {
            return refuse("the targets select no linear".to_owned());
        }
        Ok(picked)
    }
}

/// Matches like PEFT: the whole name, or the part after a dot.
fn ends(site: &Site, name: &str) -> bool {
    let before = site.name.strip_suffix(name);
    before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

fn expected(found: &Json) -> PluginError {
    PluginError::invalid(format!(
        "targets: expected `all-linear` or a list of names, found {found}"
    ))
}
