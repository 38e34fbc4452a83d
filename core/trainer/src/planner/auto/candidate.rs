//! Strategies and their declared search options -> the candidates, with their options.

use std::collections::BTreeMap;

use espalier_config::{ResolvedConfig, Section};
use espalier_interface::abi::descriptor::OptionDescriptor;
use espalier_interface::range::{Clause, clauses};
use espalier_interface::search::{MemoryStage, SEARCH, SearchSpec, ValueSpec, key_of, value_of};
use espalier_interface::{Role, Services, Sharding};
use espalier_registry::{Chosen, PluginFailure, Registry, Status};
use espalier_system::world::World;
use serde_json::Value as Json;

use super::choice::Choice;
use super::passes::Passes;
use crate::Error;

/// A strategy with options.
pub(super) struct Candidate {
    /// The component, created with its options.
    pub sharding: Chosen<dyn Sharding>,
    /// The searched values of its options.
    set: OptionSet,
    /// All values that it was created with.
    options: Section,
    /// The values of the options that refine a plan, one set for each combination.
    refinements: Vec<Section>,
    /// The defaults of its options.
    defaults: Section,
}

/// Values of the searched options.
#[derive(Clone, Debug, PartialEq)]
struct OptionSet {
    values: Section,
    stage: MemoryStage,
}

impl Candidate {
    /// The choice of this strategy with these passes.
    pub fn choice(&self, passes: Passes) -> Choice {
        Choice {
            strategy: self.sharding.identity.component.clone(),
            options: self.set.values.clone(),
            recompute: passes.recompute,
            micro_batch: passes.micro_batch,
            stage: self.set.stage,
            defaults: self.defaults.clone(),
        }
    }

    /// This strategy with each other combination of the options that refine a plan. What the
    /// strategy does not accept beside the other values is left out.
    pub fn refined<'s>(
        &'s self,
        registry: &'s Registry,
        services: &'static dyn Services,
    ) -> impl Iterator<Item = Candidate> + use<'s> {
        let with = |(values, further): (&Section, &Section)| -> Section {
            let values = values.clone().into_iter();
            values.chain(further.clone()).collect()
        };
        self.refinements.iter().filter_map(move |further| {
            let options = with((&self.options, further));
            let name = &self.sharding.identity.component;
            let sharding = Chosen::sharding(registry, name, &options, services).ok()?;
            Some(Candidate {
                sharding,
                set: OptionSet {
                    values: with((&self.set.values, further)),
                    stage: self.set.stage,
                },
                options,
                refinements: Vec::new(),
                defaults: self.defaults.clone(),
            })
        })
    }
}

/// The candidates in `world`: the strategy named by the user, else all.
///
/// # Errors
/// An unknown name, options of another strategy, a capability `search` that cannot be parsed.
pub(super) fn all(
    resolved: &ResolvedConfig,
    registry: &Registry,
    world: World,
    services: &'static dyn Services,
) -> Result<Vec<Candidate>, Error> {
    let config = resolved.config();
    let named = registry.roles_of(&config.plugins)?;
    let named = named.get(&Role::SHARDING);
    let names = named.map_or_else(|| available(registry), |name| vec![name.clone()]);
    let mut candidates = Vec::new();
    for name in names {
        let given = config.section(Role::SHARDING.0, &name).cloned();
        let given = given.unwrap_or_default();
        let component = registry.component(&name)?;
        let spec =
            SearchSpec::of(&component).map_err(|error| PluginFailure::new(&name, SEARCH, error))?;
        let is_named = named.is_some();
        if !is_named && !spec.world.holds(world.ranks, world.machines()) {
            continue;
        }
        let mut sets = option_sets(&component.options, &spec, &given, world);
        let refinements = refinements(&component.options, &spec, &given, world);
        if sets.is_empty() && is_named {
            sets.push(OptionSet {
                values: Section::new(),
                stage: stage_of(&spec, &given),
            });
        }
        for set in sets {
            let mut all = given.clone();
            all.extend(set.values.clone());
            candidates.push(Candidate {
                sharding: Chosen::sharding(registry, &name, &all, services)?,
                set,
                options: all,
                refinements: refinements.clone(),
                defaults: defaults(&component.options),
            });
        }
    }
    Ok(candidates)
}

/// The names of all strategies.
fn available(registry: &Registry) -> Vec<String> {
    let listed = registry.list().into_iter();
    let usable =
        listed.filter(|one| one.role == Role::SHARDING.0 && one.status == Status::Available);
    usable.map(|one| one.component).collect()
}

fn defaults(declared: &[OptionDescriptor]) -> Section {
    let options = declared.iter();
    options
        .map(|option| (option.name.clone(), option.default.clone()))
        .collect()
}

/// All combinations of searched values that the strategy declares for this world. Values of the
/// user are kept in every world.
fn option_sets(
    declared: &[OptionDescriptor],
    spec: &SearchSpec,
    given: &Section,
    world: World,
) -> Vec<OptionSet> {
    let sets = combinations(declared, spec, world, |option, values| {
        !given.contains_key(&option.name) && !refines(values)
    });
    let whole = |values: &Section| -> Section {
        let given = given.clone().into_iter();
        given.chain(values.clone()).collect()
    };
    let sets = sets
        .into_iter()
        .filter(|set| each_value_saves(spec, &whole(set)));
    let sets = sets.map(|values| OptionSet {
        stage: stage_of(spec, &whole(&values)),
        values,
    });
    sets.collect()
}

/// All combinations of the values of options that refine a plan, without defaults.
fn refinements(
    declared: &[OptionDescriptor],
    spec: &SearchSpec,
    given: &Section,
    world: World,
) -> Vec<Section> {
    let mut sets = combinations(declared, spec, world, |option, values| {
        !given.contains_key(&option.name) && refines(values)
    });
    let defaults = defaults(declared);
    for set in &mut sets {
        set.retain(|name, value| defaults[name] != *value);
    }
    sets.retain(|set| !set.is_empty());
    sets
}

/// Whether no value of an option is a step of saving memory. Such options are tried on the best
/// plan of each step alone.
fn refines(values: &BTreeMap<String, ValueSpec>) -> bool {
    values.values().all(|value| {
        [value.stage, value.after]
            .iter()
            .all(|&stage| stage == MemoryStage::Replicate)
    })
}

/// All combinations of the values, declared for this world, of the options that `is_taken` takes.
fn combinations(
    declared: &[OptionDescriptor],
    spec: &SearchSpec,
    world: World,
    is_taken: impl Fn(&OptionDescriptor, &BTreeMap<String, ValueSpec>) -> bool,
) -> Vec<Section> {
    let mut sets = vec![Section::new()];
    for option in declared {
        let Some(values) = spec.options.get(&option.name) else {
            continue;
        };
        if !is_taken(option, values) {
            continue;
        }
        let tried: Vec<Json> = in_order(option, values)
            .into_iter()
            .filter(|(_, value)| value.world.holds(world.ranks, world.machines()))
            .filter_map(|(key, _)| value_of(option, key))
            .collect();
        let with = |set: &Section| -> Vec<Section> {
            let values = tried.iter().map(|value| {
                let mut set = set.clone();
                set.insert(option.name.clone(), value.clone());
                set
            });
            values.collect()
        };
        sets = sets.iter().flat_map(with).collect();
    }
    sets
}

/// Keys in the order of the option's range; numbers, which a range does not list, in ascending
/// order.
fn in_order<'v>(
    option: &OptionDescriptor,
    values: &'v BTreeMap<String, ValueSpec>,
) -> Vec<(&'v String, &'v ValueSpec)> {
    let words: Vec<String> = clauses(&option.range)
        .into_iter()
        .flat_map(|clause| match clause {
            Clause::OneOf(words) => words,
            Clause::Bounds { .. } | Clause::PowerOfTwo => Vec::new(),
        })
        .collect();
    let mut values: Vec<_> = values.iter().collect();
    values.sort_by(|(one, _), (other, _)| {
        let place = |key: &String| words.iter().position(|word| word == key);
        let number = |key: &String| key.parse().unwrap_or(0.0_f64);
        let by_word = place(one).cmp(&place(other));
        by_word.then_with(|| number(one).total_cmp(&number(other)))
    });
    values
}

/// The values of a set with a declared meaning, each with its option.
fn meanings<'s>(spec: &'s SearchSpec, set: &Section) -> Vec<(&'s str, &'s ValueSpec)> {
    let options = spec.options.iter();
    let found = options.filter_map(|(name, values)| {
        let value = values.get(&key_of(set.get(name)?))?;
        Some((name.as_str(), value))
    });
    found.collect()
}

/// Whether each value of a set saves memory that the set without it does not.
fn each_value_saves(spec: &SearchSpec, set: &Section) -> bool {
    let meanings = meanings(spec, set);
    meanings.iter().all(|(name, value)| {
        let others = meanings.iter().filter(|(other, _)| other != name);
        let reached = others.map(|(_, other)| other.stage).max();
        reached.unwrap_or_default().max(spec.stage) >= value.after
    })
}

/// The memory stage of a set.
fn stage_of(spec: &SearchSpec, set: &Section) -> MemoryStage {
    let meanings = meanings(spec, set).into_iter();
    let stages = meanings.map(|(_, value)| value.stage);
    stages.max().unwrap_or_default().max(spec.stage)
}

#[cfg(test)]
mod tests;
