//! Adapters and an adaptation -> whether params that begin from a weight get sound values.

use espalier_interface::adaptation::{Adaptation, AdapterParam, Join, Site};
use espalier_interface::{Adapter, Init, InitialValues, InitialiseCall};

use crate::checked::{Checked, ensure};
use crate::weights::gaussian;

/// Most bytes of workspace for a site of the kit's small model.
const MOST_WORKSPACE: u64 = 1 << 30;

/// Checks the values that two equal adapters make for every site of an adaptation.
pub fn check(adapters: [&dyn Adapter; 2], sites: &[Site], adaptation: &Adaptation) -> Checked {
    let joins = adaptation.joins.iter().enumerate();
    for (seed, join) in joins {
        let site = &sites[join.site];
        let params = begun(join, adaptation);
        if params.is_empty() {
            continue;
        }
        let weight = gaussian(site.shape, 0.5, seed as u64);
        let [first, second] = adapters.map(|adapter| values(adapter, site, &weight, &params));
        let (first, second) = (first?, second?);
        ensure(first == second, || {
            format!(
                "two adapters make other values from the weight of `{}`",
                site.name
            )
        })?;
    }
    Ok(())
}

/// The params of a join that begin from a weight.
fn begun<'a>(join: &Join, adaptation: &'a Adaptation) -> Vec<&'a AdapterParam> {
    let params = join.params.iter().map(|&param| &adaptation.params[param]);
    params
        .filter(|param| param.init == Init::FromWeight)
        .collect()
}

/// What an adapter makes of a weight, as bits.
fn values(
    adapter: &dyn Adapter,
    site: &Site,
    weight: &[f32],
    params: &[&AdapterParam],
) -> Checked<Vec<Vec<u32>>> {
    let bytes = adapter.initialise_workspace(site)?;
    ensure(bytes <= MOST_WORKSPACE, || {
        format!("{bytes} bytes of workspace for a weight {:?}", site.shape)
    })?;
    let mut workspace = vec![0u8; bytes as usize + 64];
    let skip = workspace.as_ptr().align_offset(64);
    let elements = params
        .iter()
        .map(|param| param.shape.iter().product::<u64>());
    let mut made: Vec<Vec<f32>> = elements.map(|n| vec![0.0; n as usize]).collect();
    let named = params.iter().zip(&mut made);
    let named = named.map(|(param, values)| InitialValues {
        name: &param.name,
        values,
    });
    adapter.initialise(InitialiseCall {
        site,
        weight,
        seed: 42,
        workspace: &mut workspace[skip..skip + bytes as usize],
        params: named.collect(),
    })?;
    for (param, values) in params.iter().zip(&made) {
        ensure(values.iter().all(|x| x.is_finite()), || {
            format!(
                "param `{}` begins with a number that is not finite",
                param.name
            )
        })?;
    }
    let bits = |values: &Vec<f32>| values.iter().map(|x| x.to_bits()).collect();
    Ok(made.iter().map(bits).collect())
}
