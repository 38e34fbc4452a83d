//! A model's `config.json` and the layers of its expansion -> the `config.json` of the expanded
//! model.

use espalier_interface::model::{Model, Unit, UnitKind};
use espalier_plan::trained_weights::EXPANDED_LAYERS;
use espalier_system::failure::UsageError;
use serde_json::{Value as Json, json};

use super::expansion::Placed;

/// The number of layers.
const LAYERS: &str = "num_hidden_layers";
/// The first layer that Qwen gives a window where its config lists no kinds of layers.
const FIRST_WINDOW: &str = "max_window_layers";

/// `config` for the layers `placed`. Lists of layers with an entry for each (`layer_types`) get one
/// for each of the new ones, numbers of layers count the new ones, and the added ones are recorded.
///
/// # Errors
/// A config without its number of layers.
pub fn expanded_config(config: &Json, placed: &[Placed]) -> Result<Json, UsageError> {
    let layers = placed.iter().filter(|layer| !layer.added).count();
    if config.get(LAYERS).and_then(Json::as_u64) != Some(layers as u64) {
        let found = config.get(LAYERS).unwrap_or(&Json::Null);
        return Err(UsageError {
            message: format!(
                "config.json: expected `{LAYERS}` {layers}, the layers of its family, found {found}"
            ),
            next_step: "expand a model of a family whose config.json counts its layers there"
                .to_owned(),
        });
    }
    let mut config = config.clone();
    let Some(entries) = config.as_object_mut() else {
        unreachable!("a config with a key is an object")
    };
    entries.shift_remove(EXPANDED_LAYERS);
    for (key, value) in entries.iter_mut() {
        if let Json::Array(list) = value
            && list.len() == layers
            && key.contains("layer")
        {
            *list = placed
                .iter()
                .map(|layer| list[layer.source].clone())
                .collect();
        }
    }
    if let Some(first) = entries.get(FIRST_WINDOW).and_then(Json::as_u64) {
        let before = placed.iter().filter(|layer| (layer.source as u64) < first);
        let beyond = first.saturating_sub(layers as u64);
        entries.insert(
            FIRST_WINDOW.to_owned(),
            json!(before.count() as u64 + beyond),
        );
    }
    entries.insert(LAYERS.to_owned(), json!(placed.len()));
    let added = placed.iter().enumerate().filter(|(_, layer)| layer.added);
    let added: Vec<usize> = added.map(|(index, _)| index).collect();
    entries.insert(EXPANDED_LAYERS.to_owned(), json!(added));
    Ok(config)
}

/// The layers of a model, in order.
pub fn layers(model: &Model) -> Vec<&Unit> {
    let units = model.units.iter();
    units.filter(|unit| unit.kind == UnitKind::Layer).collect()
}

/// Checks that the layers of `after` compute what their originals in `before` compute.
///
/// # Errors
/// Another number of layers, and a layer with another graph.
pub fn check(before: &Model, after: &Model, placed: &[Placed]) -> Result<(), UsageError> {
    let refuse = |message: String| {
        Err(UsageError {
            message,
            next_step: "expand a model of another family, or one without this setting".to_owned(),
        })
    };
    let (originals, found) = (layers(before), layers(after));
    if found.len() != placed.len() {
        return refuse(format!(
            "`{LAYERS}` {} gives {} layers of family `{}`",
            placed.len(),
            found.len(),
            after.family
        ));
    }
    for (unit, layer) in found.iter().zip(placed) {
        let original = originals[layer.source];
        if after.graphs[unit.graph] != before.graphs[original.graph] {
            return refuse(format!(
                "`{}` would compute something else than `{}`, the layer that it is made from",
                unit.name, original.name
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::expansion::Expansion;
    use super::*;

    #[test]
    fn counts_and_lists_of_layers_grow_and_the_added_layers_are_on_record() {
        let placed = Expansion::of(4, 0.5).expect("it works").placed();
        let config = json!({
            "num_hidden_layers": 4,
            "layer_types": ["a", "b", "c", "d"],
            "eos_token_id": [1, 2, 3, 4],
            "max_window_layers": 3,
            "expanded_layers": [0, 1, 2, 3],
            "hidden_size": 4,
        });
        let expected = json!({
            "num_hidden_layers": 6,
            "layer_types": ["a", "b", "b", "c", "d", "d"],
            "eos_token_id": [1, 2, 3, 4],
            "max_window_layers": 4,
            "hidden_size": 4,
            "expanded_layers": [2, 5],
        });
        assert_eq!(expanded_config(&config, &placed), Ok(expected));
        for (first, raised) in [(0, 0), (1, 1), (2, 3), (4, 6), (28, 30)] {
            let config = json!({"num_hidden_layers": 4, "max_window_layers": first});
            let found = expanded_config(&config, &placed).expect("a config");
            assert_eq!(found["max_window_layers"], json!(raised));
        }
    }

    #[test]
    fn a_config_that_counts_its_layers_elsewhere_is_refused() {
        let placed = Expansion::of(4, 0.5).expect("it works").placed();
        for config in [json!({"n_layer": 4}), json!({"num_hidden_layers": 3})] {
            let refused = expanded_config(&config, &placed).expect_err("refused");
            assert!(refused.message.contains("`num_hidden_layers` 4"));
        }
    }
}
