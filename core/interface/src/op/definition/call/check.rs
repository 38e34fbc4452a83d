//! One use of an op -> whether it fits the op's definition.

use super::{OpCall, shown};
use crate::Result;
use crate::op::definition::{AttributeKind, Presence, Storage};
use crate::role::WeightLayout;

impl OpCall<'_> {
    /// Checks the call against the op's definition.
    ///
    /// # Errors
    /// `INVALID`, naming the op, the operand or attribute, what was expected and what was found.
    pub fn check(&self) -> Result<()> {
        self.check_counts()?;
        self.check_attributes()?;
        self.check_layouts()?;
        let inferred = (self.definition.infer)(self)?;
        let outputs = self.outputs.iter().zip(self.definition.outputs);
        for ((found, output), expected) in outputs.zip(&inferred) {
            if found.shape != expected.shape || found.dtype != expected.dtype {
                let expected = shown(expected.dtype, &expected.shape);
                return Err(self.unlike("output", output.name, found, &expected));
            }
        }
        Ok(())
    }

    fn check_counts(&self) -> Result<()> {
        let definition = self.definition;
        let found = [self.inputs.len(), self.params.len(), self.outputs.len()];
        let expected = definition.operands();
        if found
            .iter()
            .zip(&expected)
            .all(|(n, range)| range.contains(n))
        {
            return Ok(());
        }
        let [inputs, params, outputs] = expected.map(|range| {
            if range.start() == range.end() {
                range.end().to_string()
            } else {
                format!("{} to {}", range.start(), range.end())
            }
        });
        Err(self.invalid(format!(
            "{} inputs, {} params and {} outputs, expected {inputs}, {params} and {outputs}",
            found[0], found[1], found[2]
        )))
    }

    fn check_attributes(&self) -> Result<()> {
        let known = self.definition.attributes;
        for attribute in known {
            let absent = self
                .attributes
                .0
                .get(attribute.name)
                .is_none_or(|v| v.is_null());
            if absent && attribute.presence == Presence::Optional {
                continue;
            }
            let read = match attribute.kind {
                AttributeKind::Flag => self.attributes.boolean(attribute.name).map(drop),
                AttributeKind::Count => self.count(attribute.name).map(drop),
                AttributeKind::Number => self.attributes.number(attribute.name).map(drop),
                AttributeKind::Numbers => self.attributes.numbers(attribute.name).map(drop),
                AttributeKind::Text => self.attributes.name(attribute.name).map(drop),
            };
            read.map_err(|error| self.named(error))?;
        }
        // The site that a node computes is beside its attributes.
        let is_known = |name: &str| name == "site" || known.iter().any(|one| one.name == name);
        let mut set = self
            .attributes
            .0
            .iter()
            .filter(|(_, value)| !value.is_null());
        match set.find(|(name, _)| !is_known(name)) {
            None => Ok(()),
            Some((name, value)) => {
                Err(self.invalid(format!("unknown attribute `{name}` = {value}")))
            }
        }
    }

    fn check_layouts(&self) -> Result<()> {
        for (param, definition) in self.params.iter().zip(self.definition.params) {
            let Some(WeightLayout::Packed(format)) = param.layout else {
                continue;
            };
            let name = definition.name;
            if definition.storage == Storage::Dense {
                return Err(self.invalid(format!(
                    "param `{name}` is packed by quantizer `{}`, expected a dense one",
                    format.quantizer
                )));
            }
            if format.shape != *param.shape {
                return Err(self.invalid(format!(
                    "param `{name}` is {:?}, its format is for {:?}",
                    param.shape, format.shape
                )));
            }
        }
        Ok(())
    }
}
