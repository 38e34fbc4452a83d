//! Planted bugs of layer norms and GELU are found by the checks of their ops.

use super::{Bug, all_found, set};

#[test]
fn bugs_of_layer_norms_and_gelus_are_found() {
    let eps = Bug::Request(|request| set(request, "eps", 2e-5));
    let bias = Bug::Drops(2, usize::MAX);
    let other_form = Bug::Request(|request| {
        let is_exact = request.attributes.text("approximate") == Some("none");
        set(
            request,
            "approximate",
            if is_exact { "tanh" } else { "none" },
        );
    });
    all_found(
        "must be",
        [
            ("layer_norm", "another eps", eps),
            ("layer_norm", "no bias", bias),
            ("layer_norm_backward", "another eps", eps),
            ("layer_norm_weight_backward", "another eps", eps),
            ("gelu", "the other form", other_form),
            ("gelu_backward", "the other form", other_form),
        ],
    );
}
