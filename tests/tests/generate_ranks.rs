//! Generation where weights come to the device unit by unit, and on several ranks: the tokens and
//! logits of one rank that holds everything, in the planned memory; and ranks that end together.

mod sharded;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use espalier_compile::program::CacheShape;
use espalier_config::{ResolvedConfig, Sources, resolve};
use espalier_engine::executor::PreparedRun;
use espalier_engine::observer::Unobserved;
use espalier_engine::team::Team;
use espalier_interface::{Device, KernelRequest, Launch, PluginError};
use espalier_plan::plan::{Generation, MemoryPlan};
use espalier_registry::select::Components;
use espalier_system::failure::chain;
use espalier_system::stop::StopFlag;
use espalier_tests::{OwnOp, golden_path, row_logits};
use espalier_trainer::generate::{Answer, Flow, Generator, Request, Sampling};
use espalier_trainer::session::Session;
use espalier_trainer::{Error, weights};
use sharded::{Strategy, Variant, variants};

/// Four slots in all, and prompts that pass in several parts.
const GENERATION: Generation = Generation {
    cache: CacheShape {
        slots: 4,
        capacity: 44,
    },
    max_tokens: 11,
};

const DRAWN: Sampling = Sampling {
    temperature: 1.0,
    top_p: 0.95,
    top_k: Some(50),
    seed: 11,
};

/// A model's directory and the config keys of its weights.
struct Model {
    name: &'static str,
    directory: PathBuf,
    quantizer: Option<&'static str>,
    keys: Vec<String>,
}

impl Model {
    /// Packed weights with an adapter; and random weights whose head is the embedding, in `place`.
    fn all(place: &Path) -> [Model; 2] {
        let trained = golden_path("llama/tiny-trained");
        let text = fs::read_to_string(trained.join("config.json")).expect("a config");
        let mut config: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        config["tie_word_embeddings"] = true.into();
        fs::write(place.join("config.json"), config.to_string()).expect("written");
        let adapter = golden_path("llama/adapter_trained_nf4");
        [
            Model {
                name: "an adapter on packed weights",
                directory: trained,
                quantizer: Some("nf4"),
                keys: vec![format!("model.adapter={adapter:?}")],
            },
            Model {
                name: "a tied head",
                directory: place.to_owned(),
                quantizer: None,
                keys: vec!["model.init=\"random\"".to_owned()],
            },
        ]
    }

    fn config(&self, variant: &Variant) -> ResolvedConfig {
        let plugins = self
            .quantizer
            .into_iter()
            .chain([variant.strategy.plugin()]);
        let plugins: Vec<&str> = plugins.collect();
        let sources = Sources::default()
            .set(format!("model.path={:?}", self.directory))
            .set("model.compute=\"f32\"")
            .set("run.threads=2")
            .set(format!("plugins={plugins:?}"))
            .set(format!("run.ranks={}", variant.world));
        let own = variant.keys().into_iter();
        let own = own.map(|(key, value)| format!("{key}={value}"));
        let keys = self.keys.iter().cloned().chain(own);
        resolve(&keys.fold(sources, Sources::set)).expect("a config")
    }

    /// The loaded ranks and the planned memory of each.
    fn load(&self, variant: &Variant) -> (Team, MemoryPlan) {
        self.load_as(variant, |_, run, _| run)
    }

    /// As [`Model::load`], where `prepare` changes the run of each rank.
    fn load_as(
        &self,
        variant: &Variant,
        prepare: impl Fn(usize, PreparedRun, &Components) -> PreparedRun,
    ) -> (Team, MemoryPlan) {
        let resolved = self.config(variant);
        let stop = StopFlag::new();
        let session = Session::open_to_generate(&resolved, &stop, |_, _| Ok(GENERATION));
        let Session {
            directory,
            components,
            run,
            others,
            collectives,
            ..
        } = session.unwrap_or_else(|error| panic!("{}, {variant}: {error:?}", self.name));
        let memory = run.plan.memory;
        let runs = std::iter::once(run).chain(others).enumerate();
        let runs = runs.map(|(rank, run)| prepare(rank, run, &components));
        let loaded = weights::load_team(
            resolved.config(),
            &directory,
            &components,
            runs.collect(),
            &collectives,
            &Unobserved,
        );
        (loaded.expect("a model").0, memory)
    }
}

/// Prompts of other lengths, more than there are slots.
fn prompts() -> Vec<Vec<i32>> {
    let of = |length| (0..length).map(move |at| (7 + 29 * at + length) % 490 + 3);
    [3, 16, 9, 24, 1, 12]
        .map(|length| of(length).collect())
        .to_vec()
}

fn answer(
    team: &Team,
    sampling: Sampling,
    prompts: &[Vec<i32>],
    stop: &StopFlag,
    watch: &mut dyn FnMut(usize, i32) -> Result<Flow, Error>,
) -> Result<Vec<Answer>, Error> {
    let requests: Vec<Request<'_>> = prompts
        .iter()
        .map(|prompt| Request {
            prompt,
            max_new_tokens: 14,
        })
        .collect();
    Generator::new(team, sampling, &[1], stop)?.answer(&requests, watch)
}

/// The answers of a team that nothing stops.
fn answers(team: &Team, sampling: Sampling, prompts: &[Vec<i32>]) -> Vec<Answer> {
    let mut watch = |_, _| Ok(Flow::Continue);
    let found = answer(team, sampling, prompts, &StopFlag::new(), &mut watch);
    found.expect("answers")
}

/// Expects a rank to hold the planned bytes; each of its buffers has one at least.
fn assert_planned(held: u64, planned: &MemoryPlan, at: &str) {
    let beyond = held.checked_sub(planned.on_device());
    assert!(
        beyond < Some(16) && beyond.is_some(),
        "{at}: {held} bytes, {planned:?}"
    );
}

/// Every result of a team: logits of each rank, greedy and drawn answers, and one answer alone.
fn results(team: &Team) -> (Vec<Vec<u64>>, [Vec<Answer>; 3]) {
    let all = prompts();
    let answers = [
        answers(team, Sampling::default(), &all),
        answers(team, DRAWN, &all),
        answers(team, DRAWN, &all[1..2]),
    ];
    let row: Vec<i32> = (0..20).map(|at| 5 + 23 * at).collect();
    (row_logits(team, &row), answers)
}

#[test]
fn tokens_and_logits_equal_those_of_one_rank_that_holds_everything() {
    let place = tempfile::tempdir().expect("a folder");
    for model in Model::all(place.path()) {
        let (alone, memory) = model.load(&Variant::SINGLE);
        let (expected, expected_answers) = results(&alone);
        assert_eq!(expected.len(), 1);
        let longest = expected_answers[0].iter().map(|one| one.tokens.len()).max();
        assert!(longest > Some(4), "{}: {expected_answers:?}", model.name);
        assert_ne!(expected_answers[0], expected_answers[1], "{}", model.name);
        for world in [1, 2, 4] {
            for strategy in Strategy::of(world) {
                let all = variants(strategy, world).into_iter();
                for variant in all.filter(|one| world == 1 || one.prefetch == 1) {
                    let at = format!("{}: {variant}", model.name);
                    let (team, planned) = model.load(&variant);
                    let (logits, answers) = results(&team);
                    assert_eq!(logits.len(), world as usize, "{at}");
                    assert!(logits.iter().all(|one| *one == expected[0]), "{at}: logits");
                    assert_eq!(answers, expected_answers, "{at}");
                    // Ranks share the slots.
                    assert_eq!(
                        planned.kv_cache * u64::from(world),
                        memory.kv_cache,
                        "{at}: keys and values"
                    );
                    for executor in team.executors() {
                        let held = executor.storage().bytes();
                        assert_planned(held, &planned, &at);
                    }
                }
            }
        }
    }
}

#[test]
fn a_signal_stops_all_ranks_before_the_same_pass() {
    let place = tempfile::tempdir().expect("a folder");
    let [model, _] = Model::all(place.path());
    let (alone, _) = model.load(&Variant::SINGLE);
    let expected = answers(&alone, DRAWN, &prompts());
    for strategy in [Strategy::FullShard, Strategy::Ddp] {
        let (team, _) = model.load(&Variant::of(strategy, 2));
        let (stop, mut seen) = (StopFlag::new(), 0);
        let stopped = answer(&team, DRAWN, &prompts(), &stop, &mut |_, _| {
            seen += 1;
            if seen == 9 {
                stop.request(15);
            }
            Ok(Flow::Continue)
        });
        let error = stopped.expect_err("it was asked to stop");
        assert_eq!(error.exit_code(), 128 + 15, "{error}");
        // No rank waits for another one: they go on.
        assert_eq!(answers(&team, DRAWN, &prompts()), expected, "{strategy:?}");
    }
}

#[test]
fn logits_that_are_not_finite_on_one_rank_end_all() {
    let place = tempfile::tempdir().expect("a folder");
    let [model, _] = Model::all(place.path());
    let (team, _) = model.load(&Variant::of(Strategy::Ddp, 2));
    let second = &team.executors()[1];
    let mut params = second.params().iter();
    let norm = params.position(|param| param.name == "model.norm.weight");
    let spoiled = second.set_param(norm.expect("a norm"), &[f32::NAN; 64]);
    spoiled.expect("a dense param");
    // The first prompt is of the first rank, the next one of the second.
    let one = answers(&team, DRAWN, &prompts()[..1]);
    assert_eq!(one.len(), 1);
    let mut watch = |_, _| Ok(Flow::Continue);
    let both = answer(&team, DRAWN, &prompts()[..2], &StopFlag::new(), &mut watch);
    let error = both.expect_err("it is not finite");
    assert_eq!(error.exit_code(), 7, "{error}");
    assert!(
        error.to_string().contains("token 1 of an answer"),
        "{error}"
    );
}

/// A kernel that fails.
fn fails(_: &dyn Device, _: &KernelRequest, _: &Launch<'_>) -> espalier_interface::Result<()> {
    Err(PluginError::invalid("this kernel fails"))
}

#[test]
fn a_rank_that_fails_ends_all() {
    let place = tempfile::tempdir().expect("a folder");
    for model in Model::all(place.path()) {
        for strategy in Strategy::of(4) {
            let variant = Variant::of(strategy, 4);
            let (team, _) = model.load_as(&variant, |rank, run, components| {
                if rank != 2 {
                    return run;
                }
                let device = Arc::new(OwnOp::new(run.device, "rms_norm", fails));
                PreparedRun::new(run.plan, device, &components.backend).expect("kernels")
            });
            let mut watch = |_, _| Ok(Flow::Continue);
            let failed = answer(&team, DRAWN, &prompts(), &StopFlag::new(), &mut watch);
            let error = failed.expect_err("a kernel fails");
            assert_eq!(error.exit_code(), 5, "{variant}: {error}");
            let text = chain(&error);
            assert!(text.contains("this kernel fails"), "{variant}: {text}");
            assert!(team.has_lost(), "{variant}");
        }
    }
}

/// A run that answers between its steps plans the larger of both, on every rank.
#[test]
fn a_training_run_that_answers_allocates_what_it_plans() {
    let place = tempfile::tempdir().expect("a folder");
    let [model, _] = Model::all(place.path());
    let rows = place.path().join("rows.jsonl");
    let row = |index: i32| {
        let tokens: Vec<i32> = (0..6).map(|at| 5 + 9 * index + at).collect();
        let labels = [&[-100; 4], &tokens[4..]].concat();
        let row = serde_json::json!({"input_ids": tokens, "labels": labels});
        format!("{row}\n")
    };
    fs::write(&rows, (0..8).map(row).collect::<String>()).expect("written");
    for world in [1, 2, 4] {
        for strategy in Strategy::of(world) {
            let variant = Variant {
                offload: "params",
                ..Variant::of(strategy, world)
            };
            let keys = [
                format!("data.files=[{rows:?}]"),
                format!("data.eval_files=[{rows:?}]"),
                "run.eval_answers=8".to_owned(),
                format!("plugins=[\"nf4\",\"lora\",{:?}]", strategy.plugin()),
                format!("run.ranks={world}"),
                format!("model.path={:?}", model.directory),
            ];
            let own = variant.keys().into_iter();
            let own = own.map(|(key, value)| format!("{key}={value}"));
            let sources = keys.into_iter().chain(own);
            let resolved = resolve(&sources.fold(Sources::default(), Sources::set));
            let session = Session::open(&resolved.expect("a config"), &Unobserved);
            let session = session.unwrap_or_else(|error| panic!("{variant}: {error:?}"));
            let (run, ranks) = (&session.run, u64::from(world));
            let generation = run.plan.demand.generation.expect("it answers");
            assert_eq!(generation.cache.slots * ranks, 8, "{variant}");
            let held = run.storage().expect("memory").bytes();
            assert_planned(held, &run.plan.memory, &variant.to_string());
        }
    }
}
