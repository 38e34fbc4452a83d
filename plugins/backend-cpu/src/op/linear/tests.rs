//! Linears of every layout launched through the device equal the kernel on the decoded weight.

use espalier_interface::format::{
    BitOrder, BlockMap, BlockValues, Codes, Decoding, Format, SegmentSpec,
};
use espalier_interface::graph::Dim::{Fixed, Tokens};
use espalier_interface::{DType, Decoder, ErrorCode, Kernels, ParamOperand, Serial};
use espalier_kernels::fill;
use espalier_kernels::linear::WeightGradient;
use espalier_kernels::matmul::Isa;

use super::*;
use crate::rig::{Array, Rig, array, device, numbers};

const T: usize = 3;
const N: usize = 6;
const M: usize = 64;

fn normal<E: Element>(n: usize, stream: u32) -> Vec<E> {
    let mut x = vec![E::default(); n];
    fill::normal(&Serial, [1, 2], stream, [0.0, 1.0], &mut x);
    x
}

fn rows<E: Element>(x: &[E], width: usize) -> Array {
    array(&[Tokens, Fixed(width as u64)], x)
}

/// A 4-bit weight in blocks of 32, its segments and its values.
fn sample(decoding: Option<Decoding>) -> (ParamOperand, Vec<Vec<u8>>, Vec<f32>) {
    let (elements, blocks) = (N * M, N * M / 32);
    let codes: Vec<u8> = (0..elements / 2).map(|i| (i * 37 % 251) as u8).collect();
    let scales = normal::<f32>(blocks, 8);
    let codebook = Decoding::Codebook {
        codes: Codes {
            segment: 0,
            bits: 4,
            order: BitOrder::HighFirst,
        },
        table: (0..16).map(|i| i as f32 / 8.0 - 1.0).collect(),
        blocks: BlockMap::Flat { size: 32 },
        scale: BlockValues::Stored { segment: 1 },
    };
    let mut format = Format {
        quantizer: "sample".into(),
        shape: [N as u64, M as u64],
        segments: vec![
            SegmentSpec::new("codes", DType::U8, elements as u64 / 2),
            SegmentSpec::new("absmax", DType::F32, blocks as u64),
        ],
        decoding: codebook,
    };
    let segments = vec![codes, array(&[], &scales).bytes];
    let mut values = vec![0.0; elements];
    let parts: Vec<&[u8]> = segments.iter().map(Vec::as_slice).collect();
    format
        .decode(&parts, 0..N as u64, 0..M as u64, &mut values)
        .expect("described");
    format.decoding = decoding.unwrap_or(format.decoding);
    let layout = WeightLayout::Packed(Box::new(format));
    (
        ParamOperand {
            shape: vec![N as u64, M as u64],
            layout,
        },
        segments,
        values,
    )
}

/// Forward and input gradient of a launched weight equal those of the kernel on `values`.
fn equals_the_kernel<E: Element>(param: &(ParamOperand, Vec<Vec<u8>>), values: &[f32])
where
    E::Acc: Scalar,
{
    let (x, dy, bias) = (
        normal::<E>(T * M, 1),
        normal::<E>(T * N, 2),
        normal::<f32>(N, 3),
    );
    let (mut y, mut dx) = (dy.clone(), x.clone());
    let mut space = space::<E>();
    let weight = Dense::new(values, N, M);
    let added = Dense::new(&bias, 1, N);
    for bias_too in [false, true] {
        let added: Option<&dyn Rows<E::Acc>> = if bias_too { Some(&added) } else { None };
        kernel::forward(
            Isa::detect(),
            &Serial,
            &x,
            &weight,
            added,
            Onto::product(&mut y),
            &mut space,
        );
        let mut rig = Rig::new("linear", T)
            .input(rows(&x, M))
            .output(rows(&dy, N));
        rig.params.push(param.clone());
        if bias_too {
            rig = rig.param(&[N as u64], &bias);
        }
        assert_eq!(numbers::<E>(&rig.run().unwrap()[0]), y);
    }
    kernel::input_backward(
        Isa::detect(),
        &Serial,
        &dy,
        &weight,
        Onto::product(&mut dx),
        &mut space,
    );
    let mut rig = Rig::new("linear_input_backward", T)
        .input(rows(&dy, N))
        .output(rows(&x, M));
    rig.params.push(param.clone());
    assert_eq!(numbers::<E>(&rig.run().unwrap()[0]), dx);
}

#[test]
fn dense_and_packed_weights() {
    let (param, segments, values) = sample(None);
    let packed = (param, segments);
    let layout = WeightLayout::Dense(DType::F32);
    let operand = ParamOperand {
        shape: vec![N as u64, M as u64],
        layout,
    };
    let dense = (operand, vec![array(&[], &values).bytes]);
    for param in [&dense, &packed] {
        equals_the_kernel::<f32>(param, &values);
        equals_the_kernel::<bf16>(param, &values);
        equals_the_kernel::<f64>(param, &values);
    }
}

#[test]
fn products_are_by_the_instruction_set_of_the_device() {
    let (x, y) = (normal::<bf16>(T * M, 1), vec![bf16::ZERO; T * N]);
    let values = normal::<f32>(N * M, 4);
    let mut space = space::<bf16>();
    for &isa in Isa::available() {
        let mut expected = y.clone();
        let weight = Dense::new(&values, N, M);
        let out = &mut expected;
        kernel::forward(
            isa,
            &Serial,
            &x,
            &weight,
            None,
            Onto::product(out),
            &mut space,
        );
        let mut rig = Rig::new("linear", T)
            .input(rows(&x, M))
            .output(rows(&y, N))
            .param(&[N as u64, M as u64], &values);
        rig.device = device(isa);
        assert_eq!(numbers::<bf16>(&rig.run().unwrap()[0]), expected, "{isa:?}");
    }
}

#[test]
fn the_weight_s_gradient_is_added() {
    let (x, dy, start) = (
        normal::<bf16>(T * M, 1),
        normal::<bf16>(T * N, 2),
        normal::<f32>(N * M, 3),
    );
    let mut dw = start.clone();
    let mut space = space::<f32>();
    let isa = Isa::detect();
    let dweight = WeightGradient {
        values: &mut dw[..],
        size: (N, M),
        alpha: 1.0,
    };
    kernel::weight_backward(isa, &Serial, &dy, &x, dweight, &mut space);
    let rig = Rig::new("linear_weight_backward", T)
        .input(rows(&dy, N))
        .input(rows(&x, M));
    let rig = rig.output(array(&[Fixed(N as u64), Fixed(M as u64)], &start));
    assert_eq!(numbers::<f32>(&rig.run().unwrap()[0]), dw);
}

/// Version 2 by version 1 and the sum after it.
fn sums_after_products<E: Element>() {
    let (values, bias) = (normal::<f32>(N * M, 4), normal::<f32>(N, 3));
    let weight = [N as u64, M as u64];
    for (op, widths, alpha) in [
        ("linear", [M, N], -0.3),
        ("linear_input_backward", [N, M], 4.0),
    ] {
        let [x, added] = [(widths[0], 1), (widths[1], 2)].map(|(width, seed)| {
            let values = normal::<E>(T * width, seed);
            rows(&values, width)
        });
        let of = |op: &'static str, inputs: &[&Array]| {
            let mut rig = Rig::new(op, T).output(added.clone());
            rig.inputs = inputs.iter().map(|&input| input.clone()).collect();
            let is_product = op != "add";
            let rig = if is_product {
                rig.param(&weight, &values)
            } else {
                rig
            };
            if op.starts_with("linear.") || op == "linear" {
                rig.param(&[N as u64], &bias)
            } else {
                rig
            }
        };
        let product = of(op, &[&x]).run().unwrap().remove(0);
        let product = rows(&numbers::<E>(&product), widths[1]);
        let sum = of("add", &[&added, &product]).with("alpha", alpha).run();
        let sum = sum.unwrap().remove(0);
        let fused = match op {
            "linear" => "linear.2",
            _ => "linear_input_backward.2",
        };
        let rig = of(fused, &[&x, &added]).with("alpha", alpha);
        assert!(rig.run().unwrap()[0] == sum, "{fused}");
        let mut ranges = rig.ranges();
        let output = ranges.len() - 1;
        ranges[output] = ranges[1];
        rig.launch(&ranges).unwrap();
        assert!(rig.read(ranges[1]) == sum, "{fused} in place");
        if op == "linear" {
            ranges[output] = ranges[0];
            let error = rig.launch(&ranges).unwrap_err();
            assert!(error.message.contains("ranges 0 and "), "{error}");
        }
    }
}

/// Both gradients in one launch are those of two, in their own memory and in that of what is added.
fn gradients_of_one_launch<E: Element>() {
    let (x, dy, added) = (
        rows(&normal::<E>(T * M, 1), M),
        rows(&normal::<E>(T * N, 2), N),
        rows(&normal::<E>(T * M, 3), M),
    );
    let weight = normal::<f32>(N * M, 4);
    let start = array(
        &[Fixed(N as u64), Fixed(M as u64)],
        &normal::<E::Acc>(N * M, 5),
    );
    for (alpha, sums) in [(1.0, true), (-0.5, true), (4.0, false)] {
        let of = |op, inputs: &[&Array]| {
            let mut rig = Rig::new(op, T).with("alpha", alpha);
            let is_summed = sums && op != "linear_weight_backward.2";
            let inputs = inputs.iter().copied().chain(is_summed.then_some(&added));
            rig.inputs = inputs.cloned().collect();
            rig
        };
        let shape = [N as u64, M as u64];
        let dx = of("linear_input_backward.2", &[&dy]);
        let dx = dx.param(&shape, &weight).output(x.clone()).run().unwrap();
        let dweight = of("linear_weight_backward.2", &[&dy, &x]).output(start.clone());
        let expected = [dx, dweight.run().unwrap()].concat();
        let both = of("linear_input_backward.3", &[&dy, &x]).param(&shape, &weight);
        let both = both.output(x.clone()).output(start.clone());
        assert!(both.run().unwrap() == expected, "alpha {alpha}");
        if sums {
            let mut ranges = both.ranges();
            let output = ranges.len() - 2;
            ranges[output] = ranges[2];
            both.launch(&ranges).unwrap();
            let found = [output, output + 1].map(|index| both.read(ranges[index]));
            assert!(found[..] == expected, "alpha {alpha}, in place");
        }
    }
}

#[test]
fn both_gradients_of_one_launch_have_the_bits_of_two() {
    gradients_of_one_launch::<f32>();
    gradients_of_one_launch::<bf16>();
    gradients_of_one_launch::<f64>();
}

#[test]
fn fused_products_have_the_bits_of_products_and_sums_also_in_place() {
    sums_after_products::<f32>();
    sums_after_products::<bf16>();
    sums_after_products::<f64>();
}

/// Decodes to its context's values, or fails where that is null.
extern "C" fn decode(
    context: *const (),
    _: *const *const u8,
    _: *const usize,
    _: usize,
    range: *const u64,
    out: *mut f32,
) -> u32 {
    if context.is_null() {
        return ErrorCode::DEVICE.0;
    }
    // SAFETY: the caller passes four numbers and an output of the window's size; the context holds
    // N x M values.
    unsafe {
        let range = std::slice::from_raw_parts(range, 4);
        let [r, r_end, c, c_end] = [0, 1, 2, 3].map(|i| range[i] as usize);
        for row in r..r_end {
            let from = context.cast::<f32>().add(row * M + c);
            let to = out.add((row - r) * (c_end - c));
            std::ptr::copy_nonoverlapping(from, to, c_end - c);
        }
    }
    0
}

#[test]
fn a_quantizer_s_own_decoder_is_called() {
    let (param, segments, values) = sample(Some(Decoding::Callback));
    let x = normal::<f32>(T * M, 1);
    let mut rig = Rig::new("linear", T)
        .input(rows(&x, M))
        .output(rows(&x[..T * N], N));
    rig.params.push((param, segments));
    let error = rig.run().unwrap_err();
    assert!(
        error.message.contains("`sample` needs a decoder"),
        "{error}"
    );

    let launch = |context: *const ()| {
        let request = rig.request();
        let decoder = Decoder { context, decode };
        let made = rig.device.prepare(&request, &[Some(decoder)]).unwrap();
        let (ranges, workspace) = (
            rig.ranges(),
            rig.range(&vec![0; made.workspace_bytes as usize]),
        );
        let launch = espalier_interface::Launch {
            kernel: made.kernel,
            stream: espalier_interface::Stream(0),
            ranges: &ranges,
            workspace,
            tokens: T as u64,
            sequences: 1,
            scalars: &[],
        };
        rig.device
            .launch(&launch)
            .map(|()| rig.read(*ranges.last().expect("an output")))
    };
    let mut y = vec![0.0f32; T * N];
    let mut space = space::<f32>();
    kernel::forward(
        Isa::detect(),
        &Serial,
        &x,
        &Dense::new(&values, N, M),
        None,
        Onto::product(&mut y),
        &mut space,
    );
    assert_eq!(numbers::<f32>(&launch(values.as_ptr().cast()).unwrap()), y);
    let error = launch(std::ptr::null()).unwrap_err();
    assert_eq!(error.code, ErrorCode::DEVICE);
    assert!(
        error.message.contains("`sample` failed to decode"),
        "{error}"
    );
}

/// Workspace of one thread for all three products.
fn space<E: Element>() -> Vec<u8>
where
    E::Acc: Scalar,
{
    let sizes = [[T, N, M], [T, M, N], [N, M, T]];
    let bytes = sizes.map(|size| kernel::workspace_bytes::<E>(Isa::detect(), 1, size));
    vec![0; bytes.into_iter().max().unwrap_or(0)]
}
