//! The fields of a pre-tokenized row -> its token ids and labels.

use serde_json::{Map, Number, Value};

use super::{Labelled, RowRules};
use crate::error::{DataError, RowFault, RowLocation};
use crate::fields::renamed;
use crate::row::{UNTRAINED, required, wrong_field, wrong_type};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ids {
    Tokens,
    Labels,
}

impl RowRules<'_> {
    pub(super) fn input_ids(
        &self,
        row: &Map<String, Value>,
        place: &RowLocation,
    ) -> Result<Labelled, DataError> {
        let name = |field| renamed(&self.options.fields, field);
        let ids = name("input_ids");
        let tokens = self.ids(required(row, ids, place)?, ids, Ids::Tokens, place)?;
        let same_length = |field, found| {
            if found == tokens.len() {
                Ok(())
            } else {
                Err(RowFault::Length {
                    field,
                    expected: tokens.len(),
                    found,
                }
                .at(place.clone()))
            }
        };
        let mask = row.get(name("attention_mask")).filter(|v| !v.is_null());
        if let Some(mask) = mask {
            let Value::Array(mask) = mask else {
                return Err(wrong_field(place, name("attention_mask"), "an array", mask));
            };
            same_length("attention_mask", mask.len())?;
            if let Some(index) = mask.iter().position(|entry| entry.as_u64() != Some(1)) {
                let place = place.clone();
                return Err(RowFault::Padded { index }.at(place));
            }
        }
        let labels = row.get(name("labels")).filter(|v| !v.is_null());
        let labels = match labels {
            Some(labels) => Some(self.ids(labels, name("labels"), Ids::Labels, place)?),
            None => None,
        };
        if let Some(labels) = &labels {
            same_length("labels", labels.len())?;
        }
        Ok((tokens, labels))
    }

    /// An array of ids below the vocabulary's size; labels may also be [`UNTRAINED`].
    fn ids(
        &self,
        value: &Value,
        field: &str,
        kind: Ids,
        place: &RowLocation,
    ) -> Result<Vec<i32>, DataError> {
        let Value::Array(entries) = value else {
            return Err(wrong_field(place, field, "an array of integers", value));
        };
        let mut ids = Vec::with_capacity(entries.len());
        for (index, entry) in entries.iter().enumerate() {
            let Value::Number(number) = entry else {
                let what = format!("field `{field}`[{index}]");
                return Err(wrong_type(place, &what, "an integer", entry));
            };
            match number.as_i64() {
                Some(id) if id >= 0 && (id as u64) < self.vocab_size as u64 => ids.push(id as i32),
                Some(id) if kind == Ids::Labels && id == i64::from(UNTRAINED) => {
                    ids.push(UNTRAINED)
                }
                None if number.is_f64() && !is_huge(number) => {
                    let what = format!("field `{field}`[{index}]");
                    return Err(wrong_type(place, &what, "an integer", entry));
                }
                _ => {
                    let mut expected = format!("0 to {}", self.vocab_size.saturating_sub(1));
                    if kind == Ids::Labels {
                        expected += ", or -100 where nothing is trained";
                    }
                    return Err(RowFault::TokenId {
                        field: field.into(),
                        index,
                        found: number.to_string(),
                        expected,
                    }
                    .at(place.clone()));
                }
            }
        }
        Ok(ids)
    }

    /// Refuses ids that the model's embedding has no row for; a tokenizer can produce them.
    pub(super) fn check_ids(&self, tokens: &[i32], place: &RowLocation) -> Result<(), DataError> {
        let known = 0..self.vocab_size as i64;
        match tokens.iter().position(|&id| !known.contains(&id.into())) {
            Some(index) => Err(RowFault::TokenId {
                field: "tokens".into(),
                index,
                found: tokens[index].to_string(),
                expected: format!("0 to {}", self.vocab_size.saturating_sub(1)),
            }
            .at(place.clone())),
            None => Ok(()),
        }
    }
}

/// Whether `number` is an integer too large for 64 bits: an id out of range, not a wrong type.
fn is_huge(number: &Number) -> bool {
    number
        .as_f64()
        .is_some_and(|n| n.abs() >= 9_223_372_036_854_775_808.0) // 2^63
}
