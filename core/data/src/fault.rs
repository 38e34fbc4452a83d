//! Bad rows that are left out, counted by their fault.

use serde::{Deserialize, Serialize};

use super::error::{DataError, RowError, RowFault};

/// Rows left out as bad, by their fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dropped {
    /// Not a JSON object, or a truncated one.
    pub json: u64,
    /// Bytes that are not UTF-8.
    pub utf8: u64,
    /// More bytes than a row may have.
    pub long: u64,
    /// Fields that are missing or of another type, and unknown roles.
    pub fields: u64,
    /// Ids that the model does not have, and lengths that do not agree.
    pub ids: u64,
    /// Conversations that the chat template refuses.
    pub template: u64,
    /// Text that the tokenizer cannot encode.
    pub encoding: u64,
    /// An answer or a text that is empty.
    pub empty: u64,
    /// Tools, or tool calls, that the chat template does not write.
    pub tools: u64,
}

impl Dropped {
    /// Counts the row that `fault` is about. Returns a fault that is not about one row.
    pub(super) fn add(&mut self, fault: DataError) -> Result<(), DataError> {
        let DataError::Row(RowError { fault: of_row, .. }) = &fault else {
            return Err(fault);
        };
        let count = match of_row {
            RowFault::Json { .. } | RowFault::Truncated => &mut self.json,
            RowFault::Utf8 { .. } => &mut self.utf8,
            RowFault::RowBytes { .. } => &mut self.long,
            RowFault::WrongType { .. }
            | RowFault::MissingField { .. }
            | RowFault::UnknownFormat { .. }
            | RowFault::NoTurns { .. }
            | RowFault::UnknownRole { .. } => &mut self.fields,
            RowFault::TokenId { .. } | RowFault::Length { .. } | RowFault::Padded { .. } => {
                &mut self.ids
            }
            RowFault::Conversation { .. } => &mut self.template,
            RowFault::Encode { .. } => &mut self.encoding,
            RowFault::Empty { .. } => &mut self.empty,
            RowFault::Unused { .. } => &mut self.tools,
            RowFault::AmbiguousFormat { .. }
            | RowFault::TooLong { .. }
            | RowFault::PackTokens { .. }
            | RowFault::Parquet { .. } => return Err(fault),
        };
        *count += 1;
        Ok(())
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.by_kind().iter().map(|(count, _)| count).sum()
    }

    /// The counts with their descriptions, for messages.
    pub fn by_kind(&self) -> [(u64, &'static str); 9] {
        [
            (self.json, "left out: no JSON object"),
            (self.utf8, "left out: not UTF-8"),
            (self.long, "left out: too many bytes"),
            (self.fields, "left out: wrong fields"),
            (self.ids, "left out: wrong token ids"),
            (self.template, "left out: refused by the chat template"),
            (self.encoding, "left out: not encodable"),
            (self.empty, "left out: empty"),
            (
                self.tools,
                "left out: tools that the chat template does not write",
            ),
        ]
    }
}
