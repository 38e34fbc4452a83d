//! A decoder's numbers -> its params, graphs and units; layers with the same window share a graph.

use espalier_interface::graph::Graph;
use espalier_interface::model::{Model, ParamKind, ParamSpec, Unit, UnitKind};
use espalier_interface::{Init, Result};

use crate::config::DecoderConfig;
use crate::graphs;

/// The model of `config`.
///
/// # Errors
/// None in practice: the result is validated, and a failure would be a fault of this crate.
pub fn build(config: &DecoderConfig) -> Result<Model> {
    let mut windows = config.windows.clone();
    windows.sort_unstable();
    windows.dedup();
    let mut graphs = vec![graphs::embedding(config)];
    graphs.extend(windows.iter().map(|&window| graphs::layer(config, window)));
    graphs.push(graphs::head(config));
    let mut params = Vec::new();
    let mut units = Vec::new();
    let mut unit = |name: &str, kind: UnitKind, graph: usize, prefix: &str| {
        let bound = bind(&graphs[graph], prefix, config, &mut params);
        units.push(Unit {
            name: name.to_owned(),
            kind,
            graph,
            prefix: prefix.to_owned(),
            params: bound,
        });
    };
    unit("model.embed_tokens", UnitKind::Embedding, 0, "");
    for (index, window) in config.windows.iter().enumerate() {
        let name = format!("model.layers.{index}");
        let graph = 1 + windows.binary_search(window).expect("each has its graph");
        unit(&name, UnitKind::Layer, graph, &format!("{name}."));
    }
    unit("lm_head", UnitKind::Head, graphs.len() - 1, "");
    let model = Model {
        family: config.family.to_owned(),
        hidden_size: config.hidden_size,
        vocab_size: config.vocab_size,
        max_positions: config.max_positions,
        params,
        graphs,
        units,
    };
    model.validate()?;
    Ok(model)
}

/// Adds the params of `graph` under `prefix` and returns their indices; a tied head has the
/// embedding's weight.
fn bind(
    graph: &Graph,
    prefix: &str,
    config: &DecoderConfig,
    params: &mut Vec<ParamSpec>,
) -> Vec<usize> {
    let mut bound = Vec::with_capacity(graph.params.len());
    for local in &graph.params {
        let name = format!("{prefix}{}", local.name);
        let kind = kind_of(&name);
        if kind == ParamKind::Head && config.tied_head {
            // The embedding's weight is the first param of the first unit.
            params[0].aliases.push(name);
            bound.push(0);
            continue;
        }
        params.push(ParamSpec {
            name,
            aliases: Vec::new(),
            shape: local.shape.clone(),
            kind,
            init: match kind {
                // Such weights are around 0: 1 is added to them.
                ParamKind::Norm if config.gemma.is_some() => Init::Zeros,
                ParamKind::Norm => Init::Ones,
                ParamKind::Bias => Init::Zeros,
                _ => Init::Normal {
                    std: config.initializer_range,
                },
            },
        });
        bound.push(params.len() - 1);
    }
    bound
}

fn kind_of(name: &str) -> ParamKind {
    match name {
        "model.embed_tokens.weight" => ParamKind::Embedding,
        "lm_head.weight" => ParamKind::Head,
        _ if name.ends_with("norm.weight") => ParamKind::Norm,
        _ if name.ends_with(".bias") => ParamKind::Bias,
        _ => ParamKind::Linear,
    }
}

/// A family with what Llama has, for tests.
#[cfg(test)]
pub(crate) const PLAIN: crate::Dialect = crate::Dialect {
    attention_bias: crate::AttentionBias::Configured,
    mlp_bias: true,
    ..crate::Dialect::plain("llama")
};

#[cfg(test)]
mod tests;
