//! Strategies and the options that they declare -> those to be tried.

use espalier_config::{ResolvedConfig, Section};
use espalier_interface::abi::descriptor::OptionDescriptor;
use espalier_interface::range::{Clause, clauses};
use espalier_interface::{OptionKind, Role, Services, Sharding};
use espalier_registry::{Chosen, Registry, Status};
use espalier_system::world::World;
use serde_json::Value as Json;

use super::choice::Choice;
use super::passes::Passes;
use crate::Error;

/// Options whose values are searched, where a strategy declares them: they change no bit of the result.
const SEARCHED: [&str; 4] = ["strategy", "offload", "gather", "offload_activations"];

/// A strategy with options.
pub(super) struct Candidate {
    /// The component, made with its options.
    pub sharding: Chosen<dyn Sharding>,
    /// What of its options is searched.
    options: Section,
}

impl Candidate {
    /// The choice of this strategy with these passes.
    pub fn choice(&self, passes: Passes) -> Choice {
        Choice {
            strategy: self.sharding.identity.component.clone(),
            options: self.options.clone(),
            recompute: passes.recompute,
            micro_batch: passes.micro_batch,
        }
    }
}

/// The strategies to be tried in `world`: the one that the user named, else all.
///
/// # Errors
/// A name that is unknown, options that are not a strategy's own.
pub(super) fn all(
    resolved: &ResolvedConfig,
    registry: &Registry,
    world: World,
    services: &'static dyn Services,
) -> Result<Vec<Candidate>, Error> {
    let config = resolved.config();
    let named = registry.roles_of(&config.plugins)?;
    let names = match named.get(&Role::SHARDING) {
        Some(name) => vec![name.clone()],
        None => {
            let listed = registry.list().into_iter();
            let usable = listed
                .filter(|one| one.role == Role::SHARDING.0 && one.status == Status::Available);
            usable.map(|one| one.component).collect()
        }
    };
    let mut candidates = Vec::new();
    let names = names
        .into_iter()
        .filter(|name| named.contains_key(&Role::SHARDING) || serves(name, world));
    for name in names {
        let given = config.section(Role::SHARDING.0, &name).cloned();
        let given = given.unwrap_or_default();
        let declared = registry.component(&name)?.options;
        for options in option_sets(&declared, &given, world) {
            let mut all = given.clone();
            all.extend(options.clone());
            let sharding = Chosen::sharding(registry, &name, &all, services)?;
            candidates.push(Candidate { sharding, options });
        }
    }
    Ok(candidates)
}

/// Whether a strategy says something of its own in `world`: one for a rank alone needs one, copies need several.
fn serves(name: &str, world: World) -> bool {
    match name {
        "single" => world.ranks == 1,
        "ddp" => world.ranks > 1,
        _ => true,
    }
}

/// The values of searched options in all combinations that differ from each other in this world.
fn option_sets(declared: &[OptionDescriptor], given: &Section, world: World) -> Vec<Section> {
    let mut sets = vec![Section::new()];
    for option in declared {
        let name = option.name.as_str();
        if !SEARCHED.contains(&name) || given.contains_key(name) {
            continue;
        }
        let values = values_of(option);
        let with = |set: &Section| -> Vec<Section> {
            let set = set.clone();
            let values = values.iter().map(|value| {
                let mut set = set.clone();
                set.insert(name.to_owned(), value.clone());
                set
            });
            values.collect()
        };
        sets = sets.iter().flat_map(with).collect();
    }
    sets.retain(|set| differs(set, world));
    sets
}

/// All values that an option declares.
fn values_of(option: &OptionDescriptor) -> Vec<Json> {
    if option.kind == OptionKind::BOOL.0 {
        return vec![false.into(), true.into()];
    }
    let words = clauses(&option.range)
        .into_iter()
        .map(|clause| match clause {
            Clause::OneOf(words) => words,
            Clause::Bounds { .. } | Clause::PowerOfTwo => Vec::new(),
        });
    words.flatten().map(Json::from).collect()
}

/// Whether a set says something that no simpler one does: groups inside machines need machines, a rank alone shares nothing,
/// and activations leave a device after its weights have.
fn differs(set: &Section, world: World) -> bool {
    let is = |name: &str, value: &str| set.get(name).and_then(Json::as_str) == Some(value);
    if is("strategy", "hybrid") && world.machines() == 1 {
        return false;
    }
    let offloads = set.get("offload").is_some_and(|to| to != "none");
    let stays = !offloads && !is("gather", "host-direct");
    if stays
        && set
            .get("offload_activations")
            .is_some_and(|value| value == true)
    {
        return false;
    }
    if world.ranks > 1 {
        return true;
    }
    let shares = is("strategy", "shard_grad_op") || is("gather", "host-direct");
    !shares && !is("offload", "none")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared() -> Vec<OptionDescriptor> {
        let option = |name: &str, range: &str| OptionDescriptor {
            name: name.to_owned(),
            kind: "text".to_owned(),
            default: Json::Null,
            range: range.to_owned(),
            doc: String::new(),
        };
        vec![
            option("strategy", "full_shard | shard_grad_op | hybrid"),
            option("offload", "none | params"),
            option("gather", "shards | host-direct"),
            option("reduce_dtype", "f32 | bf16"),
        ]
    }

    #[test]
    fn what_changes_the_numbers_or_nothing_is_not_searched() {
        let none = Section::new();
        let four = option_sets(&declared(), &none, World::threads(4));
        assert_eq!(four.len(), 2 * 2 * 2);
        assert!(four.iter().all(|set| !set.contains_key("reduce_dtype")));
        let one = option_sets(&declared(), &none, World::ONE);
        assert_eq!(one.len(), 1, "{one:?}");
        assert_eq!(one[0]["offload"], "params");
    }

    #[test]
    fn activations_leave_a_device_after_its_weights() {
        let mut options = declared();
        options.push(OptionDescriptor {
            name: "offload_activations".to_owned(),
            kind: "bool".to_owned(),
            default: Json::from(false),
            range: String::new(),
            doc: String::new(),
        });
        let sets = option_sets(&options, &Section::new(), World::threads(2));
        assert_eq!(sets.len(), 8 + 2 * 3);
        let offloads = |set: &&Section| set["offload_activations"] == true;
        assert!(
            sets.iter()
                .filter(offloads)
                .all(|set| set["offload"] == "params" || set["gather"] == "host-direct")
        );
    }

    #[test]
    fn what_the_user_set_stays() {
        let given = Section::from_iter([("offload".to_owned(), Json::from("params"))]);
        let sets = option_sets(&declared(), &given, World::threads(2));
        assert_eq!(sets.len(), 2 * 2);
        assert!(sets.iter().all(|set| !set.contains_key("offload")));
        assert_eq!(option_sets(&[], &given, World::ONE).len(), 1);
    }
}
