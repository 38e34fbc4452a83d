//! The shim, opened and called. On a machine without a card: what its errors say. On one with a
//! card: the kit of ops.

use std::sync::Arc;

use espalier_conformance::ops;
use espalier_host_device::HostOptions;
use espalier_interface::{Backend, ErrorCode, Options, Serial};

use super::shim::{called, shim};
use super::{Cuda, shim::MISSING};
use crate::TchBackend;

/// Where the engine is built without CUDA, or libtorch's own libraries of CUDA are missing, the
/// error says why.
fn is_without_shim() -> bool {
    let Err(error) = shim() else { return false };
    assert_eq!(error.code, ErrorCode::DEVICE);
    let why = match MISSING {
        "" => "cannot be opened: lib",
        why => why,
    };
    assert!(error.message.contains(why), "{error}");
    true
}

#[test]
fn an_exception_is_an_error_of_one_line() {
    if is_without_shim() {
        return;
    }
    let shim = shim().expect("libtorch_cuda.so can be opened");
    let fail = |how: i32| called(|text| (shim.fail)(how, text));
    fail(0).expect("asked to do nothing");
    for (how, code, text) in [
        (1, ErrorCode::OUT_OF_MEMORY, "CUDA: asked to have no memory"),
        (2, ErrorCode::DEVICE, "CUDA: asked to fail"),
        (
            3,
            ErrorCode::DEVICE,
            "CUDA: an exception of an unknown type",
        ),
        (4, ErrorCode::DEVICE, "CUDA: fail: invalid argument"),
    ] {
        let error = fail(how).expect_err("asked to fail");
        assert_eq!((error.code, error.message.as_str()), (code, text));
    }
}

#[test]
fn cuda_that_is_absent_is_told_with_the_next_step() {
    if is_without_shim() {
        return;
    }
    let Err(error) = Cuda::open() else { return };
    assert_eq!(error.code, ErrorCode::DEVICE);
    let text = &error.message;
    assert!(
        text.starts_with("expected a CUDA device, found none"),
        "{text}"
    );
    assert!(text.contains("backend.tch.device = \"cpu\""), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn the_option_device_chooses_the_devices() {
    let with = |device: &str| {
        let mut options = Options::default();
        options.0.insert("device".to_owned(), device.into());
        TchBackend::new(&options, Arc::new(Serial))
    };
    let names = |backend: TchBackend| {
        let devices = backend.devices().expect("they are described");
        devices
            .into_iter()
            .map(|device| device.name)
            .collect::<Vec<_>>()
    };
    assert_eq!(names(with("cpu").expect("there are processors")), ["cpu"]);
    let error = with("tpu").err().expect("no such device");
    assert_eq!(error.code, ErrorCode::INVALID);
    assert!(
        error.message.contains("`cpu` or `cuda`, found `tpu`"),
        "{error}"
    );
    match with("cuda") {
        Ok(backend) => assert_eq!(names(backend)[0], "cuda:0"),
        Err(error) => assert_eq!(error.code, ErrorCode::DEVICE),
    }
}

/// On a machine without a card this says so and shows nothing else.
#[test]
fn every_op_passes_on_a_card() {
    let cuda = match Cuda::open() {
        Ok(cuda) => cuda,
        Err(error) => {
            eprintln!("left out, without a card: {error}");
            return;
        }
    };
    let options = HostOptions::default();
    let beyond = cuda.device(cuda.devices, Arc::new(Serial), &options);
    let error = beyond.err().expect("an index behind the last");
    assert_eq!(error.code, ErrorCode::INVALID);
    let device = cuda
        .device(0, Arc::new(Serial), &options)
        .expect("it opens");
    for op in ops::all() {
        ops::check(device.as_ref(), op).unwrap_or_else(|fault| panic!("{}: {fault:?}", op.name));
    }
}
