//! Requests on standard input -> weights encoded by the plugin `hqq` with the time of each, for
//! `cargo xtask bench hqq`.
//!
//! A request is a line of JSON: `shape`, `options`, and a `folder` that holds the file `weight`,
//! f32, and receives a file for every segment. The answer is a line, `{"secs": ...}`: the time from
//! the weight in memory to its segments.
#![allow(clippy::print_stdout)] // Its answers.

use std::fs;
use std::io::{BufRead, Write, stdin, stdout};
use std::path::Path;
use std::time::Instant;

use espalier_config::{Sources, resolve};
use espalier_registry::{Registry, SearchPath};
use espalier_system::threads::HostServices;
use espalier_tests as _;
use serde_json::{Map, Value as Json, json};

fn main() {
    let threads = std::env::args().nth(1).and_then(|n| n.parse().ok());
    let threads = threads.expect("usage: hqq_encode THREADS");
    let services = HostServices::start(Some(threads)).expect("threads");
    let config = resolve(&Sources::default()).expect("a config");
    let registry = Registry::discover(&SearchPath::of(&config));
    for line in stdin().lock().lines() {
        let request: Json = serde_json::from_str(&line.expect("a line")).expect("JSON");
        let secs = serve(&request, &registry, services);
        println!("{}", json!({ "secs": secs }));
        stdout().flush().expect("a reader");
    }
}

fn serve(request: &Json, registry: &Registry, services: &'static HostServices) -> f64 {
    let folder = Path::new(request["folder"].as_str().expect("a folder"));
    let shape: [u64; 2] = serde_json::from_value(request["shape"].clone()).expect("a shape");
    let bytes = fs::read(folder.join("weight")).expect("a weight");
    let numbers = bytes.as_chunks::<4>().0.iter();
    let weight: Vec<f32> = numbers.map(|bytes| f32::from_le_bytes(*bytes)).collect();
    let options: Map<String, Json> =
        serde_json::from_value(request["options"].clone()).expect("options");
    let quantizer = registry.create_quantizer("hqq", &options, services);
    let (quantizer, _) = quantizer.expect("the plugin hqq");
    let start = Instant::now();
    let format = quantizer.format(shape).expect("a shape that fits");
    let sizes = format.segments.iter().map(|spec| spec.bytes() as usize);
    let mut segments: Vec<Vec<u8>> = sizes.map(|bytes| vec![0; bytes]).collect();
    let mut workspace = vec![0; quantizer.encode_workspace(shape).expect("bytes") as usize];
    let mut views: Vec<&mut [u8]> = segments.iter_mut().map(Vec::as_mut_slice).collect();
    let encoded = quantizer.encode(&weight, shape, &mut views, &mut workspace);
    let secs = start.elapsed().as_secs_f64();
    encoded.expect("finite weights");
    for (spec, segment) in format.segments.iter().zip(&segments) {
        fs::write(folder.join(&spec.name), segment).expect("room");
    }
    secs
}
