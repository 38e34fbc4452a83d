//! A model, an adapter, formats and the config -> every param of the run: shape, storage, trained
//! or not.

use std::collections::HashMap;

use espalier_interface::adaptation::Adaptation;
use espalier_interface::format::Format;
use espalier_interface::model::{Model, ParamKind};
use espalier_interface::{DType, Init, WeightLayout};

use crate::arena::aligned;

/// A param of the run.
#[derive(Clone, Debug)]
pub struct Param {
    /// Name in the checkpoint, or the adapter's key on disk.
    pub name: String,
    /// Further names under which a checkpoint may hold it.
    pub aliases: Vec<String>,
    /// Shape.
    pub shape: Vec<u64>,
    /// Its kind in the model; none for an adapter's param.
    pub kind: Option<ParamKind>,
    /// Whether it is trained.
    pub trainable: bool,
    /// How its elements are stored in memory.
    pub layout: WeightLayout,
    /// Its initial value where no file gives one.
    pub init: Init,
    /// Its learning rate over the run's; 1 but for some of an adapter's.
    pub learning_rate_ratio: f64,
    /// The unit that stores it: the first that reads it. [`Param::OF_NO_UNIT`] for frozen params
    /// of an adapter, which every rank keeps whole.
    pub unit: usize,
    /// Index of the adapter's param of which it is the first rows and columns; no file holds it.
    pub part_of: Option<usize>,
}

impl Param {
    /// The unit of frozen params of an adapter, which any number of units read.
    pub const OF_NO_UNIT: usize = usize::MAX;

    /// Whether it is a frozen param of an adapter.
    pub fn is_of_no_unit(&self) -> bool {
        self.unit == Param::OF_NO_UNIT
    }

    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Bytes of each of its segments in memory; a dense param is one segment.
    pub fn segment_bytes(&self) -> Vec<u64> {
        match &self.layout {
            WeightLayout::Dense(dtype) => vec![self.elements() * dtype.bytes()],
            WeightLayout::Packed(format) => format.segments.iter().map(|s| s.bytes()).collect(),
        }
    }

    /// Its bytes in memory, padding for alignment included.
    pub fn bytes(&self) -> u64 {
        self.segment_bytes().into_iter().map(aligned).sum()
    }

    /// The two extents of a matrix; none for another rank.
    pub fn matrix(&self) -> Option<[u64; 2]> {
        <[u64; 2]>::try_from(self.shape.as_slice()).ok()
    }
}

/// The dtypes of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dtypes {
    /// Activations, and frozen dense weights.
    pub compute: DType,
    /// Norms, softmax, loss, and arithmetic of the update.
    pub reduce: DType,
    /// Trainable params.
    pub params: DType,
    /// Their gradients.
    pub gradients: DType,
}

impl Dtypes {
    /// One dtype for all.
    pub const fn all(dtype: DType) -> Self {
        Dtypes {
            compute: dtype,
            reduce: dtype,
            params: dtype,
            gradients: dtype,
        }
    }

    /// Replaces [`DType::COMPUTE`] and [`DType::REDUCE`] by this run's dtypes; others stay.
    pub fn resolve(self, dtype: DType) -> DType {
        match dtype {
            DType::COMPUTE => self.compute,
            DType::REDUCE => self.reduce,
            concrete => concrete,
        }
    }
}

/// What is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Training {
    /// The adapter's params alone; the model is frozen.
    Adapter,
    /// All of the model.
    Full,
    /// Some weights of the model; the others are frozen.
    Part,
    /// Nothing: model and adapter are only read.
    Nothing,
}

/// Weights of the model that a config names.
#[derive(Clone, Copy)]
pub struct NamedWeights<'a> {
    /// Those that stay f32 where they are frozen and dense.
    pub keep_f32: &'a dyn Fn(&str) -> bool,
    /// Those that are trained in [`Training::Part`].
    pub trained: &'a dyn Fn(&str) -> bool,
}

/// All params of a run: first the model's, then the adapter's.
pub fn params(
    model: &Model,
    adaptation: &Adaptation,
    formats: &HashMap<usize, Format>,
    named: NamedWeights<'_>,
    dtypes: Dtypes,
    training: Training,
) -> Vec<Param> {
    let mut unit_of = vec![0; model.params.len()];
    for (index, unit) in model.units.iter().enumerate().rev() {
        for &param in &unit.params {
            unit_of[param] = index;
        }
    }
    let mut made: Vec<Param> = Vec::with_capacity(model.params.len() + adaptation.params.len());
    for (index, spec) in model.params.iter().enumerate() {
        let trainable = match training {
            Training::Full => true,
            Training::Part => (named.trained)(&spec.name),
            Training::Adapter | Training::Nothing => false,
        };
        let frozen = if dtypes.compute != DType::F64 && (named.keep_f32)(&spec.name) {
            DType::F32
        } else {
            dtypes.compute
        };
        let layout = match formats.get(&index) {
            Some(format) if !trainable => WeightLayout::Packed(Box::new(format.clone())),
            _ => WeightLayout::Dense(if trainable { dtypes.params } else { frozen }),
        };
        made.push(Param {
            name: spec.name.clone(),
            aliases: spec.aliases.clone(),
            shape: spec.shape.clone(),
            kind: Some(spec.kind),
            trainable,
            layout,
            init: spec.init,
            learning_rate_ratio: 1.0,
            unit: unit_of[index],
            part_of: None,
        });
    }
    for (index, param) in adaptation.params.iter().enumerate() {
        let frozen = adaptation.frozen(index);
        let part_of = frozen.and_then(|one| one.part_of);
        made.push(Param {
            name: param.name.clone(),
            aliases: Vec::new(),
            shape: param.shape.clone(),
            kind: None,
            trainable: frozen.is_none() && training != Training::Nothing,
            layout: WeightLayout::Dense(dtypes.params),
            init: param.init,
            learning_rate_ratio: adaptation.learning_rate_ratio(index),
            // `compile` finds the unit of a trained one.
            unit: Param::OF_NO_UNIT,
            part_of: part_of.map(|whole| model.params.len() + whole),
        });
    }
    made
}
