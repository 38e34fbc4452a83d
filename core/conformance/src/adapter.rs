//! The checks of adapters.

mod frozen;
mod initialise;

use std::collections::BTreeSet;

use espalier_interface::adaptation::{Adaptation, BASE_WEIGHT, Join, Site, SiteKind};
use espalier_interface::graph::{Dim, Source, ValueType};
use espalier_interface::{Adapter, DType, ErrorCode, Init, PluginError};
use serde_json::Value as Json;

use crate::checked::{Checked, Fault, calm, ensure, refusal};
use crate::sites::{self, Head};
use crate::{OptionSet, Subject, Suite, Threads, declared};

/// The base model that saved adapters name.
const BASE: &str = "models/base";

/// Runs all checks of an adapter.
pub fn adapter(subject: &Subject<'_, dyn Adapter>, suite: &mut Suite) {
    declared::check(&subject.component, suite);
    declared::created(subject, suite);
    suite.check(
        "adapt.params",
        "params have names of their own, shapes with elements, finite beginnings, and a join that uses them",
        || each(subject, |_, _, _, adaptation| params(adaptation)),
    );
    suite.check(
        "adapt.frozen",
        "frozen params exist, are parts of whole ones with the same beginning, and leave one to be trained",
        || each(subject, |_, _, _, adaptation| frozen::check(adaptation)),
    );
    suite.check(
        "adapt.fragments",
        "every fragment is a whole graph from the site's input to the site's output, with the params it is given",
        || {
            each(subject, |_, _, sites, adaptation| {
                for join in &adaptation.joins {
                    fragment(join, sites, adaptation)?;
                }
                distinct_sites(adaptation)
            })
        },
    );
    suite.check(
        "adapt.shared",
        "sites of one kind and shape get equal fragments",
        || each(subject, |_, _, sites, adaptation| shared(sites, adaptation)),
    );
    suite.check(
        "adapt.deterministic",
        "the same sites give the same answer each time, also of another instance",
        || {
            each(subject, |adapter, set, sites, adaptation| {
                let other = subject.make(&set.options, Threads::new(3))?;
                let again = [adapter.adapt(sites)?, other.adapt(sites)?];
                ensure(again.iter().all(|one| one == adaptation), || {
                    "two answers to the same sites differ".into()
                })
            })
        },
    );
    suite.check(
        "initialise.values",
        "params that begin from a weight get finite values, the same each time, also of another instance",
        || {
            each(subject, |adapter, set, sites, adaptation| {
                let other = subject.make(&set.options, Threads::new(3))?;
                initialise::check([adapter, other.as_ref()], sites, adaptation)
            })
        },
    );
    suite.check(
        "adapt.refused",
        "sites of which none fits are rejected with INVALID and a message",
        || nothing_fits(subject),
    );
    suite.check(
        "saved.config",
        "`options_from_saved` makes of `saved_config` an adapter that answers the same",
        || {
            each(subject, |adapter, set, sites, adaptation| {
                saved(subject, adapter, set, sites, adaptation)
            })
        },
    );
    suite.check(
        "saved.refused",
        "an `adapter_config.json` of something else is rejected with a message",
        || strangers_refused(subject),
    );
}

/// Checks that configs of something else are refused with a message.
fn strangers_refused(subject: &Subject<'_, dyn Adapter>) -> Checked {
    let adapter = subject.make(&subject.option_sets()[0].options, Threads::new(1))?;
    for config in [
        serde_json::json!({}),
        serde_json::json!([1, 2]),
        serde_json::json!({"peft_type": "NO_SUCH_TYPE"}),
    ] {
        match adapter.options_from_saved(&config) {
            Ok(_) => return Err(Fault::Failed(format!("{config} was accepted"))),
            Err(error) => refusal(&error)?,
        }
    }
    Ok(())
}

/// Calls `body` with an adapter, its options, a model's sites and the adapter's answer, for all
/// options and models.
fn each(
    subject: &Subject<'_, dyn Adapter>,
    body: impl Fn(&dyn Adapter, &OptionSet, &[Site], &Adaptation) -> Checked,
) -> Checked {
    let sets = subject.option_sets();
    for (index, set) in sets.iter().enumerate() {
        let tried = calm(|| {
            let adapter = match subject.make(&set.options, Threads::new(1)) {
                Ok(adapter) => adapter,
                Err(error) if index > 0 && error.code == ErrorCode::INVALID => return Ok(()),
                Err(error) => return Err(Fault::from(error).at("create")),
            };
            for head in [Head::Own, Head::Tied] {
                let sites = sites::llama(head);
                let adaptation = match adapter.adapt(&sites) {
                    // The last set has every option changed, which may not fit these sites.
                    Err(error)
                        if index > 0
                            && index + 1 == sets.len()
                            && error.code == ErrorCode::INVALID =>
                    {
                        return Ok(());
                    }
                    answer => answer?,
                };
                body(adapter.as_ref(), set, &sites, &adaptation)?;
            }
            Ok(())
        });
        tried.map_err(|fault| fault.at(&set.label))?;
    }
    Ok(())
}

fn params(adaptation: &Adaptation) -> Checked {
    let mut names = BTreeSet::new();
    let mut used = vec![false; adaptation.params.len()];
    for join in &adaptation.joins {
        for &param in &join.params {
            let seen = used.get_mut(param);
            *seen.ok_or_else(|| format!("a join uses param {param}, which does not exist"))? = true;
        }
    }
    for norm in &adaptation.norms {
        let seen = used.get_mut(norm.param);
        let missing = || format!("a norm has param {}, which does not exist", norm.param);
        *seen.ok_or_else(missing)? = true;
    }
    for (param, used) in adaptation.params.iter().zip(used) {
        let name = &param.name;
        ensure(names.insert(name), || {
            format!("two params are called `{name}`")
        })?;
        let elements = param
            .shape
            .iter()
            .try_fold(1u64, |all, &n| all.checked_mul(n));
        ensure(elements.is_some_and(|n| (1..1 << 40).contains(&n)), || {
            format!("param `{name}` has shape {:?}", param.shape)
        })?;
        ensure(is_finite(param.init), || {
            format!("param `{name}` begins as {:?}", param.init)
        })?;
        ensure(used, || format!("param `{name}` is used by no join"))?;
    }
    ensure(!adaptation.joins.is_empty(), || "it joins no site".into())
}

/// Whether initial values drawn this way are finite.
pub fn is_finite(init: Init) -> bool {
    match init {
        // `initialise` is tried by a check of its own.
        Init::Zeros | Init::Ones | Init::FromWeight => true,
        Init::Constant { value } => value.is_finite(),
        Init::Uniform { bound } | Init::TorchUniform { bound, .. } => {
            bound.is_finite() && bound >= 0.0
        }
        Init::Normal { std } => std.is_finite() && std >= 0.0,
    }
}

fn distinct_sites(adaptation: &Adaptation) -> Checked {
    let mut seen = BTreeSet::new();
    for join in &adaptation.joins {
        ensure(seen.insert(join.site), || {
            format!("site {} is joined twice", join.site)
        })?;
    }
    Ok(())
}

fn fragment(join: &Join, sites: &[Site], adaptation: &Adaptation) -> Checked {
    let site = sites.get(join.site);
    let site = site.ok_or_else(|| format!("it joins site {} of {}", join.site, sites.len()))?;
    let done = fragment_of(join, site, adaptation);
    done.map_err(|fault| fault.at(&format!("site `{}`", site.name)))
}

fn fragment_of(join: &Join, site: &Site, adaptation: &Adaptation) -> Checked {
    let graph = &join.fragment;
    graph.validate()?;
    let compute = |width: u64| ValueType {
        shape: vec![Dim::Tokens, Dim::Fixed(width)],
        dtype: DType::COMPUTE,
    };
    let (input, output) = match site.kind {
        SiteKind::Embedding => {
            let tokens = ValueType {
                shape: vec![Dim::Tokens],
                dtype: DType::I32,
            };
            (tokens, compute(site.shape[1]))
        }
        SiteKind::Linear | SiteKind::Head => (compute(site.shape[1]), compute(site.shape[0])),
        SiteKind::Norm => return Err(format!("a fragment joins the norm `{}`", site.name).into()),
    };
    let first = graph
        .inputs
        .first()
        .ok_or("the fragment has no input".to_owned())?;
    ensure(matches!(first.source, Source::Previous(_)), || {
        format!(
            "its first input is {:?}, expected the site's input",
            first.source
        )
    })?;
    let found = graph.type_of(first.value);
    ensure(*found == input, || {
        format!("its input is {found:?}, expected {input:?}")
    })?;
    let out = graph
        .outputs
        .first()
        .ok_or("the fragment has no output".to_owned())?;
    let found = graph.type_of(out.value);
    ensure(*found == output, || {
        format!("its output is {found:?}, expected {output:?}")
    })?;
    ensure(graph.nodes.iter().any(|node| node.op == "base"), || {
        "the op `base`, the site's own operation, is nowhere in it".into()
    })?;
    if let Some(weight) = join.base_weight() {
        let found = &graph.params[weight].shape;
        ensure(*found == site.shape, || {
            format!(
                "it reads its site's weight as {found:?}, expected {:?}",
                site.shape
            )
        })?;
    }
    let own = graph.params.iter().filter(|one| one.name != BASE_WEIGHT);
    let (own, bound) = (own.count(), join.params.len());
    ensure(own == bound, || {
        format!("the fragment has {own} params of the adapter's, the join binds {bound}")
    })?;
    for (local, index) in join.bound() {
        let local = &graph.params[local];
        let param = adaptation.params.get(index);
        let param = param.ok_or_else(|| format!("it binds param {index}, which does not exist"))?;
        ensure(param.shape == local.shape, || {
            format!(
                "param `{}` is {:?}, the fragment's `{}` {:?}",
                param.name, param.shape, local.name, local.shape
            )
        })?;
    }
    Ok(())
}

fn shared(sites: &[Site], adaptation: &Adaptation) -> Checked {
    let site = |join: &Join| &sites[join.site];
    for (index, join) in adaptation.joins.iter().enumerate() {
        let ending = |name: &str| name.rsplit('.').next().unwrap_or(name).to_owned();
        // The same module of another layer.
        let alike = adaptation.joins[..index].iter().find(|other| {
            let (a, b) = (site(other), site(join));
            (a.kind, a.shape, ending(&a.name)) == (b.kind, b.shape, ending(&b.name))
        });
        if let Some(other) = alike {
            ensure(other.fragment == join.fragment, || {
                let (a, b) = (&site(other).name, &site(join).name);
                format!("`{a}` and `{b}` have one shape and other fragments")
            })?;
        }
    }
    Ok(())
}

fn nothing_fits(subject: &Subject<'_, dyn Adapter>) -> Checked {
    let adapter = subject.make(&subject.option_sets()[0].options, Threads::new(1))?;
    let strange = Site {
        name: "vision.patches".to_owned(),
        kind: SiteKind::Embedding,
        shape: [7, 3],
        tied_to: None,
        has_bias: false,
    };
    let invalid = |error: PluginError| {
        refusal(&error)?;
        ensure(error.code == ErrorCode::INVALID, || {
            format!(
                "expected code INVALID, found {}: {}",
                error.code.0, error.message
            )
        })
    };
    match adapter.adapt(&[]) {
        Ok(_) => return Err(Fault::Failed("no sites at all were accepted".to_owned())),
        Err(error) => invalid(error)?,
    }
    match adapter.adapt(std::slice::from_ref(&strange)) {
        Ok(adaptation) => ensure(!adaptation.joins.is_empty(), || {
            "it joins none of the sites and returns no message".into()
        }),
        Err(error) => {
            let named = error.message.contains("patches");
            let message = error.message.clone();
            invalid(error)?;
            ensure(named, || {
                format!("the refusal does not list the site `vision.patches`: {message}")
            })
        }
    }
}

fn saved(
    subject: &Subject<'_, dyn Adapter>,
    adapter: &dyn Adapter,
    set: &OptionSet,
    sites: &[Site],
    adaptation: &Adaptation,
) -> Checked {
    let config = adapter.saved_config(sites, BASE)?;
    let kind = config.get("peft_type").and_then(Json::as_str);
    let listed = subject.component.capabilities.get("peft_types");
    let listed = listed.map_or("", String::as_str);
    ensure(
        kind.is_some_and(|kind| listed.split([',', ' ']).any(|one| one == kind)),
        || {
            let found = config.get("peft_type").unwrap_or(&Json::Null);
            format!(
                "its `saved_config` has `peft_type` {found}, its capability `peft_types` is `{listed}`"
            )
        },
    )?;
    let base = config.get("base_model_name_or_path").and_then(Json::as_str);
    ensure(base == Some(BASE), || {
        format!("`base_model_name_or_path`: expected \"{BASE}\", found {base:?}")
    })?;
    let read = adapter.options_from_saved(&config)?;
    let mut options = set.options.clone();
    options.0.extend(read.0);
    let again = subject.make(&options, Threads::new(1))?.adapt(sites)?;
    ensure(again == *adaptation, || {
        "an adapter made of the options read back answers something else".into()
    })
}
