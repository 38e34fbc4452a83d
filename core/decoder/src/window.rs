//! A `config.json` -> how far each layer sees.

use espalier_interface::{PluginError, Result};

use crate::dialect::Window;
use crate::fields::Fields;

/// For each layer the tokens that it sees back, the seeing one included; unset: all.
///
/// # Errors
/// `INVALID` for values of the wrong type or number, `UNSUPPORTED` for kinds of layers that are neither full nor windowed.
pub fn windows(fields: &Fields<'_>, rule: Window, num_layers: u64) -> Result<Vec<Option<u64>>> {
    let (window, first) = match rule {
        Window::Never => return Ok(vec![None; num_layers as usize]),
        Window::EveryLayer { default } => {
            let left_out = !fields.is_written("sliding_window");
            (width(fields)?.or(left_out.then_some(default)), 0)
        }
        Window::Switched if !fields.flag("use_sliding_window")? => (None, 0),
        Window::Switched => {
            let first = fields.count("max_window_layers", 0..=u64::MAX, Some(28))?;
            (width(fields)?, first)
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
    let windowed = |kind: &serde_json::Value| match kind.as_str() {
        Some("full_attention") => Ok(None),
        Some("sliding_attention") => Ok(window),
        _ => Err(PluginError::unsupported(format!(
            "config.json: `layer_types` names {kind}; this family has `full_attention` and \
             `sliding_attention`"
        ))),
    };
    kinds.iter().map(windowed).collect()
}

fn width(fields: &Fields<'_>) -> Result<Option<u64>> {
    match fields.get("sliding_window") {
        None => Ok(None),
        Some(_) => fields.count("sliding_window", 1..=1 << 40, None).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    const MISTRAL: Window = Window::EveryLayer { default: 4096 };

    fn read(rule: Window, config: Json) -> Result<Vec<Option<u64>>> {
        windows(&Fields::new(&config, "").expect("an object"), rule, 3)
    }

    #[test]
    fn a_window_left_out_is_the_default_and_null_is_none() {
        let of = |config| read(MISTRAL, config).expect("allowed");
        assert_eq!(of(json!({})), [Some(4096); 3]);
        assert_eq!(of(json!({"sliding_window": null})), [None; 3]);
        assert_eq!(of(json!({"sliding_window": 8})), [Some(8); 3]);
    }

    #[test]
    fn a_switched_window_begins_late_or_where_the_list_says() {
        let of = |config| read(Window::Switched, config).expect("allowed");
        assert_eq!(of(json!({"sliding_window": 8})), [None; 3]);
        let mut config =
            json!({"use_sliding_window": true, "sliding_window": 8, "max_window_layers": 2});
        assert_eq!(of(config.clone()), [None, None, Some(8)]);
        config["layer_types"] = json!(["sliding_attention", "full_attention", "full_attention"]);
        assert_eq!(of(config.clone()), [Some(8), None, None]);
        config["use_sliding_window"] = json!(false);
        assert_eq!(of(config), [None; 3]);
    }

    #[test]
    fn what_cannot_be_is_named() {
        for (config, part) in [
            (json!({"sliding_window": 0}), "`sliding_window`"),
            (
                json!({"layer_types": ["full_attention"]}),
                "each of 3 layers",
            ),
            (json!({"layer_types": ["a", "b", "c"]}), "\"a\""),
        ] {
            let error = read(MISTRAL, config).expect_err(part);
            assert!(error.message.contains(part), "{error}");
        }
    }
}
