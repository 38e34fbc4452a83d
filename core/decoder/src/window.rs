//! A `config.json` -> the attention window of each layer.

use espalier_interface::{PluginError, Result};
use serde_json::Value as Json;

use crate::dialect::Window;
use crate::fields::Fields;

/// The window of Qwen's configs that enable one without a width. Source: transformers 5,
/// `Qwen2Config`.
const SWITCHED_WIDTH: u64 = 4096;

/// Layers without a window.
enum Without {
    /// Those before this one.
    Before(u64),
    /// Each one of this number: with 2, every other layer.
    Each(u64),
}

impl Without {
    fn has(&self, layer: u64) -> bool {
        match self {
            Without::Before(first) => layer < *first,
            Without::Each(every) => (layer + 1).is_multiple_of(*every),
        }
    }
}

/// For each layer, most tokens that a token attends to, itself included; none for no limit.
///
/// # Errors
/// `INVALID` for values of the wrong type or number, and for lists that contradict the switch;
/// `UNSUPPORTED` for kinds of layers that the family does not have.
pub fn windows(fields: &Fields<'_>, rule: Window, num_layers: u64) -> Result<Vec<Option<u64>>> {
    let mut without = Without::Before(0);
    let window = match rule {
        Window::Never => None,
        Window::EveryLayer { default } => width(fields, default)?,
        Window::Switched if !fields.flag("use_sliding_window")? => None,
        Window::Switched => {
            let first = fields.count("max_window_layers", 0..=u64::MAX, Some(28))?;
            without = Without::Before(first);
            width(fields, Some(SWITCHED_WIDTH))?
        }
        Window::AllBut {
            default,
            every,
            key,
        } => {
            let every = match key {
                Some(key) => fields.count(key, 1..=u64::MAX, Some(every))?,
                None => every,
            };
            without = Without::Each(every);
            width(fields, Some(default))?
        }
    };
    let Some(kinds) = fields.get("layer_types") else {
        let seen = |layer| window.filter(|_| !without.has(layer));
        return Ok((0..num_layers).map(seen).collect());
    };
    let kinds = kinds
        .as_array()
        .filter(|list| list.len() as u64 == num_layers);
    let Some(kinds) = kinds else {
        return Err(PluginError::invalid(format!(
            "config.json: `layer_types`: expected a list with one entry for each of {num_layers} layers"
        )));
    };
    kinds
        .iter()
        .map(|kind| of_kind(kind, rule, window))
        .collect()
}

/// The window of a layer that `layer_types` calls `kind`.
fn of_kind(kind: &Json, rule: Window, window: Option<u64>) -> Result<Option<u64>> {
    match (kind.as_str(), window) {
        // transformers gives such a layer the window anyway.
        (Some("full_attention"), Some(window)) if matches!(rule, Window::EveryLayer { .. }) => {
            Err(PluginError::unsupported(format!(
                "config.json: `layer_types` names {kind} beside `sliding_window` {window}; every \
                 layer of this family has the window"
            )))
        }
        (Some("full_attention"), _) => Ok(None),
        (Some("sliding_attention"), Some(window)) => Ok(Some(window)),
        (Some("sliding_attention"), None) => Err(PluginError::invalid(format!(
            "config.json: `layer_types` names {kind}, and `sliding_window` or \
             `use_sliding_window` switches the window off"
        ))),
        _ => Err(PluginError::unsupported(format!(
            "config.json: `layer_types` names {kind}; this family has `full_attention` and \
             `sliding_attention`"
        ))),
    }
}

/// The key `sliding_window`: `default` where it is left out, none where it is null.
fn width(fields: &Fields<'_>, default: Option<u64>) -> Result<Option<u64>> {
    let key = "sliding_window";
    if fields.get(key).is_none() && (fields.is_written(key) || default.is_none()) {
        return Ok(None);
    }
    fields.count(key, 1..=1 << 40, default).map(Some)
}

#[cfg(test)]
mod tests;
