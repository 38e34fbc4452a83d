//! Requests and launches that are wrong -> refusals in words that name what is wrong.

use espalier_interface::{ErrorCode, Kernels, Launch, Stream};

use super::tests::{normal, rows};
use crate::rig::Rig;

#[test]
fn an_unknown_op_version_dtype_or_attribute_is_named() {
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
    refused(
        scale().with("alpha", 2.0).with("beta", 1.0),
        "unknown attribute `beta` = 1.0",
    );
    let mut request = scale().with("alpha", 2.0).request();
    request.version = 2;
    let rig = scale();
    let error = rig.device.prepare(&request, &[]).unwrap_err();
    assert!(error.message.contains("version 2, expected 1"), "{error}");
}

#[test]
fn a_contradictory_request_is_refused() {
    let x = normal::<f32>(8, 1);
    let refused = |rig: Rig, words: &str| {
        let error = rig.run().unwrap_err();
        assert_eq!(error.code, ErrorCode::INVALID, "{error}");
        assert!(error.message.contains(words), "{error}");
    };
    refused(
        Rig::new("scale", 2).input(rows(&x, 4)).output(rows(&x, 4)),
        "attribute `alpha`",
    );
    refused(
        Rig::new("swiglu", 2).input(rows(&x, 4)),
        "1 inputs, 0 params and 0 outputs",
    );
    let other = Rig::new("mul", 2)
        .input(rows(&x, 4))
        .input(rows(&x, 2))
        .output(rows(&x, 4));
    refused(other, "b is f32 [Tokens, Fixed(2)]");
    let norm = Rig::new("rms_norm", 2)
        .input(rows(&x, 4))
        .param(&[3], &x[..3]);
    refused(
        norm.output(rows(&x, 4)).with("eps", 1e-5),
        "the weight has shape [3], expected [4]",
    );
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
