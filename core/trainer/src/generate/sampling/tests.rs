//! Greedy and sampled tokens compared with the probabilities of their logits.

use super::*;

const LOGITS: [f64; 5] = [0.0, 2.0, 1.0, 2.0, -1.0];
const DRAWS: u32 = 20_000;

fn sampling(temperature: f64, top_k: Option<usize>, top_p: f64) -> Sampling {
    Sampling {
        temperature,
        top_k,
        top_p,
        seed: 7,
    }
}

fn shares(sampling: Sampling) -> [f64; 5] {
    let mut shares = [0.0; 5];
    for place in 0..DRAWS {
        let draw = Draw { prompt: 3, place };
        let id = sampling.choose(&LOGITS, draw).expect("finite logits");
        shares[id as usize] += 1.0 / f64::from(DRAWS);
    }
    shares
}

/// softmax(logits / temperature) over the tokens `kept`.
fn expected(temperature: f64, kept: &[usize]) -> [f64; 5] {
    let mut weights = [0.0; 5];
    kept.iter()
        .for_each(|&id| weights[id] = (LOGITS[id] / temperature).exp());
    let sum: f64 = weights.iter().sum();
    weights.map(|weight| weight / sum)
}

#[test]
fn greedy_takes_the_first_of_the_largest() {
    let draw = Draw {
        prompt: 0,
        place: 0,
    };
    assert_eq!(Sampling::default().choose(&LOGITS, draw), Some(1));
}

#[test]
fn draws_follow_the_probabilities() {
    for (sampling, kept) in [
        (sampling(1.0, None, 1.0), &[0, 1, 2, 3, 4][..]),
        (sampling(0.5, None, 1.0), &[0, 1, 2, 3, 4][..]),
        (sampling(1.0, Some(3), 1.0), &[1, 2, 3][..]),
        (sampling(2.0, Some(2), 1.0), &[1, 3][..]),
        // Tokens 1 and 3 have 0.39 each, token 2 has 0.14.
        (sampling(1.0, None, 0.81), &[1, 2, 3][..]),
        (sampling(1.0, None, 0.3), &[1][..]),
        (sampling(1.0, None, 1e-9), &[1][..]),
    ] {
        let expected = expected(sampling.temperature, kept);
        for (found, expected) in shares(sampling).into_iter().zip(expected) {
            // Four standard deviations of a share.
            assert!((found - expected).abs() < 0.015, "{sampling:?}: {found}");
            assert_eq!(found == 0.0, expected == 0.0, "{sampling:?}");
        }
    }
}

#[test]
fn logits_that_are_not_finite_give_no_token() {
    for wrong in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let draw = Draw {
            prompt: 0,
            place: 0,
        };
        assert_eq!(sampling(1.0, None, 1.0).choose(&[1.0, wrong], draw), None);
        assert_eq!(Sampling::default().choose(&[1.0, wrong], draw), None);
    }
}

#[test]
fn invalid_sampling_options_are_refused() {
    for wrong in [
        sampling(-0.1, None, 1.0),
        sampling(f64::NAN, None, 1.0),
        sampling(f64::INFINITY, None, 1.0),
        sampling(1.0, None, 0.0),
        sampling(1.0, None, 1.1),
        sampling(1.0, None, f64::NAN),
        sampling(1.0, Some(0), 1.0),
    ] {
        let error = wrong.check().expect_err("refused");
        assert_eq!(error.exit_code(), 2, "{error}");
    }
    sampling(0.7, Some(1), 1.0).check().expect("usual numbers");
}
