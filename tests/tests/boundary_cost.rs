//! The cost of the boundary between host and plugins in a step: the number of its calls, times the
//! extra time of one call.
#![allow(clippy::print_stdout)] // Figures, for whoever looks.
#![cfg(feature = "embedded")]

use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use espalier_backend_cpu::CpuBackend;
use espalier_config::{Sources, resolve};
use espalier_engine::observer::Unobserved;
use espalier_engine::step;
use espalier_interface::{
    Backend, Buffer, BufferRange, DType, Decoder, Device, Event, KernelRequest, Kernels, Launch,
    Memory, MemoryKind, Operand, Prepared, Result, Serial, Services, Stream, Streams,
};
use espalier_registry::{Registry, SearchPath};
use espalier_tests::{micro_batch, step_of};
use espalier_trainer::session::Session;
use espalier_trainer::weights;

/// A device that counts the calls to another.
struct Counted {
    device: Arc<dyn Device>,
    calls: Arc<AtomicU64>,
}

impl Counted {
    fn call(&self) -> &dyn Device {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.device.as_ref()
    }
}

impl Memory for Counted {
    fn alloc(&self, bytes: u64, kind: MemoryKind) -> Result<Buffer> {
        self.call().alloc(bytes, kind)
    }

    fn free(&self, buffer: Buffer) -> Result<()> {
        self.call().free(buffer)
    }

    fn upload(&self, from: &[u8], to: BufferRange, stream: Stream) -> Result<()> {
        self.call().upload(from, to, stream)
    }

    fn download(&self, from: BufferRange, to: &mut [u8], stream: Stream) -> Result<()> {
        self.call().download(from, to, stream)
    }

    fn copy(&self, from: BufferRange, to: BufferRange, stream: Stream) -> Result<()> {
        self.call().copy(from, to, stream)
    }

    fn host_address(&self, range: BufferRange) -> Option<NonNull<u8>> {
        self.call().host_address(range)
    }
}

impl Streams for Counted {
    fn stream(&self) -> Result<Stream> {
        self.call().stream()
    }

    fn record(&self, stream: Stream) -> Result<Event> {
        self.call().record(stream)
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<()> {
        self.call().wait(stream, event)
    }

    fn synchronize(&self, stream: Stream) -> Result<()> {
        self.call().synchronize(stream)
    }
}

impl Kernels for Counted {
    fn prepare(&self, request: &KernelRequest, decoders: &[Option<Decoder>]) -> Result<Prepared> {
        self.call().prepare(request, decoders)
    }

    fn launch(&self, launch: &Launch<'_>) -> Result<()> {
        self.call().launch(launch)
    }
}

/// Calls of one step of the quickstart's model, nf4 and LoRA, on 8 rows of 64 tokens; and its time
/// in seconds.
fn step_of_the_quickstart() -> (u64, f64) {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/quickstart/model");
    let keys = [
        format!("model.path={model:?}"),
        "plugins=[\"nf4\", \"lora\"]".to_owned(),
        "model.compute=\"f32\"".to_owned(),
        "data.max_seq_len=64".to_owned(),
        "data.micro_batch=8".to_owned(),
    ];
    let sources = keys.into_iter().fold(Sources::default(), Sources::set);
    let resolved = resolve(&sources).expect("a config");
    let session = Session::open(&resolved, &Unobserved).expect("a session");
    let calls = Arc::new(AtomicU64::new(0));
    let mut run = session.run;
    run.device = Arc::new(Counted {
        device: run.device,
        calls: Arc::clone(&calls),
    });
    let config = resolved.config();
    let (directory, components) = (&session.directory, &session.components);
    let loaded = weights::load(config, directory, components, run, &Unobserved);
    let (executor, _) = loaded.expect("the model loads");
    let row = |row: i32| (0..64).map(|at| 3 + (7 * row + at) % 200).collect();
    let rows: Vec<Vec<i32>> = (0..8).map(row).collect();
    let batch = step_of(vec![micro_batch(&rows, &rows)]);
    let mut fastest = f64::INFINITY;
    for index in 0..3 {
        calls.store(0, Ordering::Relaxed);
        let begin = Instant::now();
        step::train(&executor, &config.optim, &batch, [index, 3], 42).expect("a step");
        fastest = fastest.min(begin.elapsed().as_secs_f64());
    }
    (calls.load(Ordering::Relaxed), fastest)
}

/// Seconds of a minimal launch, the least of many rounds.
fn launch_secs(device: &dyn Device) -> f64 {
    let request = KernelRequest::new("zero").outputs(vec![Operand::flat(16, DType::F32)]);
    let prepared = device.prepare(&request, &[]).expect("an op of version 1");
    let buffer = device.alloc(64, MemoryKind::DEVICE).expect("64 bytes");
    let range = BufferRange {
        buffer,
        offset: 0,
        bytes: 64,
    };
    let launch = Launch {
        kernel: prepared.kernel,
        stream: Stream(0),
        ranges: &[range],
        workspace: BufferRange { bytes: 0, ..range },
        tokens: 0,
        sequences: 0,
        scalars: &[],
    };
    let round = || {
        let begin = Instant::now();
        for _ in 0..1000 {
            device.launch(&launch).expect("it was prepared");
        }
        begin.elapsed().as_secs_f64() / 1000.0
    };
    let rounds = (0..200).map(|_| round());
    rounds.min_by(f64::total_cmp).expect("rounds")
}

#[test]
fn calls_through_the_boundary_are_below_a_thousandth_of_a_step() {
    static SERVICES: &dyn Services = &Serial;
    let direct = CpuBackend::new(Arc::new(Serial)).open(0).expect("a device");
    let registry = Registry::discover(&SearchPath::new::<String>([]));
    let none = serde_json::Map::new();
    let (backend, _) = registry
        .create_backend("cpu", &none, SERVICES)
        .expect("cpu");
    let through = backend.open(0).expect("a device");
    let (direct, through) = (launch_secs(direct.as_ref()), launch_secs(through.as_ref()));
    // Both are least times, but other load on the machine disturbs them: smaller differences are
    // noise.
    let extra = (through - direct).max(5e-9);
    let (calls, step_secs) = step_of_the_quickstart();
    let share = calls as f64 * extra / step_secs;
    println!(
        "{calls} calls a step of {:.1} ms; a launch takes {:.0} ns through the boundary and {:.0} ns without: \
         {:.5} % of the step",
        1e3 * step_secs,
        1e9 * through,
        1e9 * direct,
        100.0 * share
    );
    assert!(calls > 100, "{calls} calls: is the device counted?");
    assert!(
        share < 1e-3,
        "calls cost {share} of a step, expected below 0.001"
    );
}
