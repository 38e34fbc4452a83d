//! Sites that are trained whole beside the low-rank updates: PEFT's `modules_to_save`.

use espalier_interface::adaptation::{
    Adaptation, AdapterParam, Join, ReplacedNorm, Site, SiteKind,
};
use espalier_interface::graph::{Dim, Graph, Source};
use espalier_interface::op::{self, EmbeddingLayout};
use espalier_interface::{DType, Init, PluginError, Result};

use crate::config_file::PREFIX;
use crate::targets::{ending, nothing};

/// Local name of the weight, as the saved key ends.
pub const WEIGHT: &str = "weight";

/// Indices of the sites that `names` name, by the ends of their names as PEFT does.
///
/// # Errors
/// `INVALID` for a name of no site, with the nearest; and for a site with a bias, which no adapter
/// reads.
pub fn pick(names: &[String], sites: &[Site]) -> Result<Vec<usize>> {
    for name in names {
        let mut named = sites.iter().filter(|site| site.name.ends_with(name));
        if named.clone().next().is_none() {
            let what = format!("modules_to_save `{name}` is no linear, token table, head or norm");
            return Err(nothing(&what, name, sites.iter()));
        }
        if let Some(site) = named.find(|site| site.has_bias) {
            return Err(PluginError::invalid(format!(
                "modules_to_save names `{}`, which has a bias, and an adapter cannot train that; \
                 leave it out, or name it among the targets",
                site.name
            )));
        }
    }
    let named = |site: &Site| names.iter().any(|name| site.name.ends_with(name));
    let indices = 0..sites.len();
    Ok(indices.filter(|&index| named(&sites[index])).collect())
}

/// The shortest names that [`pick`] the sites `chosen`: the last parts of their names where these
/// are the ends of no other's.
pub fn names(sites: &[Site], chosen: &[usize]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for &index in chosen {
        let name = &sites[index].name;
        let picks_others = |end: &str| {
            let mut others = (0..sites.len()).filter(|other| !chosen.contains(other));
            others.any(|other| sites[other].name.ends_with(end))
        };
        let end = ending(name);
        let entry = if picks_others(end) { name } else { end };
        if !names.iter().any(|known| known == entry) {
            names.push(entry.to_owned());
        }
    }
    names
}

/// Adds a site's weight as a param, and what reads it in place of the frozen one.
pub fn join(index: usize, site: &Site, adaptation: &mut Adaptation) {
    let param = adaptation.params.len();
    let shape = match site.kind {
        SiteKind::Norm => site.shape[1..].to_vec(),
        SiteKind::Linear | SiteKind::Embedding | SiteKind::Head => site.shape.to_vec(),
    };
    adaptation.params.push(AdapterParam {
        name: format!("{PREFIX}{}.{WEIGHT}", site.name),
        shape,
        init: Init::FromWeight,
    });
    match fragment(site) {
        None => adaptation.norms.push(ReplacedNorm { site: index, param }),
        Some(fragment) => adaptation.joins.push(Join {
            site: index,
            fragment,
            params: vec![param],
        }),
    }
}

/// The site's operation with the trained weight; `base` is not called. A norm has none: the host
/// puts the param in place of its weight.
fn fragment(site: &Site) -> Option<Graph> {
    let mut graph = Graph::new("whole");
    let source = Source::Previous("input".to_owned());
    let out = match site.kind {
        SiteKind::Norm => return None,
        SiteKind::Embedding => {
            let tokens = graph.input(source, [Dim::Tokens], DType::I32);
            let weight = graph.param(WEIGHT, site.shape);
            op::embedding(&mut graph, tokens, weight, EmbeddingLayout::ByRow)
        }
        SiteKind::Linear | SiteKind::Head => {
            let shape = [Dim::Tokens, Dim::Fixed(site.shape[1])];
            let x = graph.input(source, shape, DType::COMPUTE);
            let weight = graph.param(WEIGHT, site.shape);
            op::linear(&mut graph, x, weight, None)
        }
    };
    graph.output("output", out);
    Some(graph)
}
