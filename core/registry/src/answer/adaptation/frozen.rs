//! Checks the frozen params of an adapter: what each is a part of, and how it begins.

use std::collections::HashSet;

use espalier_interface::adaptation::{Adaptation, AdapterParam, FrozenParam};
use espalier_interface::{Init, Result};

use super::lie;

/// Checks that frozen params exist, do not begin from a weight, and are parts of whole ones, and
/// that some param is trained.
pub(super) fn check(adaptation: &Adaptation) -> Result<()> {
    let mut seen = HashSet::new();
    for frozen in &adaptation.frozen {
        if !seen.insert(frozen.param) {
            return Err(lie(format!("it freezes param {} twice", frozen.param)));
        }
        one(frozen, adaptation)?;
    }
    let params = adaptation.params.iter().enumerate();
    for (_, param) in params.filter(|(index, _)| !seen.contains(index)) {
        if matches!(param.init, Init::TorchUniform { .. }) {
            return Err(lie(format!(
                "param `{}` begins as `torch_uniform`, and is trained: only frozen params do so",
                param.name
            )));
        }
    }
    if !adaptation.params.is_empty() && seen.len() == adaptation.params.len() {
        return Err(lie(format!(
            "all of its {} params are frozen, expected one that is trained",
            seen.len()
        )));
    }
    Ok(())
}

fn one(frozen: &FrozenParam, adaptation: &Adaptation) -> Result<()> {
    let params = &adaptation.params;
    let missing = |index: usize| {
        let count = params.len();
        lie(format!("it freezes param {index} of {count}"))
    };
    let index = frozen.param;
    let param = params.get(index).ok_or_else(|| missing(index))?;
    let replaced = adaptation.norms.iter().any(|norm| norm.param == index);
    if param.init == Init::FromWeight || replaced {
        return Err(lie(format!(
            "frozen param `{}` begins from a weight: expected numbers of one kind, or random ones",
            param.name
        )));
    }
    let Some(whole) = frozen.part_of else {
        return Ok(());
    };
    let of = params.get(whole).ok_or_else(|| missing(whole))?;
    match adaptation.frozen(whole) {
        Some(FrozenParam { part_of: None, .. }) => part(param, of),
        _ => Err(lie(format!(
            "param `{}` is a part of `{}`, which is no frozen param of its own",
            param.name, of.name
        ))),
    }
}

/// Checks that a param has the shape and the initial values of a part of `of`.
fn part(param: &AdapterParam, of: &AdapterParam) -> Result<()> {
    let fits = match (param.shape.as_slice(), of.shape.as_slice()) {
        ([rows, cols], [all_rows, all_cols]) => rows <= all_rows && cols <= all_cols,
        _ => false,
    };
    if !fits {
        return Err(lie(format!(
            "param `{}` of shape {:?} is a part of `{}` of shape {:?}: expected matrices, and no \
             more rows or columns than there",
            param.name, param.shape, of.name, of.shape
        )));
    }
    if param.init != of.init {
        return Err(lie(format!(
            "param `{}` begins as {:?} and is a part of `{}`, which begins as {:?}: expected the same",
            param.name, param.init, of.name, of.init
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frozen_params_are_parts_of_whole_ones_and_one_param_is_trained() {
        let torch = Init::TorchUniform {
            bound: 1.0,
            key: 0,
            skip: 0,
        };
        let param = |name: &str, shape: &[u64], init| AdapterParam {
            name: name.to_owned(),
            shape: shape.to_vec(),
            init,
        };
        let adaptation = |inits: [Init; 4], frozen: &[(usize, Option<usize>)]| Adaptation {
            params: vec![
                param("trained", &[4], inits[0]),
                param("whole", &[2, 4], inits[1]),
                param("part", &[2, 3], inits[2]),
                param("more", &[3, 3], inits[3]),
            ],
            frozen: frozen
                .iter()
                .map(|&(param, part_of)| FrozenParam { param, part_of })
                .collect(),
            ..Adaptation::default()
        };
        let zero = [Init::Zeros; 4];
        let sound = [(1, None), (2, Some(1))];
        assert_eq!(check(&adaptation(zero, &sound)), Ok(()));
        let drawn = [Init::Ones, torch, torch, Init::Ones];
        assert_eq!(check(&adaptation(drawn, &sound)), Ok(()));
        for (inits, frozen, words) in [
            (zero, &[(1, None), (1, None)][..], "twice"),
            (zero, &[(4, None)], "freezes param 4 of 4"),
            (zero, &[(1, Some(9))], "freezes param 9 of 4"),
            (zero, &[(2, Some(1))], "no frozen param of its own"),
            (zero, &[(1, None), (2, Some(1)), (3, Some(2))], "of its own"),
            (zero, &[(1, None), (3, Some(1))], "no more rows"),
            (zero, &[(1, None), (0, Some(1))], "expected matrices"),
            (drawn, &[(1, None), (3, None)], "is trained"),
            (
                [Init::Zeros, Init::Ones, Init::Zeros, Init::Zeros],
                &sound,
                "expected the same",
            ),
            ([Init::FromWeight; 4], &sound, "begins from a weight"),
            (
                zero,
                &[(0, None), (1, None), (2, None), (3, None)],
                "all of its 4",
            ),
        ] {
            let error = check(&adaptation(inits, frozen)).expect_err(words);
            assert!(error.message.contains(words), "{words}: {error}");
        }
    }
}
