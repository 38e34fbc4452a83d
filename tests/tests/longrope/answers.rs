//! Answers that grow past the length at which factors change.

use espalier_compile::program::CacheShape;
use espalier_config::{Sources, resolve};
use espalier_engine::observer::Unobserved;
use espalier_engine::team::Team;
use espalier_plan::plan::Generation;
use espalier_system::stop::StopFlag;
use espalier_trainer::generate::{End, Flow, Generator, Request, Sampling};
use espalier_trainer::session::Session;
use espalier_trainer::weights;

use super::{golden, model, written};

/// The golden model with a cache of `slots` sequences, and passes of at most 7 tokens.
fn load(slots: u64) -> Team {
    let directory = model("families/phi3", &written("phi3"));
    let sources = Sources::default()
        .set(format!("model.path={:?}", directory.path()))
        .set("model.compute=\"f32\"");
    let resolved = resolve(&sources).expect("a config");
    let cache = CacheShape {
        slots,
        capacity: 60,
    };
    let generation = Generation {
        cache,
        max_tokens: 7,
    };
    let session = Session::open_to_generate(&resolved, &StopFlag::new(), |_, _| Ok(generation));
    let Session {
        directory,
        components,
        run,
        ..
    } = session.expect("a session");
    let loaded = weights::load(resolved.config(), &directory, &components, run, &Unobserved);
    Team::new(vec![loaded.expect("a model").0])
}

fn tokens(what: &str, index: usize) -> Vec<i32> {
    let golden = golden();
    let numbers = golden.numbers(&format!("phi3.{what}.{index}"));
    numbers.iter().map(|&x| x as i32).collect()
}

/// The first answer begins within the original length and ends beyond it: transformers computes its
/// cache again there. The second prompt is beyond it, and begins with the first one.
#[test]
fn greedy_answers_equal_those_of_transformers_token_for_token() {
    let [first, second] = [0, 1].map(|index| (tokens("prompt", index), tokens("answer", index)));
    assert!(first.0.len() < super::ORIGINAL && second.0.len() > super::ORIGINAL);
    assert!(second.0.starts_with(&first.0));
    // Both at once; in one slot after each other, the cache of the other length in it.
    for (slots, order) in [
        (2, vec![&first, &second]),
        (1, vec![&second, &first, &second]),
        (1, vec![&first, &first]),
    ] {
        let team = load(slots);
        let mut generator =
            Generator::new(&team, Sampling::default(), &[], &StopFlag::new()).expect("a generator");
        let requests: Vec<Request<'_>> = order
            .iter()
            .map(|(prompt, answer)| Request {
                prompt,
                max_new_tokens: answer.len(),
            })
            .collect();
        let found = generator.answer(&requests, &mut |_, _| Ok(Flow::Continue));
        for (found, (_, expected)) in found.expect("answers").into_iter().zip(order) {
            assert_eq!((&found.tokens, found.end), (expected, End::Length));
        }
    }
}
