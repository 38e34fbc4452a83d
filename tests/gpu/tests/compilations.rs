//! When kernels are compiled, and which files spare it: over the mock libraries.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use espalier_backend_cuda::CudaBackend;
use espalier_interface::{
    Backend, BufferRange, DType, Device, ErrorCode, Kernel, KernelRequest, Launch, LogLevel,
    MemoryKind, Operand, Services, Stream,
};
use espalier_tests_gpu::libraries;
use serde_json::json;
use sha2::{Digest, Sha256};

/// Where the mock libraries are.
fn mocks() -> &'static Path {
    libraries(Path::new(env!("CARGO_TARGET_TMPDIR")))
}

/// Services of two threads that note what is asked of them.
#[derive(Default)]
struct Noted {
    loops: Mutex<Vec<usize>>,
    warnings: Mutex<Vec<String>>,
    progress: Mutex<Vec<[u64; 2]>>,
}

impl Services for Noted {
    fn threads(&self) -> usize {
        2
    }

    fn parallel_for(&self, count: usize, body: &(dyn Fn(usize) + Sync)) {
        self.loops.lock().unwrap().push(count);
        std::thread::scope(|scope| {
            scope.spawn(|| (0..count / 2).for_each(body));
            (count / 2..count).for_each(body);
        });
    }

    fn log(&self, level: LogLevel, message: &str) {
        if level == LogLevel::WARN {
            self.warnings.lock().unwrap().push(message.to_owned());
        }
    }

    fn progress(&self, _: &str, done: u64, total: u64) {
        self.progress.lock().unwrap().push([done, total]);
    }
}

/// A device with `libraries` and compiled kernels in `cache`; `more` are further options.
fn open([libraries, cache]: [&Path; 2], more: &[(&str, &Path)]) -> (Box<dyn Device>, Arc<Noted>) {
    let mut options =
        BTreeMap::from([("libraries", json!(libraries)), ("cache_dir", json!(cache))]);
    options.extend(more.iter().map(|(name, value)| (*name, json!(value))));
    let options = serde_json::from_value(json!(options)).expect("a table");
    let noted = Arc::new(Noted::default());
    let backend = CudaBackend::new(&options, noted.clone()).expect("known options");
    (backend.open(0).expect("a device of the mock"), noted)
}

const COUNT: u64 = 1000;

/// Three requests, of kernels in as many sources.
fn requests() -> [KernelRequest; 3] {
    let flat = |dtype| vec![Operand::flat(COUNT, dtype)];
    let rows = || Operand::per_token(10, DType::F32);
    let add = KernelRequest::new("add").inputs(vec![rows(), rows()]);
    let most = KernelRequest::new("row_max").inputs(vec![rows()]);
    let most = most.outputs(vec![Operand::per_token(1, DType::F32)]);
    [
        KernelRequest::new("cast")
            .inputs(flat(DType::F32))
            .outputs(flat(DType::BF16)),
        add.outputs(vec![rows()]).limits(COUNT / 10, 1),
        most.limits(COUNT / 10, 1),
    ]
}

/// Launches a kernel of a request on threes. Returns its first output's first byte pairs.
fn launched(device: &dyn Device, request: &KernelRequest, kernel: Kernel) -> Vec<u8> {
    let three = 3.0f32.to_le_bytes().repeat(COUNT as usize);
    let range = || {
        let bytes = three.len() as u64;
        let buffer = device.alloc(bytes, MemoryKind::DEVICE).expect("room");
        BufferRange {
            buffer,
            offset: 0,
            bytes,
        }
    };
    let mut ranges: Vec<_> = request.inputs.iter().map(|_| range()).collect();
    for input in &ranges {
        device.upload(&three, *input, Stream(0)).expect("uploaded");
    }
    ranges.push(range());
    let output = ranges[ranges.len() - 1];
    let launch = Launch {
        kernel,
        stream: Stream(0),
        ranges: &ranges,
        workspace: BufferRange { bytes: 0, ..output },
        tokens: request.max_tokens,
        sequences: request.max_sequences,
        scalars: &[],
    };
    device.launch(&launch).expect("launched");
    let mut found = vec![0; output.bytes as usize];
    device
        .download(output, &mut found, Stream(0))
        .expect("downloaded");
    found.truncate(4);
    found
}

/// Runs all requests on a device.
fn run_all(device: &dyn Device) {
    run(device, 0);
}

/// Runs the requests from `first` on.
fn run(device: &dyn Device, first: usize) {
    let bf16 = &3.0f32.to_le_bytes()[2..];
    let [two_bf16, six, three] = [
        [bf16, bf16].concat(),
        6.0f32.to_le_bytes().to_vec(),
        3.0f32.to_le_bytes().to_vec(),
    ];
    let all = requests().into_iter().zip([two_bf16, six, three]);
    for (request, expected) in all.skip(first) {
        let prepared = device.prepare(&request, &[]).expect("prepared");
        let found = launched(device, &request, prepared.kernel);
        assert_eq!(found, expected, "{}", request.op);
    }
}

/// The files of a folder, by name.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let file = |entry: fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        (name, fs::read(entry.path()).expect("a file"))
    };
    entries.map(file).collect()
}

#[test]
fn the_first_launch_compiles_all_that_is_prepared_at_once() {
    let cache = tempfile::tempdir().unwrap();
    let (device, noted) = open([mocks(), cache.path()], &[]);
    let kernels = requests().map(|request| device.prepare(&request, &[]).expect("prepared").kernel);
    assert_eq!(files(cache.path()).len(), 0, "compiled before a launch");
    launched(device.as_ref(), &requests()[0], kernels[0]);
    assert_eq!(files(cache.path()).len(), 3);
    run_all(device.as_ref());
    assert_eq!(*noted.loops.lock().unwrap(), [3]);
    let mut progress = noted.progress.lock().unwrap().clone();
    progress.sort_unstable();
    assert_eq!(progress, [[1, 3], [2, 3], [3, 3]]);
    // Another device finds them.
    let (device, noted) = open([mocks(), cache.path()], &[]);
    run_all(device.as_ref());
    assert!(noted.loops.lock().unwrap().is_empty(), "compiled again");
}

#[test]
fn damaged_files_are_compiled_again_and_replaced() {
    let cache = tempfile::tempdir().unwrap();
    run(open([mocks(), cache.path()], &[]).0.as_ref(), 2);
    let whole = files(cache.path());
    type Damage = fn(&[u8]) -> Vec<u8>;
    let damages: [Damage; 4] = [
        |_| Vec::new(),
        |bytes| bytes[..bytes.len() / 2].to_vec(),
        |bytes| {
            let mut bytes = bytes.to_vec();
            bytes[100] ^= 1;
            bytes
        },
        // Whole, but nothing that the driver takes.
        |_| {
            [
                &b"no code at all"[..],
                &Sha256::digest(b"no code at all")[..],
            ]
            .concat()
        },
    ];
    for damage in damages {
        for (name, bytes) in &whole {
            fs::write(cache.path().join(name), damage(bytes)).unwrap();
        }
        let (device, noted) = open([mocks(), cache.path()], &[]);
        run(device.as_ref(), 2);
        assert!(noted.warnings.lock().unwrap().is_empty());
        let now = files(cache.path());
        assert!(now.keys().eq(whole.keys()), "{:?}", now.keys());
        let of = |bytes: &Vec<u8>| bytes.len();
        assert!(now.values().map(of).eq(whole.values().map(of)));
    }
}

#[test]
fn a_folder_that_cannot_be_written_costs_one_warning() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "no folder").unwrap();
    let (device, noted) = open([mocks(), &file.join("kernels")], &[]);
    run_all(device.as_ref());
    let warnings = noted.warnings.lock().unwrap();
    let [warning] = &warnings[..] else {
        panic!("expected one warning, found {warnings:?}");
    };
    assert!(warning.contains("cannot be kept in"), "{warning}");
    assert!(warning.contains("backend.cuda.cache_dir"), "{warning}");
}

#[test]
fn without_a_compiler_kernels_on_disk_serve_and_others_are_refused_when_prepared() {
    let [cache, empty, driver] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let name = "libcuda.so.1";
    fs::copy(mocks().join(name), driver.path().join(name)).unwrap();
    run_all(open([mocks(), cache.path()], &[]).0.as_ref());
    run_all(open([driver.path(), cache.path()], &[]).0.as_ref());
    // Those of a folder that came with the program, too, which is not written.
    let before = files(cache.path());
    let shipped = [("kernels", cache.path())];
    run_all(open([driver.path(), empty.path()], &shipped).0.as_ref());
    run_all(open([mocks(), empty.path()], &shipped).0.as_ref());
    assert_eq!(files(empty.path()).len(), 0, "compiled");
    assert_eq!(files(cache.path()), before);
    let (device, _) = open([driver.path(), empty.path()], &[]);
    let error = device.prepare(&requests()[0], &[]).map(drop);
    let error = error.expect_err("there is no compiler");
    assert_eq!(error.code, ErrorCode::DEVICE);
    let words = ["NVRTC", "pip install nvidia-cuda-nvrtc"];
    for word in words {
        assert!(error.message.contains(word), "{}", error.message);
    }
}
