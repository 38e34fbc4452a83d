//! A product by cuBLASLt, and what is left to add to it.
//!
//! cuBLASLt adds one matrix to a product, and a bias of the result's dtype where the factor is 1.
//! Some of its kernels round the product times the factor before they add. The kernels of this
//! backend round the sum, and again after each addition. A second matrix, or a bias of another
//! dtype, is added by a kernel after it.

use std::sync::Arc;

use espalier_interface::{DType, Result};

use super::{Epilogue, Extents, Finish, ProductLaunch, ProductRequest};
use crate::arguments::Arguments;
use crate::direction::Direction;
use crate::kit::Kit;
use crate::modules::Function;
use crate::product_library::{Multiplication, Problem, ProductLibrary};
use crate::sources::FINISH;

/// Neighbours that a thread of the kernel adds to.
const NEIGHBOURS: usize = 8;

/// The kernel that adds what the library did not.
const FINISH_KERNEL: &str = "finish_bf16";

/// cuBLASLt for the products of a request.
pub struct ByLibrary {
    library: Arc<ProductLibrary>,
    /// Adds what the library did not.
    finish: Function,
    directions: [Direction; 2],
    result: DType,
    bias: Bias,
}

/// What adds the bias.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bias {
    /// There is none.
    None,
    /// The library.
    Library,
    /// The kernel after it.
    Kernel,
}

impl Bias {
    /// What adds the bias of a request. None where the library's product would be rounded, times a
    /// factor or with another matrix in it, before the bias is added.
    fn of(request: &ProductRequest) -> Option<Self> {
        match request.bias {
            None => Some(Bias::None),
            Some(_) if request.alpha != 1.0 => None,
            Some(DType::BF16) => Some(Bias::Library),
            Some(_) => (!request.is_added_to).then_some(Bias::Kernel),
        }
    }
}

impl ByLibrary {
    /// The library for a request; none where there is no library, or it does not compute the
    /// request's products.
    ///
    /// # Errors
    /// `DEVICE` where it fails to choose an algorithm for the largest launch, or the kernel that
    /// adds the rest cannot be compiled.
    pub fn new(kit: &Kit, of: &ProductRequest) -> Result<Option<Self>> {
        let (Some(library), Some(bias)) = (&kit.products, Bias::of(of)) else {
            return Ok(None);
        };
        if of.dtypes != [DType::BF16; 2] {
            return Ok(None);
        }
        let has_rest = bias == Bias::Kernel || (of.is_added_to && of.has_residual);
        let finish = if has_rest {
            kit.function(FINISH, FINISH_KERNEL)?
        } else {
            kit.modules.spare_function(FINISH, "", FINISH_KERNEL)
        };
        let made = ByLibrary {
            library: library.clone(),
            finish,
            directions: of.directions,
            result: of.result,
            bias,
        };
        let problem = made.problem(of.extents, of.strides);
        Ok(made.library.serves(&problem)?.then_some(made))
    }

    /// Bytes of workspace that a launch has.
    pub fn workspace_bytes(&self) -> usize {
        self.library.workspace_bytes()
    }

    fn problem(&self, extents: [usize; 3], strides: [usize; 2]) -> Problem {
        Problem {
            extents,
            directions: self.directions,
            strides,
            result: self.result,
            has_bias: self.bias == Bias::Library,
        }
    }

    /// Puts a product on this thread's stream. False where the library does not compute it.
    ///
    /// # Errors
    /// `DEVICE`, `OUT_OF_MEMORY`.
    pub fn launch(&self, launch: &ProductLaunch) -> Result<bool> {
        let (alpha, added, mut rest) = match launch.finish {
            Finish::Accumulate(alpha, _) => (alpha, launch.result, Epilogue::SUM),
            Finish::Write(mut epilogue) => {
                let mut added = std::mem::take(&mut epilogue.added);
                if added == 0 {
                    added = std::mem::take(&mut epilogue.residual);
                }
                (epilogue.alpha, added, epilogue)
            }
        };
        let bias = match self.bias {
            Bias::Library => std::mem::take(&mut rest.bias[Epilogue::BF16]),
            Bias::None | Bias::Kernel => 0,
        };
        let is_launched = self.library.launch(&Multiplication {
            problem: self.problem(launch.extents, launch.strides),
            matrices: launch.matrices,
            alpha,
            added: (added != 0).then_some(added),
            bias,
            result: launch.result,
            workspace: launch.workspace,
        })?;
        let is_done = rest.residual == 0 && rest.bias == [0; 3];
        if is_launched && !is_done {
            self.finish(launch, rest)?;
        }
        Ok(is_launched)
    }

    /// Adds what is left to a result that is written.
    fn finish(&self, launch: &ProductLaunch, rest: Epilogue) -> Result<()> {
        let [rows, columns, _] = launch.extents;
        let arguments = Arguments::new().with(launch.result);
        let arguments = arguments.with(Extents(launch.extents.map(|extent| extent as i64)));
        let elements = rows * columns;
        self.finish
            .launch_over(elements / NEIGHBOURS, &arguments.with(rest))
    }
}
