//! A table of numbers by patterns of names, and a site -> its number, as PEFT's `rank_pattern` and
//! `alpha_pattern`.

use std::collections::BTreeSet;

use espalier_interface::adaptation::Site;
use espalier_interface::{PluginError, Result};
use regex::Regex;
use serde_json::{Map, Value as Json};

use crate::targets::{ending, nearest};

/// Numbers by patterns, of which the first that matches a site holds.
#[derive(Clone, Debug)]
pub struct Patterns {
    /// The option's name.
    option: &'static str,
    /// As they were written: what a config and PEFT's files hold.
    written: Map<String, Json>,
    /// The expression of each for whole names.
    expressions: Vec<Regex>,
}

impl Patterns {
    /// Reads a table; nothing is an empty one.
    ///
    /// # Errors
    /// `INVALID` where it is none, or a key is not a regular expression.
    pub fn read(option: &'static str, json: Option<&Json>) -> Result<Self> {
        let written = match json {
            None | Some(Json::Null) => Map::new(),
            Some(Json::Object(written)) => written.clone(),
            Some(other) => {
                return Err(PluginError::invalid(format!(
                    "{option}: expected a table of numbers by patterns of names, found {other}"
                )));
            }
        };
        let expressions = written.keys().map(|key| expression(option, key));
        Ok(Patterns {
            option,
            expressions: expressions.collect::<Result<_>>()?,
            written,
        })
    }

    /// The number of a site, where a pattern matches its name.
    pub fn of(&self, site: &Site) -> Option<&Json> {
        let found = self.expressions.iter();
        let found = found.zip(self.written.values());
        let mut found = found.filter(|(expression, _)| expression.is_match(&site.name));
        found.next().map(|(_, number)| number)
    }

    /// The table as it was written.
    pub fn written(&self) -> &Map<String, Json> {
        &self.written
    }

    /// Checks that each pattern matches one of the joined sites.
    ///
    /// # Errors
    /// `INVALID` with the pattern, the nearest name and those that there are.
    pub fn check(&self, joined: &[&Site]) -> Result<()> {
        let idle = self.expressions.iter().zip(self.written.keys());
        let mut idle = idle.filter(|(one, _)| !joined.iter().any(|site| one.is_match(&site.name)));
        let Some((_, pattern)) = idle.next() else {
            return Ok(());
        };
        let endings: BTreeSet<&str> = joined.iter().map(|site| ending(&site.name)).collect();
        let hint = nearest(pattern, &endings);
        let endings: Vec<String> = endings.iter().map(|known| format!("`{known}`")).collect();
        Err(PluginError::invalid(format!(
            "{} `{pattern}` matches no site that the targets select{hint}; their names end in {}",
            self.option,
            endings.join(", ")
        )))
    }
}

/// Matches a whole name, or what follows a dot in it.
///
/// # Source
/// PEFT, `get_pattern_key`: `re.match(rf"(.*\.)?({key})$", name)`.
fn expression(option: &str, key: &str) -> Result<Regex> {
    Regex::new(&format!(r"\A(?:.*\.)?(?:{key})\z")).map_err(|_| {
        PluginError::invalid(format!(
            "{option} `{key}` is no regular expression: write the end of a name, such as `q_proj`"
        ))
    })
}

#[cfg(test)]
mod tests;
