//! A quantizer's descriptions of saved files -> a sample of each.

use espalier_interface::DType;
use espalier_interface::saved_form::{
    SavedAxis, SavedConstant, SavedContent, SavedCounting, SavedDescription, SavedForm, SavedModel,
    SavedObject, SavedOrder, SavedTensor, StoredTensor,
};
use serde_json::{Map, json};

pub fn saved_form() -> SavedForm {
    let object = SavedObject {
        fields: fields(),
        scalars: vec![("offset".to_owned(), 0)],
        free: vec!["note".to_owned()],
    };
    let contents = [
        SavedContent::Segment(0),
        SavedContent::Values(vec![0.5]),
        SavedContent::Json(object),
        SavedContent::Constant(SavedConstant {
            value: json!([64]),
            free: true,
        }),
        SavedContent::Order(SavedOrder {
            segment: 0,
            bits: 4,
            axes: vec![SavedAxis::new(2, 1)],
            added: 15,
            taken_from_words: 0,
        }),
        SavedContent::Order(SavedOrder {
            segment: 0,
            bits: 4,
            axes: vec![SavedAxis::new(8, 1)],
            added: 0,
            taken_from_words: 0x1111_1111,
        }),
        SavedContent::Counting(SavedCounting {
            first: 0,
            repeat: 128,
        }),
    ];
    let tensor = |content| SavedTensor {
        name: "weight".to_owned(),
        dtype: DType::U8,
        shape: vec![3, 1],
        content,
        also_stored_as: vec![DType::BF16],
    };
    SavedForm {
        tensors: contents.map(tensor).to_vec(),
    }
}

pub fn saved_model() -> SavedModel {
    SavedModel {
        dtype: DType::F16,
        dense_modules: vec!["lm_head".to_owned()],
        configs: [("layer.proj".to_owned(), json!({"quant_method": "sample"}))].into(),
    }
}

pub fn saved_description() -> SavedDescription {
    let stored = StoredTensor {
        dtype: DType::U8,
        shape: vec![3, 1],
    };
    SavedDescription {
        config: json!({"quant_method": "sample"}),
        objects: fields(),
        stored: [("weight".to_owned(), stored)].into(),
    }
}

fn fields() -> Map<String, serde_json::Value> {
    Map::from_iter([("blocksize".to_owned(), json!(64))])
}
