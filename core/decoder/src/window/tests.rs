//! Sliding windows of attention as configs write them.

use serde_json::json;

use super::*;

const MISTRAL: Window = Window::EveryLayer {
    default: Some(4096),
};

fn read(rule: Window, config: Json) -> Result<Vec<Option<u64>>> {
    windows(&Fields::new(&config, "").expect("an object"), rule, 3)
}

#[test]
fn a_window_left_out_is_the_default_and_null_is_none() {
    let of = |config| read(MISTRAL, config).expect("allowed");
    assert_eq!(of(json!({})), [Some(4096); 3]);
    assert_eq!(of(json!({"sliding_window": null})), [None; 3]);
    assert_eq!(of(json!({"sliding_window": 8})), [Some(8); 3]);
}

#[test]
fn a_switched_window_begins_late_or_where_the_list_says() {
    let of = |config| read(Window::Switched, config).expect("allowed");
    assert_eq!(of(json!({"sliding_window": 8})), [None; 3]);
    let mut config =
        json!({"use_sliding_window": true, "sliding_window": 8, "max_window_layers": 2});
    assert_eq!(of(config.clone()), [None, None, Some(8)]);
    config["layer_types"] = json!(["sliding_attention", "full_attention", "full_attention"]);
    assert_eq!(of(config.clone()), [Some(8), None, None]);
    config["sliding_window"] = json!(null);
    config["layer_types"] = json!(null);
    assert_eq!(of(config), [None; 3]);
    let silent = json!({"use_sliding_window": true, "max_window_layers": 0});
    assert_eq!(of(silent), [Some(4096); 3]);
}

#[test]
fn windows_of_all_but_some_layers_go_by_the_list_else_by_their_number() {
    let rule = Window::AllBut {
        default: 4096,
        every: 2,
        key: Some("sliding_window_pattern"),
    };
    let of = |config| read(rule, config).expect("allowed");
    assert_eq!(of(json!({})), [Some(4096), None, Some(4096)]);
    let config = json!({"sliding_window": 8, "sliding_window_pattern": 3});
    assert_eq!(of(config), [Some(8), Some(8), None]);
    let mixed = ["full_attention", "sliding_attention", "full_attention"];
    let config = json!({"sliding_window": 8, "layer_types": mixed});
    assert_eq!(of(config), [None, Some(8), None]);
    let off = json!({"sliding_window": null, "layer_types": mixed});
    let error = read(rule, off).expect_err("a window of no width");
    assert!(error.message.contains("sliding_attention"), "{error}");
    let phi = Window::EveryLayer { default: None };
    assert_eq!(read(phi, json!({})), Ok(vec![None; 3]));
    assert_eq!(
        read(phi, json!({"sliding_window": 8})),
        Ok(vec![Some(8); 3])
    );
}

#[test]
fn what_cannot_be_is_named() {
    let mixed = ["sliding_attention", "full_attention", "full_attention"];
    for (rule, config, part) in [
        (MISTRAL, json!({"sliding_window": 0}), "`sliding_window`"),
        (
            MISTRAL,
            json!({"layer_types": ["full_attention"]}),
            "each of 3 layers",
        ),
        (MISTRAL, json!({"layer_types": ["a", "b", "c"]}), "\"a\""),
        (MISTRAL, json!({"layer_types": mixed}), "every layer"),
        (
            Window::Switched,
            json!({"layer_types": mixed, "sliding_window": 8}),
            "`use_sliding_window` switches the window off",
        ),
    ] {
        let error = read(rule, config).expect_err(part);
        assert!(error.message.contains(part), "{error}");
    }
}
