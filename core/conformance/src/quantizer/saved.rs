//! The checks of saved forms: a packed weight that is written to a checkpoint and read back is the
//! same.

use std::collections::{BTreeMap, BTreeSet};

use espalier_interface::saved_form::{
    SavedConstant, SavedContent, SavedDescription, SavedForm, SavedModel, SavedTensor, StoredTensor,
};
use espalier_interface::{DType, ErrorCode, Quantizer};
use serde_json::Value as Json;

use super::case::{Case, bits_differ, each, encode};
use crate::checked::{Checked, Fault, ensure, refusal};
use crate::{Subject, Suite, Threads, weights};

/// Dtypes that the dense weight may have had.
const DTYPES: [DType; 3] = [DType::BF16, DType::F32, DType::F16];

pub fn check(subject: &Subject<'_, dyn Quantizer>, suite: &mut Suite) {
    suite.check(
        "saved.form",
        "the saved form holds every segment once and in its size, under names that differ",
        || {
            each(subject, |case| {
                for dtype in DTYPES {
                    let form = form_of(case, dtype)?;
                    form.validate(&case.format)?;
                    let names: BTreeSet<_> = form.tensors.iter().map(|one| &one.name).collect();
                    ensure(names.len() == form.tensors.len(), || {
                        "two tensors have one name".into()
                    })?;
                }
                Ok(())
            })
        },
    );
    suite.check(
        "saved.bytes",
        "a packed weight that is written to tensors and read back has the same bytes and decodes to the same bits",
        || each(subject, round_trip),
    );
    suite.check(
        "saved.options",
        "`options_from_saved` reads back the options under which `quantization_config` and form were made",
        || each(subject, |case| options(subject, case)),
    );
}

/// The saved form; a quantizer without one skips the check.
fn form_of(case: &Case<'_>, dtype: DType) -> Checked<SavedForm> {
    case.quantizer
        .saved_form(case.shape, dtype)
        .map_err(|error| match error.code {
            ErrorCode::UNSUPPORTED => match refusal(&error) {
                Ok(()) => Fault::Skipped(error.message),
                Err(fault) => fault,
            },
            _ => Fault::from(error).at("saved_form"),
        })
}

/// The tensors of a form by name, with the bytes that the host writes.
fn written(form: &SavedForm, segments: &[&[u8]]) -> BTreeMap<String, Vec<u8>> {
    let tensors = form.tensors.iter().map(|tensor| {
        let bytes = match &tensor.content {
            SavedContent::Segment(index) => segments[*index].to_vec(),
            SavedContent::Order(order) => {
                let segment = segments[order.segment];
                let mut bytes = vec![0; segment.len()];
                order.save(segment, &mut bytes);
                bytes
            }
            SavedContent::Counting(counting) => {
                let mut bytes = vec![0; tensor.bytes() as usize];
                counting.write(0, &mut bytes);
                bytes
            }
            SavedContent::Values(values) => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
            SavedContent::Constant(constant) => constant
                .bytes(tensor.dtype)
                .expect("a form that was validated"),
            SavedContent::Json(object) => {
                let mut fields = object.fields.clone();
                for (field, index) in &object.scalars {
                    fields.insert(
                        field.clone(),
                        Json::from(f64::from(scalar(segments[*index]))),
                    );
                }
                Json::Object(fields).to_string().into_bytes()
            }
        };
        (tensor.name.clone(), bytes)
    });
    tensors.collect()
}

fn scalar(bytes: &[u8]) -> f32 {
    f32::from_le_bytes(bytes[..4].try_into().expect("a form that was validated"))
}

/// The segments of a format, read from the tensors of a form.
fn read(
    form: &SavedForm,
    case: &Case<'_>,
    tensors: &BTreeMap<String, Vec<u8>>,
) -> Checked<Vec<Vec<u8>>> {
    let mut segments = vec![Vec::new(); case.format.segments.len()];
    for tensor in &form.tensors {
        let bytes = &tensors[&tensor.name];
        match &tensor.content {
            SavedContent::Segment(index) => segments[*index] = bytes.clone(),
            SavedContent::Order(order) => {
                let mut segment = vec![0; bytes.len()];
                order.load(bytes, &mut segment);
                segments[order.segment] = segment;
            }
            SavedContent::Values(_) | SavedContent::Constant(_) | SavedContent::Counting(_) => {}
            SavedContent::Json(object) => {
                let text: Json = serde_json::from_slice(bytes)
                    .map_err(|error| format!("tensor `{}`: {error}", tensor.name))?;
                for (field, index) in &object.scalars {
                    let number = text[field].as_f64().ok_or_else(|| {
                        format!("tensor `{}`: field `{field}` is no number", tensor.name)
                    })?;
                    segments[*index] = (number as f32).to_le_bytes().to_vec();
                }
            }
        }
    }
    Ok(segments)
}

fn round_trip(case: &Case<'_>) -> Checked {
    let form = form_of(case, DType::BF16)?;
    form.validate(&case.format)?;
    let (encoded, decoded) = case.round_trip(&weights::ordinary(case.shape, 15))?;
    let tensors = written(&form, &encoded.segments());
    let segments = read(&form, case, &tensors)?;
    let segments: Vec<&[u8]> = segments.iter().map(Vec::as_slice).collect();
    case.same(&segments, &encoded.segments(), "read back")?;
    let again = case.decode(&segments)?;
    match bits_differ(&again, &decoded, case.shape[1]) {
        None => Ok(()),
        Some(place) => Err(Fault::Failed(format!("read back: {place}"))),
    }
}

fn options(subject: &Subject<'_, dyn Quantizer>, case: &Case<'_>) -> Checked {
    let form = form_of(case, DType::BF16)?;
    let model = SavedModel {
        dtype: DType::BF16,
        dense_modules: vec!["lm_head".to_owned()],
        configs: BTreeMap::new(),
    };
    let config = case.quantizer.quantization_config(&model)?;
    let method = config.get("quant_method").and_then(Json::as_str);
    let methods = subject.component.capabilities.get("quant_methods");
    let listed = methods.map_or("", String::as_str);
    ensure(
        method.is_some_and(|method| listed.split([',', ' ']).any(|one| one == method)),
        || {
            format!(
                "its `quantization_config` has `quant_method` {}, its capability `quant_methods` is `{listed}`",
                config.get("quant_method").unwrap_or(&Json::Null)
            )
        },
    )?;
    let weight = weights::ordinary(case.shape, 16);
    let (encoded, _) = case.round_trip(&weight)?;
    let tensors = written(&form, &encoded.segments());
    let saved = described(config, &form, &tensors)?;
    let found = case.quantizer.options_from_saved(&saved)?;
    let same = |(name, value): (&String, &Json)| case.set.options.0.get(name) == Some(value);
    if found.0.iter().all(same) {
        return Ok(());
    }
    // Several values of an option may mean the same, such as "auto", so the effects are compared.
    let mut options = case.set.options.clone();
    options.0.extend(found.0.clone());
    let again = subject.make(&options, Threads::new(1))?;
    let format = again.format(case.shape)?;
    ensure(format == case.format, || {
        let found = Json::Object(found.0.clone());
        format!("{found} is read back, which gives another format")
    })?;
    let bytes = encode(again.as_ref(), &format, &weight, 0)??;
    case.same(
        &bytes.segments(),
        &encoded.segments(),
        "with what was read back",
    )
}

/// What a checkpoint says about the weight.
fn described(
    config: Json,
    form: &SavedForm,
    tensors: &BTreeMap<String, Vec<u8>>,
) -> Checked<SavedDescription> {
    let mut saved = SavedDescription {
        config,
        ..SavedDescription::default()
    };
    for SavedTensor {
        name,
        dtype,
        shape,
        content,
        ..
    } in &form.tensors
    {
        let bytes = &tensors[name];
        let object = match content {
            SavedContent::Json(_) => {
                let text = serde_json::from_slice(bytes);
                Some(text.map_err(|error| error.to_string())?)
            }
            SavedContent::Constant(_) => SavedConstant::read(*dtype, shape, bytes),
            _ => None,
        };
        if let Some(object) = object {
            saved.objects.insert(name.clone(), object);
        }
        let stored = StoredTensor {
            dtype: *dtype,
            shape: shape.clone(),
        };
        saved.stored.insert(name.clone(), stored);
    }
    Ok(saved)
}
