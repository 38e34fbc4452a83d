//! Changes of requests and operands, of which bugs are made.

use espalier_interface::KernelRequest;
use serde_json::Value as Json;

/// Sets attribute `name`.
pub fn set(request: &mut KernelRequest, name: &str, value: impl Into<Json>) {
    request.attributes.0.insert(name.to_owned(), value.into());
}

/// A window one token wider.
pub fn wider(request: &mut KernelRequest) {
    if let Some(window) = request.attributes.0["window"].as_u64() {
        set(request, "window", window + 1);
    }
}

/// No cap.
pub fn uncapped(request: &mut KernelRequest) {
    set(request, "softcap", Json::Null);
}

/// A scale that is a thousandth larger.
pub fn scaled(request: &mut KernelRequest) {
    let scale = request.attributes.number("scale").expect("a scale");
    set(request, "scale", scale * 1.001);
}

/// The numbers that follow.
pub fn next(numbers: &mut [i32]) {
    numbers.iter_mut().for_each(|n| *n += 1);
}

/// Sequences that run into one another.
pub fn joined(cu_seqlens: &mut [i32]) {
    let last = cu_seqlens[cu_seqlens.len() - 1];
    cu_seqlens[1..].fill(last);
}
