//! Declared options -> the option sets to test: the defaults, and each option's bounds and
//! alternatives.

use espalier_interface::Options;
use espalier_interface::abi::descriptor::{ComponentDescriptor, OptionDescriptor};
use espalier_interface::range::{self, Clause, High};
use serde_json::{Map, Value as Json, json};

/// A set of options, with its name in reports.
#[derive(Clone, Debug, PartialEq)]
pub struct OptionSet {
    /// `defaults`, or the options that differ from them.
    pub label: String,
    /// Every option with its value.
    pub options: Options,
}

/// The defaults with the options in `given`. Then, for each other option, its further values, one
/// at a time. Then all options at their last further value.
pub fn option_sets(component: &ComponentDescriptor, given: &Map<String, Json>) -> Vec<OptionSet> {
    let mut base = Options::default();
    for option in &component.options {
        let value = given.get(&option.name).unwrap_or(&option.default);
        if !value.is_null() {
            base.0.insert(option.name.clone(), value.clone());
        }
    }
    let label = if given.is_empty() {
        "defaults".to_owned()
    } else {
        labelled(given)
    };
    let mut sets = vec![OptionSet {
        label,
        options: base.clone(),
    }];
    let mut all = Map::new();
    let free = |option: &&OptionDescriptor| !given.contains_key(&option.name);
    for option in component.options.iter().filter(free) {
        for value in alternatives(option) {
            let change = Map::from_iter([(option.name.clone(), value.clone())]);
            all.insert(option.name.clone(), value);
            sets.push(changed(&base, &change));
        }
    }
    if all.len() > 1 {
        sets.push(changed(&base, &all));
    }
    sets
}

fn changed(base: &Options, changes: &Map<String, Json>) -> OptionSet {
    let mut options = base.clone();
    options.0.extend(changes.clone());
    OptionSet {
        label: labelled(changes),
        options,
    }
}

fn labelled(changes: &Map<String, Json>) -> String {
    let parts = changes
        .iter()
        .map(|(name, value)| format!("{name} = {value}"));
    parts.collect::<Vec<_>>().join(", ")
}

/// Values that the declaration allows, without the default.
pub fn alternatives(option: &OptionDescriptor) -> Vec<Json> {
    // The names in a table are the component's own.
    if option.default.is_object() {
        return Vec::new();
    }
    let clauses = range::clauses(&option.range);
    let mut values = Vec::new();
    for clause in &clauses {
        match clause {
            Clause::OneOf(words) => {
                values.extend(words.iter().filter_map(|word| value_of(option, word)));
            }
            Clause::Bounds { low, high } => values.extend(bounds(option, *low, *high)),
            Clause::PowerOfTwo => {}
        }
    }
    match (option.kind.as_str(), option.default.as_bool()) {
        ("bool", Some(default)) => values.push(json!(!default)),
        ("integer", _) if values.is_empty() => {
            values.extend(option.default.as_i64().map(|x| json!(2 * x)));
        }
        _ => {}
    }
    let allowed = |value: &Json| range::allows(&option.range, value) && *value != option.default;
    values.retain(allowed);
    values.dedup();
    values
}

/// A word of a range as a JSON value of the option's type.
fn value_of(option: &OptionDescriptor, word: &str) -> Option<Json> {
    match option.kind.as_str() {
        "integer" => word.parse::<i64>().ok().map(|x| json!(x)),
        "number" => word.parse::<f64>().ok().map(|x| json!(x)),
        "text" | "texts" => Some(json!(word)),
        _ => None,
    }
}

/// The bounds of a range; a multiple of the default where one is open.
fn bounds(option: &OptionDescriptor, low: f64, high: High) -> Vec<Json> {
    let default = option.default.as_f64().unwrap_or(0.0);
    if option.kind == "integer" {
        let high = match high {
            High::UpTo(bound) => bound,
            High::Below(bound) => bound - 1.0,
            High::Open => 2.0 * default,
        };
        // An integer beyond these is a size that no machine has.
        let whole = |x: f64| (x.abs() <= 1e6).then(|| json!(x as i64));
        return [low, high].into_iter().filter_map(whole).collect();
    }
    let high = match high {
        High::UpTo(bound) => bound,
        High::Below(bound) if low.is_finite() => low + 0.75 * (bound - low),
        High::Below(bound) => bound - 1.0,
        High::Open => 2.0 * default,
    };
    let finite = [low, high].into_iter().filter(|x| x.is_finite());
    finite.map(|x| json!(x)).collect()
}

#[cfg(test)]
mod tests;
