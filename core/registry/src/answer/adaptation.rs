//! Checks an adapter's params and fragments: each needs an existing site, its width and existing
//! params.

mod frozen;

use std::collections::HashSet;

use espalier_compile::splice;
use espalier_interface::adaptation::{Adaptation, BASE_WEIGHT, Join, ReplacedNorm, Site, SiteKind};
use espalier_interface::graph::{Dim, Graph, GraphParam, Source, ValueId};
use espalier_interface::model::Model;
use espalier_interface::{Adapter, ErrorCode, Init, Result as PluginResult};
use espalier_system::failure::UsageError;

use super::model::values;
use super::{elements, lie};
use crate::Error;
use crate::chosen::Chosen;

/// The sites of `model` that `adapter` is asked about: behind the others its norms, where the
/// adapter takes them.
///
/// # Errors
/// [`Error::Plugin`] for an error of the adapter.
pub fn adapter_sites(adapter: &Chosen<dyn Adapter>, model: &Model) -> Result<Vec<Site>, Error> {
    let mut sites = splice::sites(model);
    let takes_norms = adapter.plugin.takes_norms();
    if takes_norms.map_err(|error| adapter.failed("takes_norms", error))? {
        sites.extend(splice::norms(model));
    }
    Ok(sites)
}

/// The sites of `model` that its adapter is asked about, and what it adds to them: nothing without
/// an adapter.
///
/// # Errors
/// As [`adaptation`].
pub fn adapted(
    adapter: Option<&Chosen<dyn Adapter>>,
    model: &Model,
) -> Result<(Vec<Site>, Adaptation), Error> {
    let Some(adapter) = adapter else {
        return Ok((splice::sites(model), Adaptation::default()));
    };
    let sites = adapter_sites(adapter, model)?;
    let adaptation = adaptation(adapter, &sites)?;
    Ok((sites, adaptation))
}

/// What `adapter` adds to a model with these sites.
///
/// # Errors
/// [`Error::Usage`] for options that fit no site. [`Error::Plugin`] for other errors of the
/// adapter, and for a param or fragment that does not fit.
pub fn adaptation(adapter: &Chosen<dyn Adapter>, sites: &[Site]) -> Result<Adaptation, Error> {
    let failed = |error| adapter.failed("adapt", error);
    let name = &adapter.identity.component;
    let adaptation = adapter.plugin.adapt(sites);
    let adaptation = adaptation.map_err(|error| match error.code {
        ErrorCode::INVALID => Error::Usage(UsageError {
            message: format!("adapter `{name}`: {}", error.message),
            next_step: format!("see `host plugins inspect {name}`"),
        }),
        _ => failed(error),
    })?;
    check(&adaptation, sites).map_err(failed)?;
    Ok(adaptation)
}

fn check(adaptation: &Adaptation, sites: &[Site]) -> PluginResult<()> {
    let (mut names, mut sum) = (HashSet::new(), 0);
    for param in &adaptation.params {
        sum = elements(&param.name, &param.shape, sum)?;
        if !names.insert(param.name.as_str()) {
            return Err(lie(format!("two params are called `{}`", param.name)));
        }
    }
    rates(adaptation)?;
    let mut joined = HashSet::new();
    let mut read: HashSet<usize> = HashSet::new();
    for join in &adaptation.joins {
        let Some(site) = sites.get(join.site) else {
            return Err(lie(format!(
                "a fragment joins site {}, the model has {} sites",
                join.site,
                sites.len()
            )));
        };
        if !joined.insert(join.site) {
            return Err(lie(format!("two fragments join site `{}`", site.name)));
        }
        values(&join.fragment)?;
        join.fragment.validate()?;
        fits(join, site)?;
        binds(join, adaptation, site)?;
        read.extend(&join.params);
    }
    for norm in &adaptation.norms {
        replaces(norm, adaptation, sites)?;
        if !joined.insert(norm.site) {
            let name = &sites[norm.site].name;
            return Err(lie(format!("two params replace the weight of `{name}`")));
        }
        read.insert(norm.param);
    }
    match (0..adaptation.params.len()).find(|param| !read.contains(param)) {
        None => {
            one_weight_each(adaptation)?;
            frozen::check(adaptation)?;
            base_change(adaptation)
        }
        Some(idle) => Err(lie(format!(
            "no fragment reads param `{}`",
            adaptation.params[idle].name
        ))),
    }
}

/// Checks that a norm is replaced by a param of its size that begins from it.
fn replaces(norm: &ReplacedNorm, adaptation: &Adaptation, sites: &[Site]) -> PluginResult<()> {
    let site = sites.get(norm.site);
    let Some(site) = site.filter(|site| site.kind == SiteKind::Norm) else {
        return Err(lie(format!(
            "it replaces the weight of site {}, which is no norm of the {} sites",
            norm.site,
            sites.len()
        )));
    };
    match adaptation.params.get(norm.param) {
        Some(param) if param.shape == site.shape[1..] && param.init == Init::FromWeight => Ok(()),
        Some(param) => Err(lie(format!(
            "param `{}` of shape {:?}, which begins as {:?}, replaces the norm `{}`: expected shape \
             {:?}, begun from its weight",
            param.name,
            param.shape,
            param.init,
            site.name,
            &site.shape[1..]
        ))),
        None => Err(lie(format!(
            "param {} of {} replaces the norm `{}`",
            norm.param,
            adaptation.params.len(),
            site.name
        ))),
    }
}

/// Checks that there is a ratio of learning rates for each param, or none.
fn rates(adaptation: &Adaptation) -> PluginResult<()> {
    let (ratios, params) = (&adaptation.learning_rate_ratios, adaptation.params.len());
    if !ratios.is_empty() && ratios.len() != params {
        return Err(lie(format!(
            "{} ratios of learning rates for {params} params",
            ratios.len()
        )));
    }
    match ratios
        .iter()
        .find(|ratio| !(0.0..f64::INFINITY).contains(*ratio))
    {
        None => Ok(()),
        Some(ratio) => Err(lie(format!(
            "a ratio of learning rates is {ratio}, expected a number of 0 or more"
        ))),
    }
}

/// Checks that a param that begins from the weight of its site has one site.
fn one_weight_each(adaptation: &Adaptation) -> PluginResult<()> {
    for (index, param) in adaptation.params.iter().enumerate() {
        let reads = |join: &&Join| join.params.contains(&index);
        let norms = adaptation.norms.iter().filter(|norm| norm.param == index);
        let sites = adaptation.joins.iter().filter(reads).count() + norms.count();
        if param.init == Init::FromWeight && sites != 1 {
            return Err(lie(format!(
                "param `{}` begins from the weight of its site, and fragments of {sites} sites read it",
                param.name
            )));
        }
    }
    Ok(())
}

/// Checks that a changed base is that of joins that there are, whose params all begin from it.
fn base_change(adaptation: &Adaptation) -> PluginResult<()> {
    let Some(change) = &adaptation.base_change else {
        return Ok(());
    };
    let mut changed = HashSet::new();
    for &index in &change.joins {
        let Some(join) = adaptation
            .joins
            .get(index)
            .filter(|_| changed.insert(index))
        else {
            return Err(lie(format!(
                "it changes the base of join {index}, expected each of its {} joins once at most",
                adaptation.joins.len()
            )));
        };
        let mut params = join.params.iter().map(|&param| &adaptation.params[param]);
        if let Some(param) = params.find(|param| param.init != Init::FromWeight) {
            return Err(lie(format!(
                "it changes the base of join {index}, and param `{}` begins otherwise than from it",
                param.name
            )));
        }
    }
    Ok(())
}

/// Checks that the fragment has its site's input and output.
fn fits(join: &Join, site: &Site) -> PluginResult<()> {
    let fragment = &join.fragment;
    let [rows, cols] = site.shape;
    let tokens = vec![Dim::Tokens];
    let wide = |width: u64| vec![Dim::Tokens, Dim::Fixed(width)];
    let (takes, gives) = match site.kind {
        SiteKind::Embedding => (tokens, wide(cols)),
        SiteKind::Linear | SiteKind::Head => (wide(cols), wide(rows)),
        SiteKind::Norm => {
            return Err(lie(format!(
                "a fragment joins the norm `{}`: a param may replace its weight",
                site.name
            )));
        }
    };
    let first = fragment.inputs.first();
    let first = first.filter(|input| matches!(input.source, Source::Previous(_)));
    let input = first.map(|input| input.value);
    let output = fragment.outputs.first().map(|output| output.value);
    expect(fragment, site, "first input", input, &takes)?;
    expect(fragment, site, "first output", output, &gives)?;
    for node in fragment.nodes.iter().filter(|node| node.op == "base") {
        expect(
            fragment,
            site,
            "input of `base`",
            Some(node.inputs[0]),
            &takes,
        )?;
        expect(
            fragment,
            site,
            "output of `base`",
            Some(node.outputs[0]),
            &gives,
        )?;
    }
    Ok(())
}

fn expect(
    fragment: &Graph,
    site: &Site,
    what: &str,
    value: Option<ValueId>,
    expected: &[Dim],
) -> PluginResult<()> {
    let found = value.map(|value| fragment.values[value].shape.as_slice());
    if found == Some(expected) {
        return Ok(());
    }
    let found = found.map_or("nothing".to_owned(), |shape| format!("{shape:?}"));
    Err(lie(format!(
        "fragment `{}` at site `{}`: its {what} is {found}, expected {expected:?}",
        fragment.name, site.name
    )))
}

/// Checks that the fragment's params are the adapter's, or the weight of its site, of the same
/// shapes.
fn binds(join: &Join, adaptation: &Adaptation, site: &Site) -> PluginResult<()> {
    let fragment = &join.fragment;
    let fail = |what: String| {
        Err(lie(format!(
            "fragment `{}` at site `{}`: {what}",
            fragment.name, site.name
        )))
    };
    let named = |param: &&GraphParam| param.name == BASE_WEIGHT;
    let weights: Vec<_> = fragment.params.iter().filter(named).collect();
    if weights.len() > 1 || weights.iter().any(|weight| weight.shape != site.shape) {
        let found: Vec<_> = weights.iter().map(|weight| &weight.shape).collect();
        let expected = site.shape;
        return fail(format!(
            "it reads its site's weight as {found:?}, expected {expected:?} once"
        ));
    }
    let own = fragment.params.len() - weights.len();
    if own != join.params.len() {
        let bound = join.params.len();
        return fail(format!("it reads {own} params and binds {bound}"));
    }
    for (local, bound) in join.bound() {
        let local = &fragment.params[local];
        match adaptation.params.get(bound) {
            Some(param) if param.shape == local.shape => {}
            Some(param) => {
                return fail(format!(
                    "it reads `{}` as {:?}, param `{}` is {:?}",
                    local.name, local.shape, param.name, param.shape
                ));
            }
            None => {
                return fail(format!(
                    "it binds param {bound} of {}",
                    adaptation.params.len()
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use espalier_interface::adaptation::AdapterParam;

    use super::*;

    #[test]
    fn a_norm_is_replaced_once_by_a_param_of_its_size_that_begins_from_it() {
        let site = |kind| Site {
            name: "norm".to_owned(),
            kind,
            shape: [1, 2],
            tied_to: None,
            has_bias: false,
        };
        let sites = [site(SiteKind::Linear), site(SiteKind::Norm)];
        let answer = |shape: &[u64], init, norms: &[[usize; 2]]| {
            let param = AdapterParam {
                name: "a".to_owned(),
                shape: shape.to_vec(),
                init,
            };
            let norms = norms
                .iter()
                .map(|&[site, param]| ReplacedNorm { site, param });
            let answer = Adaptation {
                params: vec![param],
                norms: norms.collect(),
                ..Adaptation::default()
            };
            check(&answer, &sites)
        };
        let begun = Init::FromWeight;
        assert_eq!(answer(&[2], begun, &[[1, 0]]), Ok(()));
        for (refused, words) in [
            (answer(&[2], begun, &[[0, 0]]), "which is no norm"),
            (answer(&[2], begun, &[[2, 0]]), "which is no norm"),
            (answer(&[3], begun, &[[1, 0]]), "expected shape [2]"),
            (answer(&[2], Init::Ones, &[[1, 0]]), "which begins as Ones"),
            (answer(&[2], begun, &[[1, 1]]), "param 1 of 1"),
            (answer(&[2], begun, &[[1, 0], [1, 0]]), "two params replace"),
            (answer(&[2], begun, &[]), "no fragment reads"),
        ] {
            let error = refused.expect_err(words);
            assert!(error.message.contains(words), "{error}");
        }
    }

    #[test]
    fn a_ratio_of_learning_rates_is_a_number_for_each_param() {
        let param = AdapterParam {
            name: "a".to_owned(),
            shape: vec![2],
            init: Init::Zeros,
        };
        let answer = |ratios: &[f64]| Adaptation {
            params: vec![param.clone(), param.clone()],
            learning_rate_ratios: ratios.to_vec(),
            ..Adaptation::default()
        };
        for ratios in [&[][..], &[1.0, 16.0], &[0.0, 1.0]] {
            assert_eq!(rates(&answer(ratios)), Ok(()));
        }
        for (ratios, words) in [
            (&[1.0][..], "1 ratios of learning rates for 2 params"),
            (&[1.0, -1.0], "is -1"),
            (&[f64::NAN, 1.0], "is NaN"),
            (&[1.0, f64::INFINITY], "is inf"),
        ] {
            let error = rates(&answer(ratios)).expect_err(words);
            assert!(error.message.contains(words), "{error}");
        }
    }
}
