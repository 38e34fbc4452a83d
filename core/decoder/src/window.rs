//! A `config.json` -> the attention window of each layer.

use espalier_interface::{PluginError, Result};
use serde_json::Value as Json;

use crate::dialect::Window;
use crate::fields::Fields;

/// The window of Qwen's configs that enable one without a width. Source: transformers 5,
/// `Qwen2Config`.
const SWITCHED_WIDTH: u64 = 4096;

/// For each layer, most tokens that a token attends to, itself included; none for no limit.
///
/// # Errors
/// `INVALID` for values of the wrong type or number, and for lists that contradict the switch;
/// `UNSUPPORTED` for kinds of layers that the family does not have.
pub fn windows(fields: &Fields<'_>, rule: Window, num_layers: u64) -> Result<Vec<Option<u64>>> {
    let (window, first) = match rule {
        Window::Never => return Ok(vec![None; num_layers as usize]),
        Window::EveryLayer { default } => (width(fields, default)?, 0),
        Window::Switched if !fields.flag("use_sliding_window")? => (None, 0),
        Window::Switched => {
            let first = fields.count("max_window_layers", 0..=u64::MAX, Some(28))?;
            (width(fields, SWITCHED_WIDTH)?, first)
        }
    };
    let Some(kinds) = fields.get("layer_types") else {
        let seen = |layer| window.filter(|_| layer >= first);
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
        (Some("full_attention"), Some(window)) if rule != Window::Switched => {
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
fn width(fields: &Fields<'_>, default: u64) -> Result<Option<u64>> {
    let key = "sliding_window";
    if fields.is_written(key) && fields.get(key).is_none() {
        return Ok(None);
    }
    fields.count(key, 1..=1 << 40, Some(default)).map(Some)
}

#[cfg(test)]
mod tests;
