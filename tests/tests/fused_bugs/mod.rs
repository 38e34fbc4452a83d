//! Bugs of fused ops, planted into `cpu`.

use super::*;

#[test]
fn bugs_of_fused_ops_are_found() {
    let alpha = Bug::Request(|request| {
        request.attributes.0.remove("alpha");
    });
    all_found(
        "must be",
        [
            ("linear.2", "no alpha", alpha),
            ("linear.2", "the last number added", Bug::Drops(1, 4)),
            ("linear.3", "no alpha", alpha),
            ("linear.3", "the last of the residual", Bug::Drops(2, 4)),
            ("linear.4", "no alpha", alpha),
            ("linear.4", "the last of h", Bug::Drops(1, 4)),
            ("linear.4", "the last of the residual", Bug::Drops(2, 4)),
            ("linear_input_backward.2", "no alpha", alpha),
            ("linear_input_backward.3", "no alpha", alpha),
            ("linear_input_backward.4", "no alpha", alpha),
            (
                "linear_input_backward.4",
                "the last of dh",
                Bug::Drops(1, 4),
            ),
            (
                "linear_input_backward.4",
                "the last added",
                Bug::Drops(3, 4),
            ),
            (
                "linear_input_backward.2",
                "the last added",
                Bug::Drops(1, 4),
            ),
            ("linear_weight_backward.2", "no alpha", alpha),
            ("rms_norm_backward.2", "the last added", Bug::Drops(2, 4)),
            ("rope.2", "the next position", Bug::Reads(2, next)),
        ],
    );
}
