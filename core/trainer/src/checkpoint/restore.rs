//! A verified checkpoint -> its trained params and their state on the devices, for any number of
//! ranks.

use std::collections::BTreeMap;
use std::ops::Range;

use espalier_engine::executor::{Executor, StatePart};
use espalier_system::files::{TensorEntry, TensorStore, WeightsError};

use super::piece::Piece;
use super::save::stored_name;
use super::{Checkpoint, OPTIMIZER, PARAMS};
use crate::Error;

/// Uploads this rank's elements of values and optimizer state of every trainable param, in parts.
///
/// # Errors
/// [`Error::Weights`] where a tensor is missing or has another shape or dtype.
pub fn restore(checkpoint: &Checkpoint, executor: &Executor) -> Result<(), Error> {
    let saved = Saved::open(checkpoint, executor)?;
    for param in executor.trainable() {
        for part in executor.state_parts(param) {
            saved.upload(executor, param, part)?;
        }
    }
    Ok(())
}

/// The files of a checkpoint.
struct Saved<'a> {
    checkpoint: &'a Checkpoint,
    stores: Vec<TensorStore>,
    /// With separate files per rank: the pieces of each stored name by their first element, with
    /// their file.
    pieces: Option<BTreeMap<String, Pieces>>,
}

/// Pieces of a tensor by their first element, each with the number of its file.
type Pieces = BTreeMap<u64, (Piece, usize)>;

impl<'a> Saved<'a> {
    fn open(checkpoint: &'a Checkpoint, executor: &Executor) -> Result<Self, Error> {
        let manifest = &checkpoint.manifest;
        let open = |name: &str| Ok::<_, Error>(TensorStore::open(&checkpoint.path.join(name))?);
        if manifest.ranks.is_none() {
            let mut stores = vec![open(PARAMS)?];
            let mut trainable = executor.trainable().into_iter();
            if trainable.any(|param| executor.state_parts(param).len() > 1) {
                stores.push(open(OPTIMIZER)?);
            }
            return Ok(Saved {
                checkpoint,
                stores,
                pieces: None,
            });
        }
        let names = manifest.files.iter().map(|file| file.file.as_str());
        let of_ranks = names.filter(|name| name.ends_with(".safetensors") && !name.contains('/'));
        let stores = of_ranks.map(open).collect::<Result<Vec<_>, _>>()?;
        let mut pieces: BTreeMap<String, BTreeMap<u64, (Piece, usize)>> = BTreeMap::new();
        for (file, store) in stores.iter().enumerate() {
            for entry in store.entries() {
                if let Some(piece) = Piece::parse(&entry.name) {
                    let of_name = pieces.entry(piece.name.clone()).or_default();
                    of_name.insert(piece.elements.start, (piece, file));
                }
            }
        }
        Ok(Saved {
            checkpoint,
            stores,
            pieces: Some(pieces),
        })
    }

    fn upload(&self, executor: &Executor, index: usize, part: StatePart) -> Result<(), Error> {
        let name = stored_name(executor, index, part);
        let shape = executor.state_shape(index, part);
        let elements: u64 = shape.iter().product();
        let Some(pieces) = &self.pieces else {
            let store = match part {
                StatePart::Values => &self.stores[0],
                _ => &self.stores[1],
            };
            let entry = store.entry_of_shape(&name, &shape)?;
            return stream(store, entry, executor, (index, part), 0);
        };
        let own = executor.own_elements(index, part);
        let mut end = 0;
        for (piece, file) in pieces.get(&name).into_iter().flat_map(BTreeMap::values) {
            let Range { start, end: after } = piece.elements;
            if start != end {
                break;
            }
            end = after;
            if start < own.end && own.start < after {
                let store = &self.stores[*file];
                let entry = store.entry_of_shape(&piece.tensor(), &[after - start])?;
                stream(store, entry, executor, (index, part), start)?;
            }
        }
        if end == elements {
            Ok(())
        } else {
            Err(Error::Weights(WeightsError {
                path: self.checkpoint.path.clone(),
                message: format!(
                    "the files of its ranks hold elements 0..{end} of `{name}`, expected \
                     0..{elements}"
                ),
            }))
        }
    }
}

/// Uploads a tensor that starts at element `first` of a part of a param.
fn stream(
    store: &TensorStore,
    entry: &TensorEntry,
    executor: &Executor,
    (param, part): (usize, StatePart),
    first: u64,
) -> Result<(), Error> {
    let expected = executor.state_dtype(param, part);
    if entry.dtype.to_string().to_lowercase() != expected.name() {
        return Err(Error::Weights(WeightsError {
            path: store.file_of(entry).to_owned(),
            message: format!(
                "tensor `{}` is {}, expected {expected}: model.params or model.compute is another",
                entry.name, entry.dtype
            ),
        }));
    }
    let mut offset = first * expected.bytes();
    store.stream_tensor_bytes(&entry.name, &mut |bytes| {
        executor.upload_state(param, part, offset, bytes)?;
        offset += bytes.len() as u64;
        Ok::<_, espalier_engine::Error>(())
    })?;
    Ok(())
}
