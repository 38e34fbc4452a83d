//! The checks of a quantizer's options: it accepts what it declares, refuses other values with a
//! message, and uses each option.

use espalier_interface::abi::descriptor::OptionDescriptor;
use espalier_interface::format::Format;
use espalier_interface::saved_form::SavedForm;
use espalier_interface::{DType, ErrorCode, Options, Quantizer};
use serde_json::{Value as Json, json};

use super::calibrated;
use super::case::{decode, encode};
use crate::checked::{Checked, Fault, calm, ensure, refusal};
use crate::option_sets::alternatives;
use crate::{OptionSet, Subject, Suite, Threads, weights};

/// Shapes at which the effect of an option is looked for; the last has enough elements for several
/// large blocks.
const SHAPES: [[u64; 2]; 3] = [[17, 100], [64, 64], [16, 4096]];

pub fn check(subject: &Subject<'_, dyn Quantizer>, suite: &mut Suite) {
    suite.check(
        "options.accepted",
        "its defaults make a component; every value in a declared range does, or is refused with INVALID",
        || accepted(subject),
    );
    suite.check(
        "options.refused",
        "a value of another type is rejected with a message; one that no component could mean never leads to a panic",
        || refused(subject),
    );
    suite.check(
        "options.heeded",
        "each option changes something: the format, the bytes, the decoded numbers or the saved form",
        || heeded(subject),
    );
}

fn accepted(subject: &Subject<'_, dyn Quantizer>) -> Checked {
    for (index, set) in subject.option_sets().iter().enumerate() {
        let at = |fault: Fault| fault.at(&set.label);
        let made = calm(|| Ok(subject.make(&set.options, Threads::new(1)))).map_err(at)?;
        match made {
            Ok(_) => {}
            Err(error) if index > 0 && error.code == ErrorCode::INVALID => {
                refusal(&error).map_err(at)?;
            }
            Err(error) => return Err(at(error.into())),
        }
    }
    Ok(())
}

fn refused(subject: &Subject<'_, dyn Quantizer>) -> Checked {
    let sets = subject.option_sets();
    let defaults = &sets[0].options;
    for option in &subject.component.options {
        let wrong = match option.kind.as_str() {
            "text" | "texts" => json!(7),
            _ => json!("no such value"),
        };
        let place = format!("{} = {wrong}", option.name);
        match try_value(subject, defaults, option, &wrong).map_err(|fault| fault.at(&place))? {
            Some(error) => refusal(&error).map_err(|fault| fault.at(&place))?,
            None => return Err(Fault::Failed(format!("{place} was accepted"))),
        }
        for value in extremes(option) {
            let place = format!("{} = {value}", option.name);
            if let Some(error) =
                try_value(subject, defaults, option, &value).map_err(|fault| fault.at(&place))?
            {
                refusal(&error).map_err(|fault| fault.at(&place))?;
            }
        }
    }
    Ok(())
}

/// Values that pass a declaration without a range.
fn extremes(option: &OptionDescriptor) -> Vec<Json> {
    match (option.kind.as_str(), option.range.as_str()) {
        ("integer", "") => vec![json!(0), json!(-1), json!(1), json!(i64::MAX)],
        ("number", "") => vec![json!(0.0), json!(-1.0), json!(1e-30), json!(1e30)],
        ("text" | "texts", "") => vec![json!(""), json!("no such value")],
        _ => Vec::new(),
    }
}

/// Makes a component with one option changed and asks for a format and an encoding. Returns the
/// refusal, whichever call gives it.
fn try_value(
    subject: &Subject<'_, dyn Quantizer>,
    defaults: &Options,
    option: &OptionDescriptor,
    value: &Json,
) -> Checked<Option<espalier_interface::PluginError>> {
    let mut options = defaults.clone();
    options.0.insert(option.name.clone(), value.clone());
    calm(|| {
        let quantizer = match subject.make(&options, Threads::new(1)) {
            Ok(quantizer) => quantizer,
            Err(error) => return Ok(Some(error)),
        };
        let format = match quantizer.format(SHAPES[1]) {
            Ok(format) => format,
            Err(error) => return Ok(Some(error)),
        };
        format.validate()?;
        let weight = weights::ordinary(format.shape, 12);
        Ok(encode(quantizer.as_ref(), &format, &weight, 0)?.err())
    })
}

fn heeded(subject: &Subject<'_, dyn Quantizer>) -> Checked {
    let sets = subject.option_sets();
    let base = &sets[0];
    if sets.len() == 1 {
        return Err(Fault::Skipped("it has no option with another value".into()));
    }
    let expected = outcomes(subject, base)?;
    for option in &subject.component.options {
        // Options that the user gave are not varied.
        if base.options.0.get(&option.name) != Some(&option.default) {
            continue;
        }
        let others = alternatives(option);
        let mut usable = 0;
        let mut changes = false;
        for value in &others {
            let mut options = base.options.clone();
            options.0.insert(option.name.clone(), value.clone());
            let label = format!("{} = {value}", option.name);
            let set = OptionSet { label, options };
            let Ok(found) = outcomes(subject, &set) else {
                continue;
            };
            usable += 1;
            changes |= found != expected;
        }
        ensure(usable == 0 || changes, || {
            let others: Vec<String> = others.iter().map(Json::to_string).collect();
            format!(
                "option `{}`: {} gives the same format, bytes, numbers and saved form as {}",
                option.name,
                others.join(" or "),
                option.default
            )
        })?;
    }
    Ok(())
}

/// What a weight becomes under a set of options.
#[derive(PartialEq)]
struct Outcome {
    format: Format,
    /// Of each segment.
    bytes: Vec<Vec<u8>>,
    /// The decoded numbers.
    bits: Vec<u32>,
    /// The bytes with statistics, of a quantizer that wants any.
    calibrated: Option<Vec<Vec<u8>>>,
    /// Where it has one.
    saved: Option<SavedForm>,
}

/// The result for each shape under a set of options; none for a shape that is refused.
fn outcomes(
    subject: &Subject<'_, dyn Quantizer>,
    set: &OptionSet,
) -> Checked<Vec<Option<Outcome>>> {
    calm(|| {
        let quantizer = subject.make(&set.options, Threads::new(1))?;
        let outcome = |shape: [u64; 2]| -> Checked<_> {
            let Ok(format) = quantizer.format(shape) else {
                return Ok(None);
            };
            let weight = weights::ordinary(shape, 13);
            let encoded = encode(quantizer.as_ref(), &format, &weight, 0)??;
            let whole = (0..shape[0], 0..shape[1]);
            let decoded = decode(quantizer.as_ref(), shape, &encoded.segments(), whole)?;
            let bytes = encoded.segments().iter().map(|run| run.to_vec()).collect();
            let bits = decoded.iter().map(|x| x.to_bits()).collect();
            let calibrated = calibrated::outcome(quantizer.as_ref(), &format, &weight)?;
            Ok(Some(Outcome {
                saved: quantizer.saved_form(shape, DType::F32).ok(),
                format,
                bytes,
                bits,
                calibrated,
            }))
        };
        SHAPES.into_iter().map(outcome).collect()
    })
}
