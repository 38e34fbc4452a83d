//! A device with one planted bug: a sound device whose requests, launches or results are changed.

pub mod changes;

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use espalier_interface::{
    Buffer, BufferRange, DType, Decoder, Device, Event, HostMemory, Kernel, KernelRequest, Kernels,
    Launch, Memory, MemoryKind, Prepared, Result, Stream, Streams,
};

/// A bug.
#[derive(Clone, Copy)]
pub enum Bug {
    /// Another kernel is prepared than the one asked for.
    Request(fn(&mut KernelRequest)),
    /// It reads other scalars.
    Scalars(fn(&mut [f64])),
    /// It reads other elements in range `.0`, of i32, as one that takes them wrong.
    Reads(usize, fn(&mut [i32])),
    /// It takes range `.0` for range `.1`, and the other way round.
    Swaps(usize, usize),
    /// It reads bytes as zeros: range `.0`, of those `.1` from the end on.
    Drops(usize, usize),
    /// What it writes to output `.0` is changed: the numbers before and after.
    Writes(usize, fn(&[f64], &mut [f64])),
    /// The last element of each output is a little off.
    LastElement,
    /// The last element of each output is not written.
    LastStays,
    /// Outputs that are added to are written over.
    WritesOver,
    /// Elements behind each output are written.
    WritesBehind,
    /// The first byte of input 0 is written.
    WritesInput,
    /// A byte behind the workspace is written.
    WritesBehindWorkspace,
    /// The last element of each output depends on what the workspace held.
    ReadsWorkspace,
}

/// A device with a bug.
pub struct Spoiled {
    device: Box<dyn Device>,
    bug: Bug,
    requests: Mutex<HashMap<u64, KernelRequest>>,
}

impl Spoiled {
    /// `device` with a bug.
    pub fn new(device: Box<dyn Device>, bug: Bug) -> Self {
        Spoiled {
            device,
            bug,
            requests: Mutex::default(),
        }
    }

    fn get(&self, range: BufferRange) -> Result<Vec<u8>> {
        let mut bytes = vec![0; range.bytes as usize];
        self.device.download(range, &mut bytes, Stream(0))?;
        Ok(bytes)
    }

    fn put(&self, range: BufferRange, bytes: &[u8]) -> Result<()> {
        self.device.upload(bytes, range, Stream(0))
    }

    /// Launches with other bytes in a range that is read.
    fn reading(
        &self,
        launch: &Launch<'_>,
        range: BufferRange,
        change: impl FnOnce(&mut Vec<u8>),
    ) -> Result<()> {
        let kept = self.get(range)?;
        let mut other = kept.clone();
        change(&mut other);
        self.put(range, &other)?;
        self.device.launch(launch)?;
        self.put(range, &kept)
    }

    /// Launches, and changes the bytes of outputs: the dtype, the bytes before and after.
    fn writing(
        &self,
        launch: &Launch<'_>,
        dtypes: &[DType],
        change: impl Fn(usize, DType, &[u8], &mut [u8]),
    ) -> Result<()> {
        let outputs = &launch.ranges[launch.ranges.len() - dtypes.len()..];
        let before = outputs.iter().map(|output| self.get(*output));
        let before = before.collect::<Result<Vec<_>>>()?;
        self.device.launch(launch)?;
        for (index, (output, before)) in outputs.iter().zip(&before).enumerate() {
            let mut after = self.get(*output)?;
            change(index, dtypes[index], before, &mut after);
            self.put(*output, &after)?;
        }
        Ok(())
    }

    /// Launches, and writes what lies behind some ranges.
    fn behind(&self, launch: &Launch<'_>, ranges: &[BufferRange]) -> Result<()> {
        self.device.launch(launch)?;
        for range in ranges {
            let next = BufferRange {
                offset: range.offset + range.bytes,
                bytes: 1,
                ..*range
            };
            let found = self.get(next)?;
            self.put(next, &[found[0] ^ 1])?;
        }
        Ok(())
    }

    fn run(&self, launch: &Launch<'_>, request: &KernelRequest) -> Result<()> {
        let dtypes = request.outputs.iter().map(|output| output.dtype);
        let dtypes: Vec<DType> = dtypes.collect();
        let outputs = &launch.ranges[launch.ranges.len() - dtypes.len()..];
        match self.bug {
            Bug::Request(_) => self.device.launch(launch),
            Bug::Scalars(change) => {
                let mut scalars = launch.scalars.to_vec();
                change(&mut scalars);
                let scalars = &scalars[..];
                self.device.launch(&Launch { scalars, ..*launch })
            }
            Bug::Reads(index, change) => self.reading(launch, launch.ranges[index], |bytes| {
                let chunks = bytes.chunks_exact(4);
                let number = |chunk: &[u8]| i32::from_le_bytes(chunk.try_into().expect("4 bytes"));
                let mut numbers: Vec<i32> = chunks.map(number).collect();
                change(&mut numbers);
                *bytes = numbers.into_iter().flat_map(i32::to_le_bytes).collect();
            }),
            Bug::Swaps(a, b) => {
                let mut ranges = launch.ranges.to_vec();
                ranges.swap(a, b);
                let ranges = &ranges[..];
                self.device.launch(&Launch { ranges, ..*launch })
            }
            Bug::Drops(index, count) if index < launch.ranges.len() - dtypes.len() => {
                self.reading(launch, launch.ranges[index], |bytes| {
                    let first = bytes.len().saturating_sub(count);
                    bytes[first..].fill(0);
                })
            }
            Bug::Drops(..) => self.device.launch(launch),
            Bug::Writes(wanted, change) => self.writing(launch, &dtypes, |index, dtype, a, b| {
                if index == wanted {
                    let before = numbers(dtype, a);
                    let mut after = numbers(dtype, b);
                    change(&before, &mut after);
                    b.copy_from_slice(&bytes(dtype, &after));
                }
            }),
            Bug::LastElement => {
                self.writing(launch, &dtypes, |_, dtype, _, bytes| off(dtype, bytes))
            }
            Bug::LastStays => self.writing(launch, &dtypes, |_, dtype, before, bytes| {
                let last = bytes.len().saturating_sub(dtype.bytes() as usize);
                bytes[last..].copy_from_slice(&before[last..]);
            }),
            Bug::WritesOver => {
                for output in outputs {
                    self.put(*output, &vec![0; output.bytes as usize])?;
                }
                self.device.launch(launch)
            }
            Bug::WritesBehind => self.behind(launch, outputs),
            Bug::WritesInput => {
                let input = launch.ranges[0];
                let first = BufferRange {
                    bytes: input.bytes.min(1),
                    ..input
                };
                self.device.launch(launch)?;
                let found = self.get(first)?;
                let other: Vec<u8> = found.iter().map(|byte| byte ^ 1).collect();
                self.put(first, &other)
            }
            Bug::WritesBehindWorkspace => self.behind(launch, &[launch.workspace]),
            Bug::ReadsWorkspace => {
                let held = self.get(BufferRange {
                    bytes: launch.workspace.bytes.min(1),
                    ..launch.workspace
                })?;
                self.writing(launch, &dtypes, |_, _, _, bytes| {
                    if let (Some(last), Some(held)) = (bytes.last_mut(), held.first()) {
                        // The first launch finds this byte in it and gives what is expected.
                        *last ^= u8::from(*held != 0xFF);
                    }
                })
            }
        }
    }
}

/// Moves the last element by eight steps of its dtype, by more in f32, whose bounds are wider.
fn off(dtype: DType, bytes: &mut [u8]) {
    let size = dtype.bytes() as usize;
    let Some(last) = bytes.len().checked_sub(size) else {
        return;
    };
    match dtype {
        DType::BF16 | DType::F16 => bytes[last] ^= 8,
        DType::F32 => bytes[last + 2] ^= 1,
        DType::F64 => bytes[last + 3] ^= 1,
        _ => bytes[last] ^= 1,
    }
}

fn numbers(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    let size = dtype.bytes() as usize;
    let number = |x: &[u8]| match dtype {
        DType::F32 => f64::from(f32::from_le_bytes(x.try_into().expect("4 bytes"))),
        DType::BF16 => f64::from(half::bf16::from_le_bytes(x.try_into().expect("2 bytes"))),
        DType::I32 => f64::from(i32::from_le_bytes(x.try_into().expect("4 bytes"))),
        DType::I64 => i64::from_le_bytes(x.try_into().expect("8 bytes")) as f64,
        other => panic!("no bug writes {other}"),
    };
    bytes.chunks_exact(size).map(number).collect()
}

fn bytes(dtype: DType, numbers: &[f64]) -> Vec<u8> {
    let bytes = |x: f64| match dtype {
        DType::F32 => (x as f32).to_le_bytes().to_vec(),
        DType::BF16 => half::bf16::from_f64(x).to_le_bytes().to_vec(),
        DType::I32 => (x as i32).to_le_bytes().to_vec(),
        DType::I64 => (x as i64).to_le_bytes().to_vec(),
        other => panic!("no bug writes {other}"),
    };
    numbers.iter().flat_map(|&x| bytes(x)).collect()
}

impl Memory for Spoiled {
    fn alloc(&self, bytes: u64, kind: MemoryKind) -> Result<Buffer> {
        self.device.alloc(bytes, kind)
    }

    fn free(&self, buffer: Buffer) -> Result<()> {
        self.device.free(buffer)
    }

    fn upload(&self, from: &[u8], to: BufferRange, stream: Stream) -> Result<()> {
        self.device.upload(from, to, stream)
    }

    fn download(&self, from: BufferRange, to: &mut [u8], stream: Stream) -> Result<()> {
        self.device.download(from, to, stream)
    }

    fn copy(&self, from: BufferRange, to: BufferRange, stream: Stream) -> Result<()> {
        self.device.copy(from, to, stream)
    }

    /// None: the kit may not touch the memory.
    fn host_address(&self, _: BufferRange) -> Option<NonNull<u8>> {
        None
    }

    fn import(&self, memory: HostMemory) -> Result<Buffer> {
        self.device.import(memory)
    }
}

impl Streams for Spoiled {
    fn stream(&self) -> Result<Stream> {
        self.device.stream()
    }

    fn record(&self, stream: Stream) -> Result<Event> {
        self.device.record(stream)
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<()> {
        self.device.wait(stream, event)
    }

    fn synchronize(&self, stream: Stream) -> Result<()> {
        self.device.synchronize(stream)
    }
}

impl Kernels for Spoiled {
    fn prepare(&self, request: &KernelRequest, decoders: &[Option<Decoder>]) -> Result<Prepared> {
        let mut other = request.clone();
        if let Bug::Request(change) = self.bug {
            change(&mut other);
        }
        // As the boundary does.
        other.validate()?;
        let prepared = self.device.prepare(&other, decoders)?;
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.insert(prepared.kernel.0, request.clone());
        Ok(prepared)
    }

    fn launch(&self, launch: &Launch<'_>) -> Result<()> {
        let Kernel(kernel) = launch.kernel;
        let request = {
            let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            requests.get(&kernel).cloned()
        };
        self.run(launch, &request.expect("a kernel that was prepared"))
    }
}
