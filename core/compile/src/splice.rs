//! A unit's graph and an adapter's fragments -> one graph whose params are the run's.

use std::collections::HashMap;

use espalier_interface::adaptation::{Join, Site, SiteKind};
use espalier_interface::graph::{Graph, Node, ParamId, Source, ValueId};
use espalier_interface::model::{Model, ParamSpec, Unit};
use espalier_interface::{PluginError, Result, op};

/// The scalar of an op that draws: the number of the dropout in the model.
pub const SITE_SCALAR: &str = "site";

/// A node, and what the core knows about it besides its attributes.
#[derive(Clone, Debug)]
pub struct Placed {
    /// The node.
    pub node: Node,
    /// For a dropout, its number in the model, which selects its mask.
    pub dropout: Option<u64>,
    /// The site it computes, such as `model.layers.0.self_attn.q_proj`, for error messages.
    pub site: Option<String>,
}

/// A unit's graph with the adapter's fragments spliced in.
#[derive(Clone, Debug)]
pub struct UnitGraph {
    /// Values, inputs, outputs and local params; its own list of nodes is empty.
    pub graph: Graph,
    /// Nodes in order.
    pub nodes: Vec<Placed>,
    /// For each local param, its index in the run's params: first the model's, then the adapter's.
    pub params: Vec<usize>,
}

#[cfg(test)]
impl UnitGraph {
    /// The unit of `graph` alone: without dropouts and sites, its params the run's first.
    pub fn alone(mut graph: Graph) -> Self {
        let nodes = std::mem::take(&mut graph.nodes).into_iter();
        let nodes = nodes.map(|node| Placed {
            node,
            dropout: None,
            site: None,
        });
        UnitGraph {
            nodes: nodes.collect(),
            params: (0..graph.params.len()).collect(),
            graph,
        }
    }
}

/// The sites of a model, in the order of its units.
pub fn sites(model: &Model) -> Vec<Site> {
    let mut sites: Vec<Site> = Vec::new();
    let mut owners: HashMap<usize, String> = HashMap::new();
    for unit in &model.units {
        let graph = &model.graphs[unit.graph];
        for node in &graph.nodes {
            let Some(name) = site_of(graph, unit, node) else {
                continue;
            };
            let param = unit.params[node.params[0]];
            let kind = match (node.op.as_str(), unit.kind) {
                ("embedding", _) => SiteKind::Embedding,
                (_, espalier_interface::model::UnitKind::Head) => SiteKind::Head,
                _ => SiteKind::Linear,
            };
            let shape = &model.params[param].shape;
            let tied_to = owners.get(&param).cloned();
            owners.entry(param).or_insert_with(|| name.clone());
            sites.push(Site {
                name,
                kind,
                shape: [shape[0], shape[1]],
                tied_to,
                has_bias: node.params.len() > 1,
            });
        }
    }
    sites
}

/// The ops that norm by a weight.
const NORMS: [&str; 3] = ["layer_norm", "rms_norm", "rms_norm_offset"];

/// The norms of a model, in the order of its units.
pub fn norms(model: &Model) -> Vec<Site> {
    let mut norms: Vec<Site> = Vec::new();
    for unit in &model.units {
        let graph = &model.graphs[unit.graph];
        let is_norm = |node: &&Node| NORMS.contains(&node.op.as_str());
        for node in graph.nodes.iter().filter(is_norm) {
            let Some(&local) = node.params.first() else {
                continue;
            };
            let spec = &model.params[unit.params[local]];
            let name = spec.name.strip_suffix(".weight");
            let is_new = |name: &&str| norms.iter().all(|known| known.name != **name);
            if let Some(name) = name.filter(is_new) {
                norms.push(Site {
                    name: name.to_owned(),
                    kind: SiteKind::Norm,
                    shape: [1, spec.shape.iter().product()],
                    tied_to: None,
                    has_bias: node.params.len() > 1,
                });
            }
        }
    }
    norms
}

/// The index of a site's weight among the model's params, by name or alias.
pub fn weight_of(model: &Model, site: &Site) -> Option<usize> {
    let weight = format!("{}.weight", site.name);
    let named = |param: &ParamSpec| param.name == weight || param.aliases.contains(&weight);
    model.params.iter().position(named)
}

/// Indices in the model of the params that the site `name` reads: its weight, then its bias if any.
pub fn params_of(model: &Model, name: &str) -> Option<Vec<usize>> {
    for unit in &model.units {
        let graph = &model.graphs[unit.graph];
        let is_named = |node: &&Node| site_of(graph, unit, node).as_deref() == Some(name);
        if let Some(node) = graph.nodes.iter().find(is_named) {
            return Some(
                node.params
                    .iter()
                    .map(|&local| unit.params[local])
                    .collect(),
            );
        }
    }
    None
}

/// The name of the site that `node` computes: the unit's prefix and the weight's local name,
/// without `.weight`.
pub fn site_of(graph: &Graph, unit: &Unit, node: &Node) -> Option<String> {
    if node.op != "linear" && node.op != "embedding" {
        return None;
    }
    let local = &graph.params[*node.params.first()?].name;
    let module = local.strip_suffix(".weight").unwrap_or(local);
    Some(format!("{}{module}", unit.prefix))
}

/// An adapter's params in place of a model's: joins by the name of their site, and params of the
/// adapter by the model's param that they replace.
#[derive(Clone, Debug, Default)]
pub struct Replacements<'a> {
    /// The fragments.
    pub joins: HashMap<&'a str, &'a Join>,
    /// Indices of the adapter's params by indices of the model's.
    pub params: HashMap<usize, usize>,
}

/// Replaces each site that has a join by the join's fragment, and each param that has a
/// replacement. `dropouts` counts the dropouts of earlier units.
///
/// # Errors
/// `INVALID` for a fragment that does not fit its site.
pub fn splice(
    model: &Model,
    unit: &Unit,
    replacements: &Replacements<'_>,
    dropouts: &mut u64,
) -> Result<UnitGraph> {
    let source = &model.graphs[unit.graph];
    let mut made = UnitGraph {
        graph: Graph {
            nodes: Vec::new(),
            ..source.clone()
        },
        nodes: Vec::with_capacity(source.nodes.len()),
        params: unit.params.clone(),
    };
    let replaced = made.replace(&replacements.params, model.params.len());
    for node in &source.nodes {
        let site = site_of(source, unit, node);
        match site
            .as_deref()
            .and_then(|name| replacements.joins.get(name))
        {
            Some(join) => {
                let name = site.as_deref().unwrap_or_default();
                made.inline(join, node, name, model.params.len(), dropouts)?;
            }
            None => {
                let params = node.params.iter().map(|&local| replaced[local]);
                let node = Node {
                    params: params.collect(),
                    ..node.clone()
                };
                made.push(node, site, dropouts);
            }
        }
    }
    Ok(made)
}

impl UnitGraph {
    /// Adds the adapter's params that replace params of this graph. Returns the param that is read
    /// in place of each.
    fn replace(&mut self, bound: &HashMap<usize, usize>, model_params: usize) -> Vec<ParamId> {
        let mut read: Vec<ParamId> = (0..self.params.len()).collect();
        for (local, read) in read.iter_mut().enumerate() {
            if let Some(bound) = bound.get(&self.params[local]) {
                *read = self.graph.params.len();
                self.graph.params.push(self.graph.params[local].clone());
                self.params.push(model_params + bound);
            }
        }
        read
    }

    fn push(&mut self, node: Node, site: Option<String>, dropouts: &mut u64) {
        let definition = op::definition(&node.op, node.version);
        let is_numbered = definition.is_some_and(|op| op.scalar(SITE_SCALAR).is_some());
        let dropout = is_numbered.then(|| {
            *dropouts += 1;
            *dropouts - 1
        });
        self.nodes.push(Placed {
            node,
            dropout,
            site,
        });
    }

    /// Adds the params of a fragment that are the adapter's own. Returns this graph's param for
    /// each param of the fragment.
    fn bind(&mut self, join: &Join, base: &Node, model_params: usize) -> Vec<ParamId> {
        let locals = &join.fragment.params;
        // The site's own weight is a param of this graph already.
        let mut params = vec![base.params[0]; locals.len()];
        for (local, bound) in join.bound() {
            params[local] = self.graph.params.len();
            self.graph.params.push(locals[local].clone());
            self.params.push(model_params + bound);
        }
        params
    }

    fn inline(
        &mut self,
        join: &Join,
        base: &Node,
        site: &str,
        model_params: usize,
        dropouts: &mut u64,
    ) -> Result<()> {
        let fragment = &join.fragment;
        let fail = |what: &str| {
            Err(PluginError::invalid(format!(
                "fragment `{}` at site `{site}`: {what}",
                fragment.name
            )))
        };
        let (Some(first), Some(output)) = (fragment.inputs.first(), fragment.outputs.first())
        else {
            return fail("expected an input and an output");
        };
        let mut place: HashMap<ValueId, ValueId> = HashMap::new();
        place.insert(first.value, base.inputs[0]);
        for input in &fragment.inputs[1..] {
            let Source::Batch(name) = &input.source else {
                return fail("only its first input may come from the site");
            };
            place.insert(input.value, self.graph.batch(name));
        }
        if place.contains_key(&output.value) {
            return fail("its output is one of its inputs");
        }
        let wanted = &self.graph.values[base.outputs[0]];
        if fragment.values[output.value].shape != wanted.shape {
            return fail("its output has another shape than the site's");
        }
        place.insert(output.value, base.outputs[0]);
        let params = self.bind(join, base, model_params);
        for node in &fragment.nodes {
            let mut value = |id: &ValueId| {
                *place.entry(*id).or_insert_with(|| {
                    self.graph.values.push(fragment.values[*id].clone());
                    self.graph.values.len() - 1
                })
            };
            let inputs: Vec<_> = node.inputs.iter().map(&mut value).collect();
            let outputs: Vec<_> = node.outputs.iter().map(&mut value).collect();
            let (made, name) = if node.op == "base" {
                let made = Node {
                    inputs: inputs
                        .into_iter()
                        .chain(base.inputs[1..].iter().copied())
                        .collect(),
                    outputs,
                    ..base.clone()
                };
                (made, Some(site.to_owned()))
            } else {
                let params = node.params.iter().map(|&param| params[param]).collect();
                (
                    Node {
                        inputs,
                        outputs,
                        params,
                        ..node.clone()
                    },
                    Some(format!("{site} (adapter)")),
                )
            };
            self.push(made, name, dropouts);
        }
        Ok(())
    }
}
