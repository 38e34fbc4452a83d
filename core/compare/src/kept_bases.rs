//! Arms and their runs -> the encoded weights that an arm keeps from one seed to the next.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use espalier_engine::load::KeptWeights;

/// The encoded weights of every arm that has runs left.
pub(crate) struct KeptBases {
    directory: PathBuf,
    arms: RefCell<HashMap<usize, Rc<KeptWeights>>>,
}

impl KeptBases {
    /// None yet; their files are made in `directory`.
    pub fn new(directory: &Path) -> Self {
        KeptBases {
            directory: directory.to_owned(),
            arms: RefCell::default(),
        }
    }

    /// Those of `arm`, for a run that encodes `bytes` bytes. The arm's last run is given them for
    /// good, and none where no run before it has made them.
    pub fn of(&self, arm: usize, bytes: u64, is_last: bool) -> Option<Rc<KeptWeights>> {
        let mut arms = self.arms.borrow_mut();
        if is_last {
            return arms.remove(&arm);
        }
        let make = || Rc::new(KeptWeights::new(&self.directory, bytes));
        (bytes > 0).then(|| Rc::clone(arms.entry(arm).or_insert_with(make)))
    }
}
