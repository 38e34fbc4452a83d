//! The form of our own files, what other files are refused with, and options read from configs.

use std::sync::Arc;

use espalier_interface::{DType, ErrorCode, Serial};

use super::*;
use crate::awq::{Awq, Clipping};
use crate::files::Files;
use crate::grid::GridSpec;
use crate::quantizer::Int4Quantizer;

fn quantizer(bits: u32, symmetry: Symmetry, others_files: Option<Files>) -> AwqQuantizer {
    let grid = GridSpec {
        bits,
        symmetry,
        number: Number::BF16,
    };
    AwqQuantizer {
        nearest: Int4Quantizer {
            grid,
            group_size: 32,
            files: Files::Gptq,
            services: Arc::new(Serial),
        },
        awq: Awq {
            grid,
            clipping: Clipping::Searched,
        },
        others_files,
    }
}

#[test]
fn every_segment_is_a_tensor_and_options_come_back() {
    for (bits, symmetry) in [
        (4, Symmetry::Asymmetric),
        (3, Symmetry::Asymmetric),
        (2, Symmetry::Symmetric),
    ] {
        let quantizer = quantizer(bits, symmetry, None);
        let format = quantizer.format([24, 64]).expect("whole groups");
        format.validate().expect("it agrees with itself");
        let form = form(&quantizer, [24, 64]).expect("a form");
        form.validate(&format).expect("it fits");
        let last = form.tensors.last().expect("tensors");
        assert_eq!((last.name.as_str(), &last.shape), ("factors", &vec![64]));
        let model = SavedModel {
            dtype: DType::BF16,
            dense_modules: vec!["lm_head".to_owned()],
            configs: Default::default(),
        };
        let config = config(&quantizer, &model).expect("a config");
        let saved = SavedDescription {
            config,
            ..SavedDescription::default()
        };
        let expected = json!({
            "bits": bits, "group_size": 32, "symmetric": symmetry == Symmetry::Symmetric,
            "scale_dtype": "bf16", "files": "own",
        });
        assert_eq!(Json::Object(options(&saved).expect("its own").0), expected);
        for (key, value) in [
            ("bits", json!(8)),
            ("group_size", json!(-1)),
            ("symmetric", json!("yes")),
            ("scale_dtype", json!("f8")),
            ("quant_method", json!("awq")),
        ] {
            let mut saved = saved.clone();
            saved.config[key] = value;
            let error = options(&saved).expect_err(key);
            assert_eq!(error.code, ErrorCode::UNSUPPORTED);
            assert!(error.message.contains(&format!("`{key}`")), "{error}");
        }
    }
}

#[test]
fn files_without_a_place_for_factors_are_refused_with_what_serves() {
    for files in [Files::Gptq, Files::GptqV2, Files::Awq] {
        let quantizer = quantizer(4, Symmetry::Asymmetric, Some(files));
        let error = form(&quantizer, [24, 64]).expect_err("factors");
        assert_eq!(error.code, ErrorCode::UNSUPPORTED);
        let starts = format!("files of {} have no place", files.name());
        assert!(error.message.starts_with(&starts), "{error}");
        assert!(error.message.contains("files = \"own\""), "{error}");
    }
}
