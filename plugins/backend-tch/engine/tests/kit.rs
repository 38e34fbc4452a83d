//! The kit of ops on libtorch: every op, forward and backward, in f32 and bf16, none refused.

use std::sync::Arc;

use espalier_conformance::ops::{self, OpCheck};
use espalier_interface::{Backend, Device, OpId, Options, Serial};
use espalier_tch_engine::TchBackend;

fn backend() -> TchBackend {
    TchBackend::new(&Options::default(), Arc::new(Serial)).expect("no options")
}

fn device() -> Box<dyn Device> {
    backend().open(0).expect("the processors")
}

#[test]
fn every_op_passes_and_none_is_refused() {
    let device = device();
    let mut failed = Vec::new();
    let mut passed = 0;
    for op in ops::all() {
        match ops::check(device.as_ref(), op) {
            Ok(()) => passed += 1,
            Err(fault) => failed.push(format!("{}: {fault:?}", op.name)),
        }
    }
    let all = passed + failed.len();
    assert!(
        failed.is_empty(),
        "{passed} of {all} pass\n{}",
        failed.join("\n")
    );
    assert!(passed > 60, "the kit has {passed} checks only");
}

#[test]
fn the_listed_ops_are_those_of_the_kit() {
    let listed = backend().ops().expect("a list").expect("some");
    let name = |id: &OpId| match id.version {
        1 => format!("op.{}", id.name),
        version => format!("op.{}.{version}", id.name),
    };
    let mut listed: Vec<String> = listed.iter().map(name).collect();
    let mut checked: Vec<String> = ops::all().map(|op: &OpCheck| op.name.to_owned()).collect();
    listed.sort();
    checked.sort();
    assert_eq!(listed, checked);
}

#[test]
fn a_device_that_is_not_there_is_refused() {
    let refused = backend().open(1).err().expect("there is one device");
    assert!(refused.message.contains("only device 0"), "{refused}");
}
