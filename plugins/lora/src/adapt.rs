//! A model's sites -> the params with PEFT's keys, and the joins.

use espalier_interface::adaptation::{Adaptation, AdapterParam, Join, Site, SiteKind};
use espalier_interface::{Init, Result};

use crate::config_file::PREFIX;
use crate::settings::{Settings, Variant};
use crate::whole;
use crate::{fragment, init};

/// The params and fragments of the sites that the targets name, and of those that are trained
/// whole.
///
/// # Errors
/// As [`Settings::pick`].
pub fn adapt(settings: &Settings, sites: &[Site]) -> Result<Adaptation> {
    let mut adaptation = Adaptation::default();
    let chosen = settings.pick(sites)?;
    adaptation.base_change = settings.init.base_change(chosen.len());
    for index in chosen {
        let site = &sites[index];
        let names = fragment::param_names(site.kind);
        let shapes = fragment::param_shapes(site, settings.rank(site));
        let first = adaptation.params.len();
        for ((name, shape), init) in names.into_iter().zip(shapes).zip(inits(settings, site)) {
            adaptation.params.push(AdapterParam {
                name: format!("{PREFIX}{}.{name}", site.name),
                shape: shape.to_vec(),
                init,
            });
        }
        if settings.variant == Variant::Dora {
            adaptation.params.push(AdapterParam {
                name: format!("{PREFIX}{}.{}", site.name, fragment::MAGNITUDE),
                shape: vec![site.shape[0]],
                init: Init::FromWeight,
            });
        }
        rates(settings, site, &mut adaptation);
        adaptation.joins.push(Join {
            site: index,
            fragment: fragment::build(site, settings),
            params: (first..adaptation.params.len()).collect(),
        });
    }
    for index in settings.whole(sites)? {
        whole::join(index, &sites[index], &mut adaptation);
    }
    if !adaptation.learning_rate_ratios.is_empty() {
        let params = adaptation.params.len();
        adaptation.learning_rate_ratios.resize(params, 1.0);
    }
    Ok(adaptation)
}

/// Adds the learning rates of a site's params over the run's.
///
/// # Source
/// PEFT, `create_loraplus_optimizer`: B and params of one dimension; an embedding's are apart.
fn rates(settings: &Settings, site: &Site, adaptation: &mut Adaptation) {
    if settings.learning_rate_ratio == 1.0 {
        return;
    }
    let others = match site.kind {
        SiteKind::Embedding => 1.0,
        _ => settings.learning_rate_ratio,
    };
    let ratios = &mut adaptation.learning_rate_ratios;
    // A is the first param of a site.
    ratios.push(1.0);
    ratios.resize(adaptation.params.len(), others);
}

/// Initial values of the two matrices, such that the update is zero, or from a weight.
///
/// # Source
/// PEFT, `LoraLayer.reset_lora_parameters`: `kaiming_uniform_(a=sqrt(5))` is uniform within `1 /
/// sqrt(M)`.
fn inits(settings: &Settings, site: &Site) -> [Init; 2] {
    match (settings.init, site.kind) {
        (init::Init::Singular { .. }, _) => [Init::FromWeight, Init::FromWeight],
        (_, SiteKind::Embedding) => [Init::Zeros, Init::Normal { std: 1.0 }],
        _ => {
            let bound = (site.shape[1] as f64).sqrt().recip();
            [Init::Uniform { bound }, Init::Zeros]
        }
    }
}

#[cfg(test)]
mod tests;
