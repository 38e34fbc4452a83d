//! A model's directory -> its tokenizer and end token, as transformers reads them.
//!
//! `tokenizer.json` alone decides about the begin token: its post-processor adds it or not, and
//! transformers 5 ignores `add_bos_token` beside that file. Truncation and padding stored there are
//! off, as in transformers' own call. (For the class `LlamaTokenizer`, transformers 5 rebuilds the
//! white-space rules and then splits texts that begin with a space differently. The file,
//! transformers 4 and the tokenizers crate agree, and so does this code.)

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use espalier_system::files::{FileKind, ModelDirectory, read_regular};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokenizers::{Encoding, ModelWrapper, Tokenizer};

use super::error::{DataError, TokenizerError};
use super::panics::contain;
use super::reader::hex;

/// A tokenizer that fits the model.
pub struct TextTokenizer {
    inner: Tokenizer,
    end_token: i32,
    /// The texts of the special tokens.
    special: Vec<String>,
    sha256: String,
}

impl TextTokenizer {
    /// Reads the tokenizer of `directory` for a model with `vocab_size` rows of embedding.
    ///
    /// # Errors
    /// [`DataError::Tokenizer`] for a missing or damaged file, ids that do not fit the model, and a
    /// missing end token. [`DataError::Io`].
    pub fn load(directory: &Path, vocab_size: usize) -> Result<Self, DataError> {
        let path = directory.join("tokenizer.json");
        let bytes = match read_regular(&path, FileKind::Tokenizer) {
            Ok(bytes) => bytes,
            Err(e) if e.is_not_found() => return Err(TokenizerError::Missing { path }.into()),
            Err(e) => return Err(DataError::io(&path, e.into())),
        };
        let unusable = |reason: String| {
            TokenizerError::Unusable {
                path: path.clone(),
                reason,
            }
            .into()
        };
        let inner = contain(|| read(&bytes))
            .unwrap_or_else(Err)
            .map_err(unusable)?;
        if let ModelWrapper::BPE(model) = inner.get_model()
            && model.dropout.is_some_and(|dropout| dropout != 0.0)
        {
            let reason = "its BPE dropout draws another tokenization each time; set it to null";
            return Err(unusable(reason.into()));
        }
        let vocabulary = inner.get_vocab(true);
        let last = vocabulary
            .iter()
            .max_by_key(|(token, id)| (**id, token.as_str()));
        let Some((token, &id)) = last else {
            return Err(unusable("its vocabulary is empty".into()));
        };
        if id as usize >= vocab_size || id > i32::MAX as u32 {
            return Err(TokenizerError::Mismatch {
                path,
                token: token.clone(),
                id,
                vocab_size,
            }
            .into());
        }
        let added = inner.get_added_tokens_decoder();
        let mut special: Vec<String> = added
            .into_values()
            .filter(|token| token.special)
            .map(|token| token.content)
            .collect();
        special.sort_unstable();
        let tokenizer = TextTokenizer {
            inner,
            special,
            end_token: end_token(directory, &vocabulary, vocab_size)?,
            sha256: hex(&Sha256::digest(&bytes)),
        };
        // A damaged table fails at its first use only. Used here, the error names the file and not
        // a row.
        tokenizer.encode("a b").map_err(unusable)?;
        Ok(tokenizer)
    }

    /// The ids of `text` with the special tokens that the tokenizer adds by itself, as
    /// transformers' `tokenizer(text).input_ids`.
    ///
    /// # Errors
    /// The tokenizer's own message.
    pub fn encode(&self, text: &str) -> Result<Vec<i32>, String> {
        let encoding =
            contain(|| self.inner.encode_fast(text, true))?.map_err(|e| e.to_string())?;
        ids(&encoding)
    }

    /// The ids of a text in which a chat template has written the special tokens. None is added.
    ///
    /// # Errors
    /// The tokenizer's own message.
    pub fn encode_rendered(&self, text: &str) -> Result<Vec<i32>, String> {
        let (ids, _) = self.encode_with_offsets(text, AddedTokens::None)?;
        Ok(ids)
    }

    /// The ids of `text`, and the bytes of each; special tokens have none. `adding` says whether
    /// special tokens are added.
    ///
    /// # Errors
    /// The tokenizer's own message.
    pub(super) fn encode_with_offsets(
        &self,
        text: &str,
        adding: AddedTokens,
    ) -> Result<(Vec<i32>, Offsets), String> {
        let add = adding == AddedTokens::Tokenizers;
        let encoding = contain(|| self.inner.encode(text, add))?.map_err(|e| e.to_string())?;
        Ok((ids(&encoding)?, encoding.get_offsets().to_vec()))
    }

    /// Whether `text` ends with a special token.
    pub(super) fn ends_with_special(&self, text: &str) -> bool {
        self.special
            .iter()
            .any(|token| text.ends_with(token.as_str()))
    }

    /// Number of tokens of `text`, where it is not a single token.
    pub(super) fn pieces(&self, text: &str) -> Option<usize> {
        let ids = self.encode_rendered(text).ok()?;
        let own = self.inner.token_to_id(text);
        let alone = own.is_some_and(|own| ids.contains(&(own as i32)));
        (!alone).then_some(ids.len())
    }

    /// The token with this id, as in the vocabulary.
    pub fn token(&self, id: i32) -> Option<String> {
        self.inner.id_to_token(u32::try_from(id).ok()?)
    }

    /// Whether the token with this id is a special one.
    pub fn is_special(&self, id: i32) -> bool {
        let token = self.token(id);
        token.is_some_and(|token| self.special.binary_search(&token).is_ok())
    }

    /// The ids of a row: those of `text`, then the end token where they do not already end with it.
    ///
    /// # Errors
    /// The tokenizer's own message.
    pub fn encode_row(&self, text: &str) -> Result<Vec<i32>, String> {
        let mut ids = self.encode(text)?;
        if ids.last() != Some(&self.end_token) {
            ids.push(self.end_token);
        }
        Ok(ids)
    }

    /// The text of `ids` with special tokens.
    ///
    /// # Errors
    /// The tokenizer's own message.
    pub fn decode(&self, ids: &[i32]) -> Result<String, String> {
        self.decode_with(ids, Special::Shown)
    }

    /// The text of `ids`, without special tokens.
    ///
    /// # Errors
    /// The tokenizer's own message.
    pub fn decode_plain(&self, ids: &[i32]) -> Result<String, String> {
        self.decode_with(ids, Special::LeftOut)
    }

    fn decode_with(&self, ids: &[i32], special: Special) -> Result<String, String> {
        let skip = special == Special::LeftOut;
        let ids: Vec<u32> = ids.iter().map(|&id| id as u32).collect();
        contain(|| self.inner.decode(&ids, skip))?.map_err(|e| e.to_string())
    }

    /// The token that ends a row.
    pub fn end_token(&self) -> i32 {
        self.end_token
    }

    /// sha256 of `tokenizer.json`, in hexadecimal.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }
}

/// For each token its bytes of the text: begin and end.
pub(super) type Offsets = Vec<(usize, usize)>;

/// Whether a text shows special tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Special {
    Shown,
    LeftOut,
}

/// Which special tokens are added to a text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AddedTokens {
    /// Those that the tokenizer adds by itself.
    Tokenizers,
    /// None: a chat template has written them.
    None,
}

fn ids(encoding: &Encoding) -> Result<Vec<i32>, String> {
    let ids = encoding.get_ids().iter();
    ids.map(|&id| i32::try_from(id).map_err(|_| format!("it gives the id {id}")))
        .collect()
}

fn read(bytes: &[u8]) -> Result<Tokenizer, String> {
    // `from_bytes` would compile the deserializers of all tokenizers into this crate again.
    let text = std::str::from_utf8(bytes).map_err(|e| e.to_string())?;
    let mut tokenizer = text.parse::<Tokenizer>().map_err(|e| e.to_string())?;
    tokenizer.with_truncation(None).map_err(|e| e.to_string())?;
    tokenizer.with_padding(None);
    Ok(tokenizer)
}

/// The ids that a model knows, and its tokenizer, loaded when a row of text needs it.
pub struct Vocabulary {
    directory: PathBuf,
    size: usize,
    tokenizer: OnceLock<TextTokenizer>,
}

impl Vocabulary {
    /// The vocabulary of the model in `directory`, whose embedding has `size` rows; reads nothing
    /// yet.
    pub fn new(directory: impl Into<PathBuf>, size: usize) -> Self {
        Vocabulary {
            directory: directory.into(),
            size,
            tokenizer: OnceLock::new(),
        }
    }

    /// The vocabulary of the model in `directory`, from its `config.json`.
    ///
    /// # Errors
    /// [`DataError::Tokenizer`] for a config without `vocab_size`.
    pub fn of_model(directory: &ModelDirectory) -> Result<Self, DataError> {
        let config = directory.config();
        let size = ["/vocab_size", "/text_config/vocab_size"]
            .iter()
            .find_map(|key| config.pointer(key)?.as_u64());
        match size {
            Some(size) => Ok(Vocabulary::new(directory.path(), size as usize)),
            None => Err(TokenizerError::Unusable {
                path: directory.path().join("config.json"),
                reason: "it has no vocab_size".into(),
            }
            .into()),
        }
    }

    /// The model's directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Rows of the model's embedding.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The model's tokenizer, read at the first call.
    ///
    /// # Errors
    /// As [`TextTokenizer::load`].
    pub fn tokenizer(&self) -> Result<&TextTokenizer, DataError> {
        if let Some(tokenizer) = self.tokenizer.get() {
            return Ok(tokenizer);
        }
        let tokenizer = TextTokenizer::load(&self.directory, self.size)?;
        Ok(self.tokenizer.get_or_init(|| tokenizer))
    }

    /// The tokenizer, where it is loaded.
    pub fn loaded_tokenizer(&self) -> Option<&TextTokenizer> {
        self.tokenizer.get()
    }
}

/// The end token: `eos_token` of `tokenizer_config.json`, else the first `eos_token_id` of
/// `config.json`, then of `generation_config.json`.
fn end_token(
    directory: &Path,
    vocabulary: &HashMap<String, u32>,
    vocab_size: usize,
) -> Result<i32, DataError> {
    let path = directory.join("tokenizer_config.json");
    let named = json(&path)?.and_then(|mut config| config.get_mut("eos_token").map(Value::take));
    if let Some(token) = named.as_ref().and_then(token_text) {
        return match vocabulary.get(token) {
            Some(&id) => Ok(id as i32),
            None => Err(TokenizerError::Unusable {
                path,
                reason: format!("its eos_token `{token}` is not in tokenizer.json"),
            }
            .into()),
        };
    }
    for name in ["config.json", "generation_config.json"] {
        let path = directory.join(name);
        let Some(config) = json(&path)? else { continue };
        let id = match config.get("eos_token_id") {
            None | Some(Value::Null) => continue,
            Some(Value::Array(ids)) if ids.is_empty() => continue,
            Some(Value::Array(ids)) => &ids[0],
            Some(id) => id,
        };
        return match id.as_u64() {
            Some(id) if id < vocab_size as u64 => Ok(id as i32),
            _ => Err(TokenizerError::Unusable {
                path,
                reason: format!("its eos_token_id {id} is not a token id below {vocab_size}"),
            }
            .into()),
        };
    }
    Err(TokenizerError::NoEndToken {
        directory: directory.to_path_buf(),
    }
    .into())
}

/// The text of a token in a config: a string, or an object that describes the token.
pub(super) fn token_text(value: &Value) -> Option<&str> {
    let text = match value {
        Value::Object(described) => described.get("content").and_then(Value::as_str),
        other => other.as_str(),
    };
    text.filter(|text| !text.is_empty())
}

/// The JSON of a file that may be absent.
pub(super) fn json(path: &Path) -> Result<Option<Value>, DataError> {
    let bytes = match read_regular(path, FileKind::JsonConfig) {
        Ok(bytes) => bytes,
        Err(e) if e.is_not_found() => return Ok(None),
        Err(e) => return Err(DataError::io(path, e.into())),
    };
    serde_json::from_slice(&bytes).map(Some).map_err(|e| {
        TokenizerError::Unusable {
            path: path.to_path_buf(),
            reason: e.to_string(),
        }
        .into()
    })
}
