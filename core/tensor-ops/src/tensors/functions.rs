//! The functions that a library computes, by name.

/// A function of one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unary {
    /// `e^x`
    Exp,
    /// `ln x`
    Log,
    /// `x^(1/2)`, correctly rounded.
    Sqrt,
    /// The hyperbolic tangent.
    Tanh,
    /// The error function.
    Erf,
    /// `1 / (1 + e^-x)`
    Sigmoid,
    /// The sine of an angle of any size, such as 100000.
    Sin,
    /// The cosine, as the sine.
    Cos,
    /// `x x`
    Square,
}

/// A function of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a b`
    Mul,
    /// `a / b`; for integers, which are never negative here, rounded down.
    Div,
}

/// A comparison of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// `a = b`
    Equal,
    /// `a < b`
    Less,
    /// `a <= b`
    LessOrEqual,
}

/// What becomes of the numbers along a dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// Their sum, of which each term is added once, in any fixed order.
    Sum,
    /// The largest.
    Max,
    /// The smallest.
    Min,
}
