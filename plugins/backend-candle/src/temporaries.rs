//! Test: what candle allocates in a launch is at most what its kernel states, for every case of the
//! kit of ops.
#![allow(unsafe_code)] // An allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use espalier_conformance::ops;
use espalier_host_device::{Asked, HostDevice, HostOptions, KernelMaker, Made, Setting};
use espalier_interface::{Result, Serial};
use espalier_tensor_ops::TensorKernels;

use crate::library::Candle;

/// Bytes that products pack operands in and lists of the host take, which kernels do not state.
const SMALL: usize = 1 << 16;

/// The system's allocator with a count of bytes in use, and the largest count.
struct Counting;

static USED: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let used = USED.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(used, Ordering::Relaxed);
        // SAFETY: as this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as this function.
        unsafe { System.dealloc(address, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Kernels of candle that are watched.
struct Watched {
    kernels: TensorKernels<Candle>,
    /// Launches that took more than stated: op, bytes, stated bytes.
    beyond: Arc<Mutex<Vec<(String, usize, u64)>>>,
}

impl KernelMaker for Watched {
    fn name(&self) -> &str {
        self.kernels.name()
    }

    fn prepare(&self, asked: &Asked<'_>, setting: &Setting<'_>) -> Result<Made> {
        let Made {
            run,
            workspace_bytes,
            temporary_bytes,
            overlap,
        } = self.kernels.prepare(asked, setting)?;
        let (op, beyond) = (asked.request.id().to_string(), self.beyond.clone());
        let watched = Made::new(move |call| {
            let before = USED.load(Ordering::Relaxed);
            MOST.store(before, Ordering::Relaxed);
            run(call)?;
            let taken = MOST.load(Ordering::Relaxed).saturating_sub(before);
            if taken > temporary_bytes as usize + SMALL {
                let mut beyond = beyond.lock().expect("no test panics with it");
                beyond.push((op.clone(), taken, temporary_bytes));
            }
            Ok(())
        });
        Ok(Made {
            workspace_bytes,
            overlap,
            ..watched
        })
    }
}

#[test]
fn launches_take_no_more_than_stated() {
    let beyond = Arc::new(Mutex::new(Vec::new()));
    let services = Arc::new(Serial);
    let watched = Watched {
        kernels: TensorKernels::new("candle", Arc::new(Candle::new(services.clone()))),
        beyond: beyond.clone(),
    };
    let device = HostDevice::new(Box::new(watched), services, HostOptions::default());
    let check_all = || {
        for op in ops::all() {
            ops::check(&device, op).expect("an op of the kit");
        }
    };
    // The first product of each thread takes a buffer of the size of the second-level cache, which
    // the thread keeps.
    check_all();
    beyond.lock().expect("no test panicked with it").clear();
    check_all();
    let beyond = beyond.lock().expect("no test panicked with it");
    assert!(beyond.is_empty(), "{beyond:?}");
}
