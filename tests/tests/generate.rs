//! Generation over a cache: the peers' greedy answers, the logits of whole passes, and independence
//! of the other sequences.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use espalier_compile::program::CacheShape;
use espalier_config::{Sources, resolve};
use espalier_data::MicroBatch;
use espalier_engine::executor::Executor;
use espalier_engine::observer::Unobserved;
use espalier_engine::team::Team;
use espalier_plan::plan::{Generation, MemoryPlan};
use espalier_system::stop::StopFlag;
use espalier_tests::{Golden, Rig, golden_path, largest_difference, micro_batch};
use espalier_trainer::generate::{Answer, End, Flow, Generator, Request, Sampling};
use espalier_trainer::session::Session;
use espalier_trainer::{Error, weights};

/// The tiny models' end token.
const END: i32 = 1;

fn trained() -> PathBuf {
    golden_path("llama/tiny-trained")
}

/// A model loaded to generate, and its plan's memory.
fn load(model: &Path, keys: &[(&str, &str)], generation: Generation) -> (Team, MemoryPlan) {
    let sources = Sources::default()
        .set(format!("model.path={model:?}"))
        .set("model.compute=\"f32\"");
    let set = |sources: Sources, (key, value): &(&str, &str)| sources.set(format!("{key}={value}"));
    let resolved = resolve(&keys.iter().fold(sources, set)).expect("a config");
    let session = Session::open_to_generate(&resolved, &StopFlag::new(), |_, _| Ok(generation));
    let session = session.expect("a session");
    let memory = session.run.plan.memory;
    let Session {
        directory,
        components,
        run,
        ..
    } = session;
    let loaded = weights::load(resolved.config(), &directory, &components, run, &Unobserved);
    (Team::new(vec![loaded.expect("a model").0]), memory)
}

fn size(slots: u64, capacity: u64, max_tokens: u64) -> Generation {
    Generation {
        cache: CacheShape { slots, capacity },
        max_tokens,
    }
}

fn generator<'a>(team: &'a Team, sampling: Sampling) -> Generator<'a> {
    Generator::new(team, sampling, &[END], &StopFlag::new()).expect("a generator")
}

fn answers(generator: &mut Generator<'_>, prompts: &[Vec<i32>], most: usize) -> Vec<Answer> {
    let requests: Vec<Request<'_>> = prompts
        .iter()
        .map(|prompt| Request {
            prompt,
            max_new_tokens: most,
        })
        .collect();
    let all = generator.answer(&requests, &mut |_, _| Ok(Flow::Continue));
    all.expect("answers")
}

/// The golden prompts and answers of a tag.
fn golden(tag: &str) -> (Vec<Vec<i32>>, Vec<Vec<i32>>) {
    let golden = Golden::open("llama/generation.safetensors");
    let of = |what: &str, index: usize| -> Vec<i32> {
        let numbers = golden.numbers(&format!("{tag}.{what}.{index}"));
        numbers.iter().map(|&x| x as i32).collect()
    };
    let both = (0..4).map(|index| (of("prompt", index), of("tokens", index)));
    both.unzip()
}

/// The config keys for the weights of a golden tag.
fn keys(tag: &str) -> Vec<(&'static str, String)> {
    let adapter = |name: &str| format!("{:?}", golden_path(&format!("llama/{name}")));
    let nf4 = ("plugins", "\"nf4\"".to_owned());
    match tag {
        "nf4" => vec![nf4],
        "lora_f32" => vec![("model.adapter", adapter("adapter_trained_f32"))],
        "lora_nf4" => vec![nf4, ("model.adapter", adapter("adapter_trained_nf4"))],
        _ => vec![],
    }
}

fn borrowed<'a>(keys: &'a [(&'static str, String)]) -> Vec<(&'static str, &'a str)> {
    keys.iter()
        .map(|(key, value)| (*key, value.as_str()))
        .collect()
}

#[test]
fn greedy_answers_equal_those_of_transformers_token_for_token() {
    for tag in ["tiny", "trained", "nf4", "lora_f32", "lora_nf4"] {
        let model = match tag {
            "tiny" => golden_path("llama/tiny"),
            _ => trained(),
        };
        let (prompts, expected) = golden(tag);
        let keys = keys(tag);
        // All at once, prompts in parts of 40 tokens; then two slots for four prompts.
        for generation in [size(4, 230, 40), size(2, 230, 512)] {
            let (team, _) = load(&model, &borrowed(&keys), generation);
            let found = answers(&mut generator(&team, Sampling::default()), &prompts, 72);
            for (found, expected) in found.into_iter().zip(&expected) {
                assert!(expected.len() >= 64, "{tag}");
                let end = match found.end {
                    End::Token(token) => vec![token],
                    _ => vec![],
                };
                assert_eq!([found.tokens, end].concat(), *expected, "{tag}");
            }
        }
    }
}

/// A copy of a model's directory with other values in its `config.json`; without weights.
fn variant(model: &Path, changes: &[(&str, serde_json::Value)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a place to write");
    let text = fs::read_to_string(model.join("config.json")).expect("a config");
    let mut config: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    for (key, value) in changes {
        config[*key] = value.clone();
    }
    fs::write(directory.path().join("config.json"), config.to_string()).expect("a place to write");
    directory
}

/// The logits of every token of `row`, `[T, V]`, computed in passes of the given lengths.
fn by_parts(executor: &Executor, row: &[i32], slot: i32, parts: &[usize]) -> Vec<f64> {
    let (mut logits, mut first) = (Vec::new(), 0);
    for &part in parts {
        let micro = MicroBatch {
            tokens: row[first..first + part].to_vec(),
            positions: (first as i32..(first + part) as i32).collect(),
            cu_seqlens: vec![0, part as i32],
            sequences: vec![slot],
            ..MicroBatch::default()
        };
        let wanted: Vec<u64> = (0..part as u64).collect();
        let mut take = |_: usize, row: &[f64]| logits.extend_from_slice(row);
        executor.infer(&micro, &wanted, &mut take).expect("logits");
        first += part;
    }
    assert_eq!(first, row.len());
    logits
}

#[test]
fn decoding_gives_the_logits_of_a_whole_pass_at_every_position() {
    let row = golden("trained").0.pop().expect("a prompt of 150 tokens");
    let biases = variant(
        &trained(),
        &[("attention_bias", true.into()), ("mlp_bias", true.into())],
    );
    let random = vec![("model.init", "\"random\"".to_owned())];
    let all_heads = variant(&trained(), &[("num_key_value_heads", 4.into())]);
    for (name, model, keys) in [
        ("dense", trained(), vec![]),
        ("lora and nf4", trained(), keys("lora_nf4")),
        ("biases", biases.path().to_owned(), random.clone()),
        (
            "a key head for each query head",
            all_heads.path().to_owned(),
            random,
        ),
    ] {
        let keys = borrowed(&keys);
        let f32 = [&keys[..], &[("model.compute", "\"f32\"")]].concat();
        let micro = micro_batch(std::slice::from_ref(&row), std::slice::from_ref(&row));
        let expected = whole(&model, &f32, &micro);
        let (team, _) = load(&model, &keys, size(3, 151, 151));
        fill_biases(team.first());
        for parts in [vec![1; 150], vec![37, 1, 1, 90, 1, 20], vec![150]] {
            let found = by_parts(team.first(), &row, 2, &parts);
            let apart = largest_difference(&found, &expected);
            assert!(apart <= 1e-5, "{name}: {apart:e}");
        }
    }
}

/// The logits of a pass without a cache.
fn whole(model: &Path, keys: &[(&str, &str)], micro: &MicroBatch) -> Vec<f64> {
    let keys = [keys, &[("data.max_seq_len", "200")]].concat();
    let rig = Rig::new(model, &keys);
    fill_biases(&rig.executor);
    rig.logits(micro)
}

/// Sets every bias, which is initially zero, to distinct values.
fn fill_biases(executor: &Executor) {
    let params = executor.params().iter().enumerate();
    for (index, param) in params.filter(|(_, param)| param.name.ends_with(".bias")) {
        let values = (0..param.elements()).map(|i| ((i * 37 + index as u64) % 23) as f32 / 23.0);
        let values: Vec<f32> = values.collect();
        executor.set_param(index, &values).expect("a dense param");
    }
}

/// The likeliest tokens after `prompt`, each from a whole pass without a cache.
fn without_cache(model: &Path, prompt: &[i32], most: usize) -> Vec<i32> {
    let keys = [("model.compute", "\"f32\""), ("data.max_seq_len", "64")];
    let rig = Rig::new(model, &keys);
    let mut row = prompt.to_vec();
    for _ in 0..most {
        let rows = std::slice::from_ref(&row);
        let logits = rig.logits(&micro_batch(rows, rows));
        let last = &logits[logits.len() - logits.len() / row.len()..];
        let larger = |a: &usize, b: &usize| last[*a].total_cmp(&last[*b]).then(b.cmp(a));
        let token = (0..last.len()).max_by(larger).expect("a token") as i32;
        if token == END {
            break;
        }
        row.push(token);
    }
    row.split_off(prompt.len())
}

#[test]
fn a_sliding_window_gives_the_same_answers_with_and_without_a_cache() {
    let mistral = golden_path("families/mistral");
    let unbounded = variant(&mistral, &[("sliding_window", serde_json::Value::Null)]);
    let weights = "model.safetensors";
    fs::copy(mistral.join(weights), unbounded.path().join(weights)).expect("copied");
    // The window is 8 tokens: prompts within it and far beyond, and answers that leave it.
    let prompts: Vec<Vec<i32>> = [3, 8, 21]
        .map(|length| (0..length).map(|at| (7 + 29 * at) % 250 + 3).collect())
        .to_vec();
    let of = |model: &Path| -> Vec<Vec<i32>> {
        let (team, _) = load(model, &[], size(3, 60, 7));
        let found = answers(&mut generator(&team, Sampling::default()), &prompts, 30);
        let tokens: Vec<Vec<i32>> = found.into_iter().map(|answer| answer.tokens).collect();
        for (prompt, tokens) in prompts.iter().zip(&tokens) {
            assert_eq!(*tokens, without_cache(model, prompt, 30), "{prompt:?}");
        }
        tokens
    };
    let (windowed, whole) = (of(&mistral), of(unbounded.path()));
    let longest = windowed.iter().map(Vec::len).max();
    assert!(
        longest > Some(16),
        "an answer leaves the window: {windowed:?}"
    );
    assert_ne!(windowed, whole, "the window is what makes these answers");
}

#[test]
fn an_answer_depends_on_its_prompt_and_seed_alone() {
    let (prompts, _) = golden("trained");
    let sampling = Sampling {
        temperature: 1.0,
        top_p: 0.95,
        top_k: Some(200),
        seed: 11,
    };
    let texts = |slots: u64, threads: &str, seed: u64| {
        let keys = [("run.threads", threads)];
        let (team, _) = load(&trained(), &keys, size(slots, 200, 64));
        let sampling = Sampling { seed, ..sampling };
        answers(&mut generator(&team, sampling), &prompts, 30)
    };
    let expected = texts(1, "1", 11);
    for (slots, threads) in [(4, "1"), (3, "2"), (2, "5")] {
        assert_eq!(
            texts(slots, threads, 11),
            expected,
            "{slots} slots, {threads} threads"
        );
    }
    assert_ne!(texts(4, "1", 12), expected, "another seed");
}

#[test]
fn a_continued_prompt_reuses_the_cache_and_changes_no_token() {
    let (prompts, _) = golden("trained");
    let (team, memory) = load(&trained(), &[], size(1, 300, 64));
    // Two layers of two key heads of 16 f32 values, keys and values.
    assert_eq!(memory.kv_cache, 300 * 2 * 2 * 16 * 4 * 2);
    let mut talk = generator(&team, Sampling::default());
    let first = answers(&mut talk, &prompts[3..], 20).remove(0);
    let read = talk.speed().prefill_tokens;
    assert_eq!(read, 150);
    let second: Vec<i32> = [&prompts[3][..], &first.tokens, &[40, 41, 42]].concat();
    let found = answers(&mut talk, std::slice::from_ref(&second), 20);
    // The last token of the first answer was never evaluated.
    assert_eq!(talk.speed().prefill_tokens, read + 4);
    let fresh = answers(&mut generator(&team, Sampling::default()), &[second], 20);
    assert_eq!(found, fresh);
}

#[test]
fn answers_end_at_every_limit() {
    let (prompts, _) = golden("trained");
    let (team, _) = load(&trained(), &[], size(2, 40, 64));
    let short = &prompts[..1];
    let end = |most: usize| answers(&mut generator(&team, Sampling::default()), short, most);
    assert_eq!(end(0)[0].tokens.len(), 0);
    assert_eq!((end(5)[0].tokens.len(), end(5)[0].end), (5, End::Length));
    let full = end(1000).remove(0);
    assert_eq!(
        (full.tokens.len(), full.end),
        (40 - prompts[0].len(), End::Context)
    );

    let ends: BTreeSet<i32> = full.tokens[4..].iter().copied().collect();
    let ends: Vec<i32> = ends.into_iter().collect();
    let mut stopping = Generator::new(&team, Sampling::default(), &ends, &StopFlag::new());
    let found = answers(stopping.as_mut().expect("a generator"), short, 30).remove(0);
    let at = full.tokens.iter().position(|token| ends.contains(token));
    let at = at.expect("an end");
    assert_eq!(found.tokens, full.tokens[..at]);
    assert_eq!(found.end, End::Token(full.tokens[at]));
}

#[test]
fn invalid_prompts_are_refused() {
    let (team, _) = load(&trained(), &[], size(1, 10, 64));
    let refused = |prompt: &[i32], stop: &StopFlag| -> Error {
        let mut generator =
            Generator::new(&team, Sampling::default(), &[], stop).expect("a generator");
        let request = Request {
            prompt,
            max_new_tokens: 3,
        };
        let answer = generator.answer(&[request], &mut |_, _| Ok(Flow::Continue));
        answer.expect_err("refused")
    };
    let none = StopFlag::new();
    let error = refused(&[], &none);
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("the prompt is empty"), "{error}");
    let error = refused(&[5; 10], &none);
    assert_eq!(error.exit_code(), 2);
    assert!(
        error.to_string().contains("10 tokens, and the context 10"),
        "{error}"
    );
    let stopped = StopFlag::new();
    stopped.request(2);
    assert_eq!(refused(&[5; 3], &stopped).exit_code(), 130);

    let executor = team.first();
    let norm = executor
        .params()
        .iter()
        .position(|param| param.name == "model.norm.weight")
        .expect("a norm");
    executor
        .set_param(norm, &[f32::NAN; 64])
        .expect("a dense param");
    let error = refused(&[5; 3], &none);
    assert_eq!(error.exit_code(), 7);
    assert!(
        error.to_string().contains("token 1 of an answer"),
        "{error}"
    );
}
