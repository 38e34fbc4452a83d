//! An adaptation -> whether its frozen params are sound.

use std::collections::BTreeSet;

use espalier_interface::Init;
use espalier_interface::adaptation::{Adaptation, FrozenParam};

use crate::checked::{Checked, ensure};

/// Checks each frozen param, and that others are trained.
pub fn check(adaptation: &Adaptation) -> Checked {
    let mut seen = BTreeSet::new();
    for frozen in &adaptation.frozen {
        ensure(seen.insert(frozen.param), || {
            format!("param {} is frozen twice", frozen.param)
        })?;
        one(frozen, adaptation)?;
    }
    for (index, param) in adaptation.params.iter().enumerate() {
        let drawn = matches!(param.init, Init::TorchUniform { .. });
        ensure(!drawn || seen.contains(&index), || {
            format!(
                "param `{}` begins as {:?} and is trained: only frozen params do so",
                param.name, param.init
            )
        })?;
    }
    ensure(seen.len() < adaptation.params.len(), || {
        "every param is frozen, nothing is trained".into()
    })
}

fn one(frozen: &FrozenParam, adaptation: &Adaptation) -> Checked {
    let params = &adaptation.params;
    let param = params.get(frozen.param);
    let param = param.ok_or_else(|| format!("frozen param {} does not exist", frozen.param))?;
    let name = &param.name;
    let replaces = adaptation.norms.iter();
    let replaces = replaces.filter(|norm| norm.param == frozen.param);
    ensure(
        param.init != Init::FromWeight && replaces.count() == 0,
        || format!("frozen param `{name}` begins from a weight"),
    )?;
    let Some(whole) = frozen.part_of else {
        return Ok(());
    };
    let of = params.get(whole);
    let of = of.ok_or_else(|| format!("`{name}` is a part of param {whole}, which is none"))?;
    let is_whole = adaptation.frozen(whole);
    let is_whole = is_whole.is_some_and(|whole| whole.part_of.is_none());
    ensure(is_whole, || {
        format!(
            "`{name}` is a part of `{}`, which is trained or itself a part",
            of.name
        )
    })?;
    let extents = param.shape.iter().zip(&of.shape);
    let fits = param.shape.len() == 2 && of.shape.len() == 2;
    ensure(
        fits && extents.clone().all(|(part, all)| part <= all),
        || {
            format!(
                "`{name}` of shape {:?} is a part of `{}` of shape {:?}",
                param.shape, of.name, of.shape
            )
        },
    )?;
    ensure(param.init == of.init, || {
        format!(
            "`{name}` begins as {:?}, `{}`, of which it is a part, as {:?}",
            param.init, of.name, of.init
        )
    })
}
