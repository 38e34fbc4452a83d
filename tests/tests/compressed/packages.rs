//! Weights that AutoGPTQ, GPTQModel and AutoAWQ packed, read by `int4`: their values, and back to
//! the same bytes and description.

use std::collections::BTreeMap;

use espalier_interface::saved_form::{SavedContent, SavedDescription, SavedModel, StoredTensor};
use espalier_interface::{DType, Options, Quantizer, Serial};
use espalier_registry::Registry;
use espalier_tests::golden_bytes;
use half::{bf16, f16};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Map, Value as Json};

use super::{numbers, registry};

/// The values of a weight [out, in], in the dtype in which a package decodes it.
fn bits(decoded: &TensorView<'_>) -> Vec<u32> {
    match decoded.dtype() {
        Dtype::F32 => numbers(decoded.data(), u32::from_le_bytes),
        _ => numbers(decoded.data(), |x| u32::from(u16::from_le_bytes(x))),
    }
}

/// The same of ours. A scale of 11 bits times a difference of codes of 4 is exact in f32, so that
/// ours are rounded once, as the packages' products are. Of scales in f32 both are one product.
fn bits_of_ours(values: &[f32], dtype: Dtype) -> Vec<u32> {
    let values = values.iter();
    match dtype {
        Dtype::F32 => values.map(|x| x.to_bits()).collect(),
        Dtype::F16 => values
            .map(|&x| u32::from(f16::from_f32(x).to_bits()))
            .collect(),
        Dtype::BF16 => values
            .map(|&x| u32::from(bf16::from_f32(x).to_bits()))
            .collect(),
        other => panic!("a weight of {other:?}"),
    }
}

/// The tensors of a weight, by their names in its file.
struct Case<'a> {
    tensors: BTreeMap<String, TensorView<'a>>,
    decoded: TensorView<'a>,
}

impl<'a> Case<'a> {
    fn of(file: &SafeTensors<'a>, name: &str) -> Self {
        let prefix = format!("{name}|");
        let tensors = file.tensors().into_iter();
        let mut tensors: BTreeMap<String, TensorView<'a>> = tensors
            .filter_map(|(key, tensor)| Some((key.strip_prefix(&prefix)?.to_owned(), tensor)))
            .collect();
        let decoded = tensors.remove("decoded").expect("its values");
        Case { tensors, decoded }
    }

    /// What the plugin is told of it.
    fn description(&self, config: &Json) -> SavedDescription {
        let stored = self.tensors.iter().map(|(name, tensor)| {
            let shape = tensor.shape().iter().map(|&size| size as u64).collect();
            let dtype = dtype(tensor.dtype());
            (name.clone(), StoredTensor { dtype, shape })
        });
        SavedDescription {
            config: config.clone(),
            stored: stored.collect(),
            ..SavedDescription::default()
        }
    }
}

fn dtype(dtype: Dtype) -> DType {
    match dtype {
        Dtype::I32 => DType::I32,
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        other => panic!("a tensor of {other:?}"),
    }
}

fn int4(registry: &Registry, options: &Map<String, Json>) -> Box<dyn Quantizer> {
    let made = registry.create_quantizer("int4", options, &Serial);
    made.expect("options of int4").0
}

#[test]
fn weights_of_the_packages_have_their_values_and_go_back_to_their_bytes() {
    let file = golden_bytes("packed/int4_packages.safetensors.gz");
    let file = SafeTensors::deserialize(&file).expect("safetensors");
    let configs = golden_bytes("packed/int4_packages.json");
    let configs: BTreeMap<String, Json> = serde_json::from_slice(&configs).expect("JSON");
    assert_eq!(configs.len(), 15);
    let registry = registry();
    let reader = int4(&registry, &Map::new());
    for (name, config) in &configs {
        let case = Case::of(&file, name);
        let description = case.description(config);
        let options = reader.options_from_saved(&description);
        let options = options.unwrap_or_else(|error| panic!("{name}: {error}"));
        let quantizer = int4(&registry, &options.0);
        let [rows, cols] = *case.decoded.shape() else {
            panic!("{name}: a weight has two axes");
        };
        let shape = [rows, cols].map(|extent| extent as u64);
        let segments = read(name, &case, quantizer.as_ref(), shape);
        let views: Vec<&[u8]> = segments.iter().map(Vec::as_slice).collect();
        let mut decoded = vec![0.0; rows * cols];
        let done = quantizer.decode(&views, shape, 0..shape[0], 0..shape[1], &mut decoded);
        done.expect("its own segments");
        let found = bits_of_ours(&decoded, case.decoded.dtype());
        assert!(found == bits(&case.decoded), "{name}: other values");
        described_again(name, quantizer.as_ref(), &description, &options);
    }
}

/// The segments of a weight, of whose tensors each is what they are saved as.
fn read(name: &str, case: &Case<'_>, quantizer: &dyn Quantizer, shape: [u64; 2]) -> Vec<Vec<u8>> {
    let format = quantizer.format(shape).expect("whole groups");
    let form = quantizer.saved_form(shape, DType::F16).expect("a form");
    form.validate(&format).expect("it fits");
    let sizes = format.segments.iter().map(|spec| spec.bytes() as usize);
    let mut segments: Vec<Vec<u8>> = sizes.map(|bytes| vec![0; bytes]).collect();
    assert_eq!(form.tensors.len(), case.tensors.len(), "{name}");
    for tensor in &form.tensors {
        let at = format!("{name}, {}", tensor.name);
        let stored = &case.tensors[&tensor.name];
        let extents: Vec<u64> = stored.shape().iter().map(|&size| size as u64).collect();
        assert_eq!(tensor.shape, extents, "{at}");
        assert_eq!(tensor.dtype, dtype(stored.dtype()), "{at}");
        let mut saved = vec![0; stored.data().len()];
        match &tensor.content {
            SavedContent::Order(order) => {
                order.load(stored.data(), &mut segments[order.segment]);
                order.save(&segments[order.segment], &mut saved);
            }
            SavedContent::Counting(counting) => counting.write(0, &mut saved),
            other => panic!("{at}: {other:?}"),
        }
        assert!(saved == stored.data(), "{at}: other bytes");
    }
    segments
}

/// The config that such weights are written with is read as that of the package.
fn described_again(
    name: &str,
    quantizer: &dyn Quantizer,
    description: &SavedDescription,
    options: &Options,
) {
    let model = SavedModel {
        dtype: DType::F16,
        dense_modules: vec!["lm_head".to_owned()],
        configs: BTreeMap::new(),
    };
    let config = quantizer.quantization_config(&model).expect("a config");
    let description = SavedDescription {
        config,
        ..description.clone()
    };
    let again = quantizer.options_from_saved(&description);
    assert_eq!(&again.expect("its own"), options, "{name}");
}
