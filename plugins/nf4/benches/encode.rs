//! Encoding a weight -> bytes a second, read and written, beside those of a copy of the weight.
//!
//! `cargo bench -p espalier-nf4 --bench encode [THREADS]`: one thread, or as many as are named.
#![allow(clippy::print_stdout)] // A benchmark prints its figures.

use std::hint::black_box;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use espalier_interface::{Component, Instance, Quantizer, Services};
use espalier_kernels::fill;
use serde_json::json;

/// `[out, in]` of the weight, larger than caches.
const SHAPE: [u64; 2] = [11_008, 4096];
const TURNS: usize = 11;

/// Weights that a thread copies at a time, as many as the encoder takes.
const SPAN: usize = 1 << 16;

/// Threads that are started for each call.
struct Threads(usize);

impl Services for Threads {
    fn threads(&self) -> usize {
        self.0
    }

    fn parallel_for(&self, count: usize, body: &(dyn Fn(usize) + Sync)) {
        std::thread::scope(|scope| {
            for thread in 1..self.0 {
                scope.spawn(move || (thread..count).step_by(self.0).for_each(body));
            }
            (0..count).step_by(self.0).for_each(body);
        });
    }
}

/// A quantizer and room for what it writes.
struct Case {
    name: String,
    quantizer: Box<dyn Quantizer>,
    segments: Vec<Vec<u8>>,
    workspace: Vec<u8>,
}

impl Case {
    fn new(component: &Component, double_quant: bool, threads: usize) -> Case {
        let options = json!({ "block_size": 64, "double_quant": double_quant });
        let options = serde_json::from_value(options).expect("an object");
        let created = (component.create)(&options, Arc::new(Threads(threads)));
        let Ok(Instance::Quantizer(quantizer)) = created else {
            panic!("{} is a quantizer", component.name);
        };
        let format = quantizer.format(SHAPE).expect("it has elements");
        let segments = format.segments.iter();
        let segments = segments.map(|s| vec![1; s.bytes() as usize]).collect();
        let workspace = quantizer.encode_workspace(SHAPE).expect("it has elements");
        let suffix = if double_quant { ", double" } else { "" };
        Case {
            name: format!("{}{suffix}", component.name),
            quantizer,
            segments,
            workspace: vec![1; workspace as usize],
        }
    }

    fn encode(&mut self, weight: &[f32]) {
        let mut segments: Vec<&mut [u8]> = self.segments.iter_mut().map(|s| &mut s[..]).collect();
        self.quantizer
            .encode(weight, SHAPE, &mut segments, &mut self.workspace)
            .expect("finite weights");
        black_box(&self.segments);
    }

    /// Bytes of the weight and of what is stored; the workspace is not counted.
    fn bytes(&self, weight: &[f32]) -> usize {
        size_of_val(weight) + self.segments.iter().map(Vec::len).sum::<usize>()
    }
}

fn copy(on: &Threads, from: &[f32], to: &mut [f32]) {
    let spans = from.chunks(SPAN).zip(to.chunks_mut(SPAN));
    let spans: Vec<_> = spans.map(Mutex::new).collect();
    on.parallel_for(spans.len(), &|i| {
        let mut span = spans[i].lock().expect("each span is taken once");
        let (from, to) = &mut *span;
        to.copy_from_slice(from);
    });
    black_box(to);
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn secs(body: impl FnOnce()) -> f64 {
    let start = Instant::now();
    body();
    start.elapsed().as_secs_f64()
}

fn main() {
    let threads = std::env::args().find_map(|argument| argument.parse().ok());
    let on = Threads(threads.unwrap_or(1));
    let mut weight = vec![0f32; (SHAPE[0] * SHAPE[1]) as usize];
    fill::normal(&on, [1, 2], 3, [0.0, 0.02], &mut weight);
    let mut copied = vec![1f32; weight.len()];
    let components = [espalier_nf4::NF4, espalier_nf4::FP4];
    let mut cases: Vec<Case> = components
        .iter()
        .flat_map(|component| [false, true].map(|double| Case::new(component, double, on.0)))
        .collect();
    let mut copies = Vec::new();
    let mut encoded = vec![Vec::new(); cases.len()];
    for _ in 0..TURNS {
        copies.push(secs(|| copy(&on, &weight, &mut copied)));
        for (case, secs_of) in cases.iter_mut().zip(&mut encoded) {
            secs_of.push(secs(|| case.encode(&weight)));
        }
    }
    let rate = |bytes: usize, secs: Vec<f64>| bytes as f64 / median(secs) / 1e9;
    let copy_rate = rate(2 * size_of_val(&weight[..]), copies);
    println!("{} threads, copy {copy_rate:6.2} GB/s", on.0);
    for (case, secs) in cases.iter().zip(encoded) {
        let rate = rate(case.bytes(&weight), secs);
        let ratio = rate / copy_rate;
        println!("{:<12} {rate:6.2} GB/s, {ratio:.2} of a copy", case.name);
    }
}
