//! Checks a family's model: units that pass on hidden states, sites that are matrices, possible
//! sizes.

use std::collections::HashSet;

use espalier_compile::grad;
use espalier_compile::splice::site_of;
use espalier_interface::graph::{Dim, Graph, Source};
use espalier_interface::model::{Model, Unit, UnitKind};
use espalier_interface::{Family, Init, Result as PluginResult};

use super::{MOST_ELEMENTS, elements, lie};
use crate::Error;
use crate::chosen::Chosen;

/// Checks the model that `family` described.
///
/// # Errors
/// [`Error::Plugin`] with the part that is inconsistent.
pub fn model(family: &Chosen<dyn Family>, model: &Model) -> Result<(), Error> {
    check(model).map_err(|error| family.failed("describe", error))
}

fn check(model: &Model) -> PluginResult<()> {
    let (mut names, mut sum) = (HashSet::new(), 0);
    for param in &model.params {
        sum = elements(&param.name, &param.shape, sum)?;
        if !names.insert(param.name.as_str()) {
            return Err(lie(format!("two params are called `{}`", param.name)));
        }
        if param.init == Init::FromWeight {
            return Err(lie(format!(
                "param `{}` begins from a weight, which only params of adapters do",
                param.name
            )));
        }
        if matches!(param.init, Init::TorchUniform { .. }) {
            return Err(lie(format!(
                "param `{}` begins as `torch_uniform`, which only frozen params of adapters do",
                param.name
            )));
        }
    }
    for graph in &model.graphs {
        values(graph)?;
    }
    model.validate()?;
    model
        .units
        .iter()
        .try_for_each(|unit| check_unit(model, unit))
}

fn check_unit(model: &Model, unit: &Unit) -> PluginResult<()> {
    let graph = &model.graphs[unit.graph];
    let fail = |what: String| Err(lie(format!("unit `{}`: {what}", unit.name)));
    let previous = |source: &Source| matches!(source, Source::Previous(_));
    let handed = graph.inputs.iter().filter(|one| previous(&one.source));
    let expected = usize::from(unit.kind != UnitKind::Embedding);
    let found = handed.count();
    if found != expected {
        return fail(format!(
            "{found} inputs from the unit before, expected {expected}"
        ));
    }
    let outputs: &[&str] = match unit.kind {
        UnitKind::Head => &["logits", "loss", "correct"],
        _ => &["hidden"],
    };
    if let Some(missing) = outputs
        .iter()
        .find(|name| grad::output(graph, name).is_none())
    {
        return fail(format!("no output `{missing}`"));
    }
    for node in &graph.nodes {
        let Some(site) = site_of(graph, unit, node) else {
            continue;
        };
        let shape = &graph.params[node.params[0]].shape;
        if shape.len() != 2 {
            return fail(format!(
                "the weight of `{site}` is {shape:?}, expected [out, in]"
            ));
        }
    }
    Ok(())
}

/// Checks that a token's part of every value has a size.
pub(super) fn values(graph: &Graph) -> PluginResult<()> {
    for (index, value) in graph.values.iter().enumerate() {
        let fixed = value.shape.iter().try_fold(1u64, |n, dim| match dim {
            Dim::Fixed(extent) => n.checked_mul(*extent),
            _ => Some(n),
        });
        let by_token = value.shape.iter().any(|dim| !matches!(dim, Dim::Fixed(_)));
        // Such a value has a token's part for each token of a micro-batch.
        let most = MOST_ELEMENTS >> if by_token { 20 } else { 0 };
        if fixed.is_none_or(|elements| elements > most) {
            return Err(lie(format!(
                "graph `{}`: value {index} of shape {:?} is larger than can be addressed",
                graph.name, value.shape
            )));
        }
    }
    Ok(())
}
