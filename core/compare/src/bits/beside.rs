//! A measured table and arms in short -> the bits that are chosen for the memory of each arm.

use std::path::Path;

use espalier_config::CompareOptions;
use espalier_interface::bytes::Bytes;
use espalier_system::failure::UsageError;

use super::choice::BitChoice;
use super::{names, read_table};
use crate::Error;
use crate::arms::ChosenBits;

/// The bits chosen for the memory of each arm of `compare` that is an option of its table; none
/// without a table.
///
/// # Errors
/// [`Error::Usage`] for no such table, one that is not complete, and one that has none of the arms.
pub(crate) fn beside(compare: &CompareOptions) -> Result<Vec<ChosenBits>, Error> {
    let Some(path) = &compare.bits else {
        return Ok(Vec::new());
    };
    let table = read_table(path)?;
    let names = names(&table);
    // A choice with memory for anything has the bytes of each uniform option.
    let all = BitChoice::of(&table, &names, Bytes(u64::MAX))?;
    let asked = all.uniform.into_iter();
    let asked = asked.filter(|uniform| compare.arms.contains(&uniform.option));
    let chosen = asked.map(|uniform| {
        let chosen = BitChoice::of(&table, &names, uniform.bytes)?;
        Ok(ChosenBits {
            arm: uniform.option,
            rules: chosen.rules,
        })
    });
    let chosen: Vec<ChosenBits> = chosen.collect::<Result<_, Error>>()?;
    if chosen.is_empty() {
        return Err(none_of(path, &names));
    }
    Ok(chosen)
}

fn none_of(path: &Path, names: &[String]) -> Error {
    Error::Usage(UsageError {
        message: format!(
            "--bits {}: no arm of --arms is an option of this table",
            path.display()
        ),
        next_step: format!("name one as it is written there: {}", names.join(", ")),
    })
}
