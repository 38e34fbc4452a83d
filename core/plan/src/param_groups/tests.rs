//! Groups of a small model's params, and the launches of its update.

use espalier_interface::{DType, Init, WeightLayout};

use super::*;

fn param(name: &str, kind: ParamKind, elements: u64) -> Param {
    Param {
        name: name.to_owned(),
        aliases: Vec::new(),
        shape: vec![elements],
        kind: Some(kind),
        trainable: true,
        layout: WeightLayout::Dense(DType::F32),
        init: Init::Zeros,
        learning_rate_ratio: 1.0,
        unit: 0,
        part_of: None,
    }
}

/// The params of a layer: 128, 64, 256 and 64 elements of the run.
fn layer() -> [Param; 4] {
    [
        param("layer.q.weight", ParamKind::Linear, 128),
        param("layer.q.bias", ParamKind::Bias, 10),
        param("layer.up.weight", ParamKind::Linear, 200),
        param("layer.norm.weight", ParamKind::Norm, 64),
    ]
}

fn decaying(groups: &[GroupRule]) -> OptimOptions {
    OptimOptions {
        weight_decay: 0.1,
        groups: groups.to_vec(),
        ..OptimOptions::default()
    }
}

fn rule(pattern: &str, learning_rate: Option<f64>, weight_decay: Option<f64>) -> GroupRule {
    GroupRule {
        pattern: pattern.to_owned(),
        learning_rate,
        weight_decay,
    }
}

/// Name, params, elements, rate and decay of each group.
fn listed(groups: &ParamGroups) -> Vec<(String, u64, u64, f64, f64)> {
    let numbers = |one: &ParamGroup| {
        let (rate, decay) = (one.learning_rate, one.weight_decay);
        (one.name(), one.params, one.elements, rate, decay)
    };
    groups.all().iter().map(numbers).collect()
}

fn parts(groups: &ParamGroups, own: Range<u64>) -> Vec<(usize, Range<u64>)> {
    let optimizer = OptimizerSpec::default();
    let flat = FlatParams::of(&layer(), 0, &optimizer);
    let parts = groups.parts(&flat, &optimizer, &own).into_iter();
    parts.map(|part| (part.group, part.elements)).collect()
}

#[test]
fn biases_and_norms_do_not_decay_in_full_fine_tuning() {
    let groups = ParamGroups::of(&decaying(&[]), &layer(), Training::Full);
    let expected = [
        ("others".to_owned(), 2, 328, 2e-4, 0.1),
        ("other biases and norms".to_owned(), 2, 74, 2e-4, 0.0),
    ];
    assert_eq!(listed(&groups), expected);
    let ranges = [(0, 0..128), (1, 128..192), (0, 192..448), (1, 448..512)];
    assert_eq!(parts(&groups, 0..512), ranges);
    // The second of three parts of 192 elements.
    assert_eq!(parts(&groups, 192..384), [(0, 0..192)]);
    assert_eq!(parts(&groups, 384..576), [(0, 0..64), (1, 64..128)]);
}

#[test]
fn one_group_is_one_launch() {
    let all = [("others".to_owned(), 4, 402, 2e-4, 0.1)];
    let earlier = OptimOptions {
        decay_norms_and_biases: true,
        ..decaying(&[])
    };
    for (optim, training) in [
        (earlier, Training::Full),
        (decaying(&[]), Training::Adapter),
    ] {
        let groups = ParamGroups::of(&optim, &layer(), training);
        assert_eq!(listed(&groups), all);
        assert_eq!(parts(&groups, 0..512), [(0, 0..512)]);
        assert_eq!(parts(&groups, 576..768), []);
    }
    let still = ParamGroups::of(&OptimOptions::default(), &layer(), Training::Full);
    assert_eq!(parts(&still, 0..512), [(0, 0..512)]);
}

#[test]
fn the_first_pattern_that_matches_holds() {
    let rules = [
        rule("*.q.*", Some(1e-3), None),
        rule("layer.*", None, Some(0.5)),
    ];
    let groups = ParamGroups::of(&decaying(&rules), &layer(), Training::Full);
    let expected = [
        ("\"*.q.*\"".to_owned(), 1, 128, 1e-3, 0.1),
        ("\"*.q.*\", biases and norms".to_owned(), 1, 10, 1e-3, 0.0),
        ("\"layer.*\"".to_owned(), 2, 264, 2e-4, 0.5),
    ];
    assert_eq!(listed(&groups), expected);
    let ranges = [(0, 0..128), (1, 128..192), (2, 192..512)];
    assert_eq!(parts(&groups, 0..512), ranges);
    let frozen = layer().map(|param| Param {
        trainable: false,
        ..param
    });
    let none = ParamGroups::of(&decaying(&rules), &frozen, Training::Nothing);
    assert_eq!(none.all(), []);
}

#[test]
fn params_at_an_adapters_rates_are_groups_unless_a_pattern_has_a_rate() {
    let mut params = layer();
    for fast in [0, 2] {
        params[fast].learning_rate_ratio = 16.0;
    }
    let slow = rule("*.up.*", Some(1e-5), None);
    let decayed = rule("*.q.weight", None, Some(0.5));
    let groups = |rules: &[GroupRule]| {
        listed(&ParamGroups::of(
            &decaying(rules),
            &params,
            Training::Adapter,
        ))
    };
    let fast = "others, at 16 times the rate".to_owned();
    let expected = [
        (fast.clone(), 2, 328, 16.0 * 2e-4, 0.1),
        ("others".to_owned(), 2, 74, 2e-4, 0.1),
    ];
    assert_eq!(groups(&[]), expected);
    let expected = [
        ("\"*.up.*\"".to_owned(), 1, 200, 1e-5, 0.1),
        (
            "\"*.q.weight\", at 16 times the rate".to_owned(),
            1,
            128,
            16.0 * 2e-4,
            0.5,
        ),
        ("others".to_owned(), 2, 74, 2e-4, 0.1),
    ];
    assert_eq!(groups(&[slow, decayed]), expected);
}
