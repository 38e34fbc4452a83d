//! Invalid requests and launches -> refusals that name the fault.

use espalier_interface::graph::Dim;
use espalier_interface::{ErrorCode, Kernels, Launch, Stream};

use super::tests::{normal, rows};
use crate::rig::{Array, Rig, array, integers};

#[test]
fn an_unknown_op_version_or_dtype_is_named() {
    let x = normal::<f32>(8, 1);
    let refused = |rig: Rig, words: &str| {
        let error = rig.run().unwrap_err();
        assert_eq!(error.code, ErrorCode::UNSUPPORTED, "{error}");
        assert!(error.message.contains(words), "{error}");
    };
    refused(
        Rig::new("conv2d", 2),
        "op `conv2d` on backend `cpu`: not known here; known are adamw",
    );
    let odd = rows(&normal::<half::f16>(8, 1), 4);
    let odd = Rig::new("scale", 2)
        .input(odd.clone())
        .output(odd)
        .with("alpha", 2.0);
    refused(odd, "dtype f16, expected f32, bf16 or f64");
    let scale = || Rig::new("scale", 2).input(rows(&x, 4)).output(rows(&x, 4));
    let mut request = scale().with("alpha", 2.0).request();
    request.version = 2;
    let rig = scale();
    let error = rig.device.prepare(&request, &[]).unwrap_err();
    assert!(error.message.contains("version 2, expected 1"), "{error}");
}

#[test]
fn a_launch_that_does_not_fit_is_refused() {
    let x = normal::<f32>(8, 1);
    let rig = Rig::new("scale", 2)
        .input(rows(&x, 4))
        .output(rows(&x, 4))
        .with("alpha", 2.0);
    let good = rig.ranges();
    let refused = |ranges: &[_], words: &str| {
        let error = rig.launch(ranges).unwrap_err();
        assert_eq!(error.code, ErrorCode::INVALID, "{error}");
        assert!(error.message.starts_with("launch of `scale`: "), "{error}");
        assert!(error.message.contains(words), "{error}");
    };
    refused(&good[..1], "1 ranges, expected 2");
    let mut short = good.clone();
    short[1].bytes -= 4;
    refused(
        &short,
        "output 0 is f32 [Tokens, Fixed(4)]: 32 bytes, but its range has 28",
    );
    let mut outside = good.clone();
    outside[0].bytes += 64;
    refused(&outside, "which has 96");
    let mut crooked = good.clone();
    crooked[0].offset = 32;
    refused(&crooked, "input 0 begins at byte 32");
    let many = Rig { tokens: 2, ..rig };
    let made = many
        .device
        .prepare(&many.request(), &[])
        .expect("an op that is served");
    let launch = |tokens, scalars| {
        many.device.launch(&Launch {
            kernel: made.kernel,
            stream: Stream(0),
            ranges: &good,
            workspace: good[0],
            tokens,
            sequences: 1,
            scalars,
        })
    };
    assert!(
        launch(6, &[])
            .unwrap_err()
            .message
            .contains("6 tokens, prepared for at most 5")
    );
    assert!(
        launch(2, &[1.0])
            .unwrap_err()
            .message
            .contains("1 scalars, expected 0")
    );
    launch(0, &[]).expect("no token is a micro-batch too");
}

#[test]
fn a_cache_refuses_slots_and_tokens_beyond_it() {
    let cache = |held: i32, slot: [i32; 2], boundaries: [i32; 3]| {
        let rows = |width| rows(&normal::<f32>(3 * width, 1), width);
        let bounds = |mut array: Array, dim| {
            array.operand.shape = vec![dim];
            array
        };
        let store = array(&[2, 4, 8].map(Dim::Fixed), &[0.0f32; 64]);
        let slots = [slot[0], slot[0], slot[1]];
        let rig = Rig {
            sequences: 2,
            ..Rig::new("attention_cached", 3)
        };
        let rig = rig.input(rows(16)).input(rows(8)).input(rows(8));
        let rig = rig.input(bounds(integers(&boundaries), Dim::Boundaries));
        let rig = rig
            .input(integers(&[held, held + 1, 0]))
            .input(integers(&slots));
        let rig = rig.output(rows(16)).output(store.clone()).output(store);
        let rig = rig.with("heads", 2).with("kv_heads", 1).with("head_dim", 8);
        rig.with("scale", 1.0).with("causal", true).run()
    };
    cache(2, [0, 1], [0, 2, 3]).expect("inside");
    cache(2, [0, 0], [0, 3, 3]).expect_err("the second of three tokens leaves");
    for (wrong, words) in [
        (
            cache(3, [0, 1], [0, 2, 3]),
            "2 tokens at 3 leave a slot of 4",
        ),
        (cache(-1, [0, 1], [0, 2, 3]), "leave a slot of 4"),
        (cache(0, [2, 1], [0, 2, 3]), "in slot 2 of 2"),
        (cache(0, [0, -1], [0, 2, 3]), "of 2"),
        (cache(0, [1, 1], [0, 2, 3]), "slot 1 is used twice"),
    ] {
        let error = wrong.expect_err(words);
        assert_eq!(error.code, ErrorCode::INVALID, "{error}");
        assert!(error.message.contains(words), "{error}");
    }
}
