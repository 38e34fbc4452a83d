//! Packed weights on the backend `cuda` over the mock libraries: the values of every format of the
//! shipped quantizers and of three of third parties are those of the processor, bit for bit.

use std::path::Path;
use std::sync::Arc;

use espalier_backend_cuda::CudaBackend;
use espalier_conformance::{Outcome, Report, Subject, Suite, Threads, device_code, ops, weights};
use espalier_interface::format::{Decoding, DeviceCode, Format};
use espalier_interface::graph::{Attributes, Dim};
use espalier_interface::{
    Backend, DType, Device, KernelRequest, Operand, ParamOperand, Quantizer, Result, Serial,
    WeightLayout,
};
use espalier_tests_gpu::third_party::{component, folder as sample_folder, registry, sample};
use espalier_tests_gpu::{launched, options, quantizers};

/// Weights `[N, M]`: one that is whole blocks of every quantizer, and one that ends within what a
/// thread decodes, which a quantizer may refuse.
const SHAPES: [[u64; 2]; 2] = [[128, 192], [17, 101]];

/// Where the mock libraries and the kernels are kept.
fn folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// A device over the mock libraries, for as long as the process lives.
fn device() -> &'static dyn Device {
    let backend = CudaBackend::new(&options(folder(), "own"), Arc::new(Threads::new(2)));
    let backend = Box::leak(Box::new(backend.expect("options that it has")));
    Box::leak(backend.open(0).expect("a device"))
}

/// A weight packed by `quantizer`; none where it refuses the shape.
fn packed(quantizer: &dyn Quantizer, shape: [u64; 2]) -> Option<(Format, Vec<Vec<u8>>)> {
    let format = quantizer.format(shape).ok()?;
    let sizes = format.segments.iter().map(|one| one.bytes() as usize);
    let mut segments: Vec<Vec<u8>> = sizes.map(|bytes| vec![0; bytes]).collect();
    let mut borrowed: Vec<&mut [u8]> = segments.iter_mut().map(Vec::as_mut_slice).collect();
    let mut workspace = vec![0; quantizer.encode_workspace(shape).expect("a size") as usize];
    let weight = weights::ordinary(shape, 3);
    let encoded = quantizer.encode(&weight, shape, &mut borrowed, &mut workspace);
    encoded.expect("a finite weight");
    Some((format, segments))
}

/// Requires the processor's values on the device, and returns for how many shapes.
fn assert_same(device: &dyn Device, name: &str, quantizer: &dyn Quantizer) -> usize {
    let code = quantizer.device_code().expect("it can say");
    let packed = |shape| packed(quantizer, shape).map(|packed| (shape, packed));
    let packed: Vec<_> = SHAPES.into_iter().filter_map(packed).collect();
    for ([n, m], (format, segments)) in &packed {
        let segments: Vec<&[u8]> = segments.iter().map(Vec::as_slice).collect();
        let mut expected = vec![f32::NAN; (n * m) as usize];
        let decoded = match format.decoding {
            Decoding::Callback => {
                quantizer.decode(&segments, [*n, *m], 0..*n, 0..*m, &mut expected)
            }
            _ => format.decode(&segments, 0..*n, 0..*m, &mut expected),
        };
        decoded.expect("its own bytes");
        let found = ops::decoded(device, format, &segments, code.as_ref());
        let found = found.unwrap_or_else(|fault| panic!("{name}: {fault:?}"));
        assert_eq!(bits(&found), bits(&expected), "{name}, [{n}, {m}]");
    }
    packed.len()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn every_format_has_the_processors_values() {
    let device = device();
    let mut all = quantizers();
    for name in ["linear4", "higgs", "decode-only"] {
        all.push((name.to_owned(), sample(name)));
    }
    for name in ["q8-0", "q4-k"] {
        all.push((name.to_owned(), component("gguf", name)));
    }
    for (name, quantizer) in &all {
        let shapes = assert_same(device, name, quantizer.as_ref());
        assert!(shapes > 0, "{name} takes no shape");
    }
}

/// The sample `decode-only` with other device code.
struct WithCode(Box<dyn Quantizer>, Option<DeviceCode>);

impl Quantizer for WithCode {
    fn format(&self, shape: [u64; 2]) -> Result<Format> {
        self.0.format(shape)
    }

    fn encode(
        &self,
        weight: &[f32],
        shape: [u64; 2],
        segments: &mut [&mut [u8]],
        workspace: &mut [u8],
    ) -> Result<()> {
        self.0.encode(weight, shape, segments, workspace)
    }

    fn device_code(&self) -> Result<Option<DeviceCode>> {
        Ok(self.1.clone())
    }

    fn decode(
        &self,
        segments: &[&[u8]],
        shape: [u64; 2],
        rows: std::ops::Range<u64>,
        cols: std::ops::Range<u64>,
        out: &mut [f32],
    ) -> Result<()> {
        self.0.decode(segments, shape, rows, cols, out)
    }
}

/// The kit's check of the sample's device code, after `change`.
fn checked(change: impl Fn(String) -> Option<String> + Sync) -> Report {
    let place = sample_folder("decode-only");
    let found = registry(&place);
    let component = found.component("decode-only").expect("it is there");
    let subject = Subject::<dyn Quantizer>::new(component, |_, _| {
        let made = found.create_quantizer("decode-only", &serde_json::Map::new(), &Serial);
        let (quantizer, _) = made.expect("it loads");
        let code = quantizer.device_code()?.expect("the sample has code").cuda;
        let code = change(code).map(|text| DeviceCode::cuda(&text));
        Ok(Box::new(WithCode(quantizer, code)))
    });
    let mut suite = Suite::new("decode-only");
    device_code(&subject, || Ok(device()), &mut suite);
    suite.finish()
}

/// Why the only check of a report failed.
fn failure(report: &Report) -> &str {
    match &report.checks[0].outcome {
        Outcome::Failed(why) => why,
        other => panic!("expected a failure, found {other:?}"),
    }
}

#[test]
fn the_kit_passes_sound_device_code() {
    let report = checked(Some);
    let outcome = &report.checks[0].outcome;
    assert_eq!(*outcome, Outcome::Passed, "{outcome:?}");
}

#[test]
fn the_kit_finds_device_code_that_decodes_wrongly() {
    let bugs = [
        ("the code beside", "(3 * k)", "(3 * (k ^ 1))"),
        (
            "the scale of the block before",
            "first / 64",
            "(first + 63) / 64 - (first > 0)",
        ),
        ("one value in the last place", "0.2123f", "0.21230002f"),
        (
            "a run that ends after four values",
            "k < count; k++) values[k] = ",
            "k < count; k++) values[k] = k >= 4 ? 0.0f : ",
        ),
        (
            "a product that is rounded later",
            "* scale;",
            "* (scale * 1.00000012f);",
        ),
    ];
    for (what, from, to) in bugs {
        let report = checked(|code| {
            assert_eq!(code.matches(from).count(), 1, "{what}");
            Some(code.replace(from, to))
        });
        let why = failure(&report);
        assert!(
            why.contains("expected ") && why.contains("found "),
            "{what}: {why}"
        );
        assert!(!why.contains("cannot be used"), "{what}: {why}");
    }
}

#[test]
fn device_code_that_does_not_compile_is_shown_with_its_own_lines() {
    let report = checked(|code| Some(code.replace("first / 8 * 3;", "first / 8 * nothing;")));
    let why = failure(&report);
    let parts = [
        "the device code of quantizer `decode-only` cannot be used",
        "does not compile",
        "device code of quantizer decode-only:6",
        "nothing",
    ];
    for part in parts {
        assert!(why.contains(part), "expected `{part}`, found {why}");
    }
}

/// The norms of a weight's rows, with an update of zeros.
fn row_norms(layout: WeightLayout, code: Option<DeviceCode>, weight: &[&[u8]]) -> Vec<u8> {
    let device = device();
    let [n, m] = WIDE;
    let param = |shape: [u64; 2], layout| ParamOperand {
        shape: shape.to_vec(),
        layout,
    };
    let dense = || WeightLayout::Dense(DType::F32);
    let params = vec![
        param([n, m], layout),
        param([1, m], dense()),
        param([n, 1], dense()),
    ];
    let mut request = KernelRequest::new("adapted_row_norms")
        .attributes(Attributes::new().with("alpha", 1.0))
        .params(params)
        .outputs(vec![Operand::flat(n, DType::F32)])
        .limits(1, 1);
    request.device_code = vec![code, None, None];
    let dense = [4 * m, 4 * n].map(|bytes| vec![0; bytes as usize]);
    let operands: Vec<&[u8]> = weight
        .iter()
        .copied()
        .chain(dense.iter().map(Vec::as_slice))
        .collect();
    launched(device, &request, &operands, 4 * n as usize)
}

/// A weight whose rows are decoded one at a time, from elements on that no thread begins with.
const WIDE: [u64; 2] = [2, 2_100_001];

#[test]
fn device_code_decodes_rows_that_begin_anywhere() {
    let quantizer = sample("decode-only");
    let code = quantizer.device_code().expect("it can say");
    let (format, segments) = packed(quantizer.as_ref(), WIDE).expect("a shape that it takes");
    let segments: Vec<&[u8]> = segments.iter().map(Vec::as_slice).collect();
    let [n, m] = WIDE;
    let mut values = vec![0.0f32; (n * m) as usize];
    let decoded = quantizer.decode(&segments, WIDE, 0..n, 0..m, &mut values);
    decoded.expect("its own bytes");
    let values: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let dense = row_norms(WeightLayout::Dense(DType::F32), None, &[&values]);
    let packed = row_norms(WeightLayout::Packed(Box::new(format)), code, &segments);
    assert!(dense.iter().any(|byte| *byte != 0));
    assert_eq!(packed, dense);
}

/// The code of a source that is wrong is not left to the first launch, within a run.
#[test]
fn device_code_that_does_not_compile_is_refused_when_a_kernel_is_prepared() {
    let format = sample("decode-only").format([4, 16]);
    let param = ParamOperand {
        shape: vec![4, 16],
        layout: WeightLayout::Packed(Box::new(format.expect("a shape that it takes"))),
    };
    let mut request = KernelRequest::new("param_value").params(vec![param]);
    request.device_code = vec![Some(DeviceCode::cuda("decode_elements"))];
    request.outputs = vec![Operand {
        shape: [4, 16].map(Dim::Fixed).to_vec(),
        dtype: DType::F32,
    }];
    let found = device().prepare(&request, &[None]);
    let why = found.expect_err("no C++").message;
    assert!(
        why.contains("device code of quantizer decode-only:1"),
        "{why}"
    );
}

#[test]
fn without_device_code_the_error_names_the_quantizer_and_what_to_do() {
    let quantizer = WithCode(sample("decode-only"), None);
    let (format, segments) = packed(&quantizer, SHAPES[0]).expect("a shape that it takes");
    let segments: Vec<&[u8]> = segments.iter().map(Vec::as_slice).collect();
    let found = ops::decoded(device(), &format, &segments, None);
    let why = format!("{:?}", found.expect_err("no code"));
    for part in [
        "Skipped",
        "`decode-only`",
        "`cuda`",
        "`device_code`",
        "backend `cpu`",
    ] {
        assert!(why.contains(part), "expected `{part}`, found {why}");
    }
}
