//! Options of `nf4` and the sizes of its formats.

use super::*;
use espalier_interface::Serial;
use serde_json::json;

fn create(component: &Component, options: serde_json::Value) -> Result<Instance> {
    let options = serde_json::from_value(options).expect("an object");
    (component.create)(&options, Arc::new(Serial))
}

#[test]
fn only_powers_of_two_in_range_are_block_sizes() {
    for size in [32, 64, 4096] {
        create(&NF4, json!({ "block_size": size, "double_quant": true })).expect("a size");
    }
    for (component, size) in [(&NF4, 16), (&FP4, 96), (&NF4, 8192), (&INT8, 32)] {
        let options = json!({ "block_size": size, "double_quant": false });
        let Err(error) = create(component, options) else {
            panic!("{} takes block size {size}", component.name);
        };
        assert!(error.message.contains(&format!("found {size}")), "{error}");
    }
}

#[test]
fn defaults_are_accepted() {
    for component in [NF4, FP4, INT8] {
        let options = component.options.iter().map(|spec| {
            let default = serde_json::from_str(spec.default).expect("JSON text");
            (spec.name.to_owned(), default)
        });
        let options = Options(options.collect());
        (component.create)(&options, Arc::new(Serial)).expect("its own defaults");
    }
}

#[test]
fn sizes_are_those_of_the_options() {
    let bits = |component: &Component, options| {
        let Ok(Instance::Quantizer(quantizer)) = create(component, options) else {
            panic!("{} is a quantizer", component.name);
        };
        let format = quantizer.format([1024, 1024]).expect("it has elements");
        format.validate().expect("it fits itself");
        8.0 * format.bytes() as f64 / f64::from(1024 * 1024)
    };
    let nested = bits(&NF4, json!({ "block_size": 64, "double_quant": true }));
    assert!((nested - (4.0 + 8.0 / 64.0 + 32.0 / (64.0 * 256.0))).abs() < 1e-4);
    let plain = bits(&FP4, json!({ "block_size": 64, "double_quant": false }));
    assert_eq!(plain, 4.5);
    assert_eq!(
        bits(&INT8, json!({ "block_size": 4096 })),
        8.0 + 32.0 / 4096.0
    );
}
