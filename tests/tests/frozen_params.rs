//! An adapter with frozen params that the run's seed draws: LoRA-FA (Zhang et al. 2023), whose A is
//! not trained. They are the same on all ranks and after a resumption, and are saved and read.

mod adapting;
mod swapping;

use espalier_interface::adaptation::{Adaptation, AdapterParam, FrozenParam, Join, Site, SiteKind};
use espalier_interface::graph::{Dim, Graph, Source};
use espalier_interface::random::{self, Purpose, philox};
use espalier_interface::{
    Adapter, Component, DType, Init, Instance, Options, Result as PluginResult, Role, op,
};
use espalier_tests::Golden;
use serde_json::{Value as Json, json};

use adapting::{Subject, model};
use swapping::Job;

const RANK: u64 = 4;
/// A param of the adapter, and a part of it, at 64 columns.
const WIDE: &str = "a";
const NARROW: &str = "a[:, :64]";
/// Half the width of the interval of A.
const BOUND: f64 = 0.25;

/// `y = base(x) + B A x` at `q_proj` and `down_proj`, with one frozen A of 176 columns for all.
struct FrozenA;

fn fragment([rows, cols]: [u64; 2]) -> Graph {
    let mut graph = Graph::new("frozen-a");
    let shape = [Dim::Tokens, Dim::Fixed(cols)];
    let x = graph.input(Source::Previous("input".to_owned()), shape, DType::COMPUTE);
    let (down, up) = (
        graph.param("a", [RANK, cols]),
        graph.param("b", [rows, RANK]),
    );
    let base = op::base(&mut graph, x, rows);
    let narrow = op::linear(&mut graph, x, down, None);
    let update = op::linear(&mut graph, narrow, up, None);
    let out = op::add(&mut graph, base, update, 1.0);
    graph.output("output", out);
    graph
}

impl Adapter for FrozenA {
    fn adapt(&self, sites: &[Site]) -> PluginResult<Adaptation> {
        let init = Init::Uniform { bound: BOUND };
        let param = |name: &str, cols: u64| AdapterParam {
            name: name.to_owned(),
            shape: vec![RANK, cols],
            init,
        };
        let frozen = [(0, None), (1, Some(0))];
        let frozen = frozen.map(|(param, part_of)| FrozenParam { param, part_of });
        let mut made = Adaptation {
            params: vec![param(WIDE, 176), param(NARROW, 64)],
            frozen: frozen.to_vec(),
            ..Adaptation::default()
        };
        let named = |site: &Site| site.name.ends_with("q_proj") || site.name.ends_with("down_proj");
        let linear = |site: &Site| site.kind == SiteKind::Linear && named(site);
        for (index, site) in sites.iter().enumerate().filter(|(_, site)| linear(site)) {
            made.params.push(AdapterParam {
                name: format!("{}.b", site.name),
                shape: vec![site.shape[0], RANK],
                init: Init::Zeros,
            });
            made.joins.push(Join {
                site: index,
                fragment: fragment(site.shape),
                params: vec![usize::from(site.shape[1] == 64), made.params.len() - 1],
            });
        }
        Ok(made)
    }

    fn saved_config(&self, _: &[Site], _: &str) -> PluginResult<Json> {
        Ok(json!({"peft_type": "FROZEN_A"}))
    }

    fn options_from_saved(&self, _: &Json) -> PluginResult<Options> {
        Ok(Options::default())
    }
}

const FROZEN_A: Component = Component {
    name: "frozen-a",
    role: Role::ADAPTER,
    doc: "for tests",
    options: &[],
    capabilities: &[("peft_types", "FROZEN_A")],
    create: |_, _| Ok(Instance::Adapter(Box::new(FrozenA))),
};

espalier_interface::declare_plugin! { name: "frozen-a", components: &[FROZEN_A] }

/// The values of A under a seed, `[4, 176]`. It is the first param behind the 21 of the model.
fn drawn(seed: u64) -> Vec<f64> {
    let key = random::key(seed, Purpose::INIT, 0);
    let words = (0..RANK as u32 * 176 / 4).flat_map(|block| philox(key, [block, 21, 0, 0]));
    let value = |word: u32| (2.0 * f64::from(random::uniform(word)) - 1.0) * BOUND;
    words.map(|word| f64::from(value(word) as f32)).collect()
}

#[test]
fn every_rank_draws_them_under_the_runs_seed_and_cuts_their_parts() {
    let subject = Subject::shipped("frozen-a", 4);
    for (ranks, seed) in [(1, 42), (3, 42), (3, 43)] {
        let text = seed.to_string();
        let more = [("run.seed", text.as_str())];
        let team = subject.team(&model(), ranks, &["nf4", "frozen-a"], &more);
        let expected = drawn(seed);
        let narrow = expected.chunks(176).flat_map(|row| &row[..64]).copied();
        let narrow: Vec<f64> = narrow.collect();
        for executor in team.team.executors() {
            let values = |name: &str| {
                let mut params = executor.params().iter();
                let index = params.position(|param| param.name == name);
                executor.param_values(index.expect("it is there"))
            };
            assert_eq!(values(WIDE).expect("whole"), expected, "{ranks} ranks");
            assert_eq!(values(NARROW).expect("whole"), narrow, "{ranks} ranks");
        }
        let first = team.team.first();
        let trained = first.trainable().into_iter();
        let trained: Vec<&str> = trained
            .map(|param| first.params()[param].name.as_str())
            .collect();
        assert_eq!(trained.len(), 4, "{trained:?}");
        assert!(trained.iter().all(|name| name.ends_with(".b")));
    }
}

#[test]
fn a_resumed_run_draws_them_again_and_the_adapter_that_it_saves_holds_them() {
    let job = Job::new(&[]);
    for (ranks, plugins) in [(1, "nf4,frozen-a"), (2, "nf4,frozen-a,fsdp")] {
        let (_, folder) = job.resumed(ranks, plugins, vec!["run.seed=7".to_owned()]);
        let saved = Golden::read(&folder.join("adapter/adapter_model.safetensors"));
        assert_eq!(saved.names().count(), 5, "A and four of B");
        assert_eq!(saved.numbers(WIDE), drawn(7));
    }
    // Another run takes them from the files, whatever its seed.
    let subject = Subject::shipped("frozen-a", 4);
    let adapter = format!("{:?}", job.path("whole-1").join("adapter"));
    let more = [("model.adapter", adapter.as_str()), ("run.seed", "8")];
    let rig = subject.rig(&["nf4"], &more);
    assert_eq!(rig.values(WIDE), drawn(7));
    let b = "model.layers.0.mlp.down_proj.b";
    assert!(rig.values(b).iter().any(|&x| x != 0.0));
}
