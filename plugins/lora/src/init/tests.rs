//! Options, sites and matrices -> refusals, and updates that are the matrix.

use espalier_interface::Serial;
use serde_json::{Value as Json, json};

use super::*;

fn options(given: Json) -> Options {
    let mut options = json!({"init": "zero", "init_niter": 8, "loftq_iter": 1});
    for (key, value) in given.as_object().expect("an object") {
        options[key] = value.clone();
    }
    Options(options.as_object().expect("an object").clone())
}

fn site(kind: SiteKind, shape: [u64; 2]) -> Site {
    Site {
        name: "a.proj".to_owned(),
        kind,
        shape,
        tied_to: None,
        has_bias: false,
    }
}

#[test]
fn options_of_another_init_are_refused_by_both_names() {
    let singular = |rounds, niter| Init::Singular { rounds, niter };
    for (given, expected) in [
        (json!({}), Init::Zero),
        (json!({"init": "pissa"}), singular(0, 8)),
        (json!({"init": "pissa", "init_niter": 0}), singular(0, 0)),
        (json!({"init": "loftq", "loftq_iter": 5}), singular(5, 8)),
    ] {
        assert_eq!(Init::read(&options(given)).expect("read"), expected);
    }
    assert_eq!(
        Init::read(&Options::default()).expect("of dora"),
        Init::Zero
    );
    for (given, words) in [
        (
            json!({"init_niter": 4}),
            "init_niter = 4 changes nothing with init = zero",
        ),
        (
            json!({"loftq_iter": 5}),
            "loftq_iter = 5 changes nothing with init = zero",
        ),
        (
            json!({"init": "pissa", "loftq_iter": 5}),
            "with init = pissa",
        ),
    ] {
        let error = Init::read(&options(given)).expect_err(words);
        assert!(error.message.contains(words), "{error}");
    }
}

#[test]
fn sites_that_cannot_begin_so_are_refused_with_both_options() {
    let pissa = Init::Singular {
        rounds: 0,
        niter: 8,
    };
    let linear = site(SiteKind::Linear, [6, 4]);
    assert_eq!(pissa.check(&linear, 4, 2.0), Ok(()));
    let table = site(SiteKind::Embedding, [6, 4]);
    for (site, rank, factor, words) in [
        (&linear, 5, 2.0, "init = pissa and rank = 5 at `a.proj`"),
        (&linear, 4, 0.0, "init = pissa and alpha = 0"),
        (
            &table,
            4,
            2.0,
            "init = pissa and targets with the token table",
        ),
    ] {
        let error = pissa.check(site, rank, factor).expect_err(words);
        assert!(error.message.contains(words), "{error}");
        assert_eq!(Init::Zero.check(site, rank, factor), Ok(()));
    }
    let error = pissa
        .check_whole(&["lm_head".to_owned()])
        .expect_err("refused");
    assert!(
        error.message.contains("modules_to_save with `lm_head`"),
        "{error}"
    );
    assert_eq!(Init::Zero.check_whole(&["lm_head".to_owned()]), Ok(()));
}

#[test]
fn the_update_of_full_rank_is_the_matrix_at_any_factor() {
    let matrix: Vec<f32> = (0..24).map(|i| ((i * 7 % 11) as f32 - 5.0) / 3.0).collect();
    for (niter, factor) in [(0, 0.5), (0, 4.0), (3, 2.0)] {
        let (mut down, mut up) = (vec![0.0; 4 * 4], vec![0.0; 6 * 4]);
        let init = Init::Singular { rounds: 0, niter };
        let (services, into) = ((1, &Serial as &dyn Services), (&mut down[..], &mut up[..]));
        init.fill((&matrix, 4), factor, services, into)
            .expect("found");
        for (index, expected) in matrix.iter().enumerate() {
            let (n, m) = (index / 4, index % 4);
            let products = (0..4).map(|r| up[n * 4 + r] * down[r * 4 + m]);
            let found = factor as f32 * products.sum::<f32>();
            assert!(
                (found - expected).abs() < 1e-5,
                "{found}, expected {expected}"
            );
        }
    }
}
