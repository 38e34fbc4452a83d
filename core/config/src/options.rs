//! Options as the user wrote them and as the component declares them -> options with every value
//! set and checked.

use espalier_interface::abi::descriptor::{ComponentDescriptor, OptionDescriptor};
use espalier_interface::{Options, range};
use serde_json::{Map, Value as Json};

use super::nearest;

/// An option that the component does not take.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OptionError {
    /// No option has this name.
    #[error(
        "unknown option `{option}` of {role} `{component}`{}; known: {}",
        meant(.nearest), list(.known)
    )]
    Unknown {
        /// Role of the component.
        role: String,
        /// The component.
        component: String,
        /// The name given.
        option: String,
        /// The known name nearest to it.
        nearest: Option<String>,
        /// The options that it has.
        known: Vec<String>,
    },
    /// A value of another type, or outside the range.
    #[error("option `{role}.{component}.{option}`: expected {expected}, found {found}")]
    Value {
        /// Role of the component.
        role: String,
        /// The component.
        component: String,
        /// The option.
        option: String,
        /// Type and range.
        expected: String,
        /// The value, as JSON.
        found: String,
    },
}

impl OptionError {
    /// The option's name.
    pub fn option(&self) -> &str {
        match self {
            OptionError::Unknown { option, .. } | OptionError::Value { option, .. } => option,
        }
    }

    /// What the user can do next; lower case, no full stop.
    pub fn next_step(&self) -> String {
        match self {
            OptionError::Unknown {
                nearest: Some(nearest),
                ..
            } => format!("write `{nearest}` or remove the key"),
            OptionError::Unknown { component, .. } | OptionError::Value { component, .. } => {
                format!("see `host plugins inspect {component}`")
            }
        }
    }
}

/// Checks `given` against what `component` declares and adds its defaults. A null counts as not
/// given.
///
/// # Errors
/// A name it does not declare, a value of another type or outside its range.
pub fn check(
    component: &ComponentDescriptor,
    given: &Map<String, Json>,
) -> Result<Options, OptionError> {
    let known = || component.options.iter().map(|option| option.name.as_str());
    if let Some(name) = given
        .keys()
        .find(|name| known().all(|option| option != *name))
    {
        return Err(OptionError::Unknown {
            role: component.role.clone(),
            component: component.name.clone(),
            option: name.clone(),
            nearest: nearest(name, known()).map(str::to_owned),
            known: known().map(str::to_owned).collect(),
        });
    }
    let mut options = Map::new();
    for option in &component.options {
        let value = given.get(&option.name).filter(|value| !value.is_null());
        let value = match value {
            None if option.default.is_null() => continue,
            None => option.default.clone(),
            Some(value) if accepts(option, value) => value.clone(),
            Some(value) => {
                return Err(OptionError::Value {
                    role: component.role.clone(),
                    component: component.name.clone(),
                    option: option.name.clone(),
                    expected: expected(option),
                    found: value.to_string(),
                });
            }
        };
        options.insert(option.name.clone(), value);
    }
    Ok(Options(options))
}

fn accepts(option: &OptionDescriptor, value: &Json) -> bool {
    let allowed = |value: &Json| range::allows(&option.range, value);
    match option.kind.as_str() {
        "bool" => value.is_boolean(),
        "integer" => is_whole(value) && allowed(value),
        "number" => value.is_number() && allowed(value),
        "text" => value.is_string() && allowed(value),
        "texts" => match value {
            Json::Array(list) => list.iter().all(|one| one.is_string() && allowed(one)),
            _ => value.is_string() && allowed(value),
        },
        "integer_table" => numbers(value, &|one| is_whole(one) && allowed(one)),
        "number_table" => numbers(value, &allowed),
        // A type of a later interface: the plugin checks it itself.
        _ => true,
    }
}

fn is_whole(value: &Json) -> bool {
    value.is_i64() || value.is_u64()
}

/// Whether `value` is a table of numbers that all fit.
fn numbers(value: &Json, fits: &dyn Fn(&Json) -> bool) -> bool {
    let table = value.as_object();
    table.is_some_and(|table| table.values().all(|one| one.is_number() && fits(one)))
}

fn expected(option: &OptionDescriptor) -> String {
    let kind = match option.kind.as_str() {
        "bool" => "true or false",
        "integer" => "a whole number",
        "number" => "a number",
        "text" => "a text",
        "texts" => "a text or a list of texts",
        "integer_table" => "a table of whole numbers by name",
        "number_table" => "a table of numbers by name",
        other => other,
    };
    match option.range.as_str() {
        "" => kind.to_owned(),
        range => format!("{kind} in {range}"),
    }
}

fn meant(nearest: &Option<String>) -> String {
    let meant = nearest
        .as_ref()
        .map(|name| format!(", the nearest is `{name}`"));
    meant.unwrap_or_default()
}

fn list(known: &[String]) -> String {
    match known {
        [] => "none".to_owned(),
        _ => known.join(", "),
    }
}

#[cfg(test)]
mod tests;
