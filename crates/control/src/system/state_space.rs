//! Discrete state space: `x(k+1) = A x(k) + B u(k)`, `y(k) = C x(k)`.

use super::{
    Complex, DVector, Matrix, SystemError, TransferFunction, all_finite, eigenvalues,
    spectral_radius,
};

/// A discrete linear system; unless an output is chosen, its state is its output (C = I).
///
/// ```
/// use tidegate_control::system::{StateSpace, matrix};
///
/// // The proxy of 000 eq. 7: response time and goodput, moved by the admission rate.
/// let a = matrix("A", &[vec![0.69321, 0.0], vec![0.0, 0.32734]])?;
/// let b = matrix("B", &[vec![-0.0917293], vec![0.0066773]])?;
/// let proxy = StateSpace::new(a, b)?;
/// assert!(proxy.is_stable()?);
/// // One token a second less admitted is, in the long run, 0.01 requests a second less.
/// let goodput = proxy.transfer(1, 0)?.dc_gain().unwrap();
/// assert!((goodput - 0.00993).abs() < 1e-5);
/// # Ok::<(), tidegate_control::system::SystemError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct StateSpace {
    a: Matrix,
    b: Matrix,
    c: Matrix,
}

impl StateSpace {
    /// With the state as output.
    ///
    /// # Errors
    /// `A` not square, `B` of another height, values that are not finite.
    pub fn new(a: Matrix, b: Matrix) -> Result<Self, SystemError> {
        let order = check_pair(&a, &b)?;
        let c = Matrix::identity(order, order);
        Ok(Self { a, b, c })
    }

    /// The same system, observed as `y = C x`.
    ///
    /// # Errors
    /// `C` of another width, values that are not finite.
    pub fn with_output(self, c: Matrix) -> Result<Self, SystemError> {
        all_finite("C", c.as_slice())?;
        if c.ncols() != self.order() || c.nrows() == 0 {
            return Err(shape("C", &c, format!("any height x {}", self.order())));
        }
        Ok(Self { c, ..self })
    }

    /// How many states.
    #[must_use]
    pub fn order(&self) -> usize {
        self.a.nrows()
    }

    /// The system matrix.
    #[must_use]
    pub fn a(&self) -> &Matrix {
        &self.a
    }

    /// The input matrix.
    #[must_use]
    pub fn b(&self) -> &Matrix {
        &self.b
    }

    /// The output matrix.
    #[must_use]
    pub fn c(&self) -> &Matrix {
        &self.c
    }

    /// Eigenvalues of `A`, slowest first.
    ///
    /// # Errors
    /// Eigenvalues that do not converge.
    pub fn poles(&self) -> Result<Vec<Complex<f64>>, SystemError> {
        eigenvalues(&self.a)
    }

    /// Whether every pole lies inside the unit circle.
    ///
    /// # Errors
    /// Eigenvalues that do not converge.
    pub fn is_stable(&self) -> Result<bool, SystemError> {
        Ok(spectral_radius(&self.poles()?) < 1.0)
    }

    /// The next state. Panics when the sizes do not fit.
    #[must_use]
    pub fn next(&self, x: &DVector<f64>, u: &DVector<f64>) -> DVector<f64> {
        &self.a * x + &self.b * u
    }

    /// The system under `u = -K x`: `A - B K` with the same `B` and `C`.
    ///
    /// # Errors
    /// `K` of another shape.
    pub fn with_feedback(&self, gain: &Matrix) -> Result<Self, SystemError> {
        if gain.shape() != (self.b.ncols(), self.order()) {
            let expected = format!("{} x {}", self.b.ncols(), self.order());
            return Err(shape("K", gain, expected));
        }
        Ok(Self {
            a: &self.a - &self.b * gain,
            b: self.b.clone(),
            c: self.c.clone(),
        })
    }

    /// What `input` does to `output`, both counted from 0. Panics when there is no such one.
    ///
    /// Faddeev and LeVerrier: `adj(zI - A) = Σ M_k z^(n-k)` with `M_1 = I`, `M_(k+1) = A M_k + p_k
    /// I`, `p_k = -tr(A M_k) / k`. Good for the small orders of loops; beyond ten states rounding
    /// shows.
    ///
    /// # Errors
    /// Entries so large that their products overflow.
    pub fn transfer(&self, output: usize, input: usize) -> Result<TransferFunction, SystemError> {
        let (row, column) = (self.c.row(output), self.b.column(input));
        let mut m = Matrix::identity(self.order(), self.order());
        let (mut num, mut den) = (Vec::new(), vec![1.0]);
        for k in 1..=self.order() {
            num.push((row * &m * column)[(0, 0)]);
            let am = &self.a * &m;
            let p = -am.trace() / k as f64;
            den.push(p);
            m = am + Matrix::identity(self.order(), self.order()) * p;
        }
        TransferFunction::new(&num, &den)
    }
}

/// Checks a pair and gives its order.
pub(crate) fn check_pair(a: &Matrix, b: &Matrix) -> Result<usize, SystemError> {
    all_finite("A", a.as_slice())?;
    all_finite("B", b.as_slice())?;
    let order = a.nrows();
    if order == 0 || a.ncols() != order {
        return Err(shape("A", a, "square".to_owned()));
    }
    if b.nrows() != order || b.ncols() == 0 {
        let expected = format!("{order} x (number of inputs), as A has {order} rows");
        return Err(shape("B", b, expected));
    }
    Ok(order)
}

pub(crate) fn shape(what: &'static str, m: &Matrix, expected: String) -> SystemError {
    SystemError::Shape {
        what,
        rows: m.nrows(),
        columns: m.ncols(),
        expected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::matrix;

    fn oscillator() -> StateSpace {
        let a = matrix("A", &[vec![0.0, 1.0], vec![-0.5, 1.0]]).unwrap();
        let b = matrix("B", &[vec![0.0], vec![1.0]]).unwrap();
        StateSpace::new(a, b).unwrap()
    }

    #[test]
    fn transfer_of_the_controllable_form_reads_off_its_rows() {
        let g = oscillator().transfer(0, 0).unwrap();
        assert_eq!(g.den().coefficients(), [1.0, -1.0, 0.5]);
        assert_eq!(g.num().coefficients(), [1.0]);
        let chosen = oscillator()
            .with_output(Matrix::from_row_slice(1, 2, &[2.0, 3.0]))
            .unwrap();
        assert_eq!(
            chosen.transfer(0, 0).unwrap().num().coefficients(),
            [3.0, 2.0]
        );
    }

    #[test]
    fn transfer_and_recursion_agree() {
        let system = oscillator();
        let expected = system.transfer(0, 0).unwrap().step_response(40);
        let (mut x, u) = (DVector::<f64>::zeros(2), DVector::from_element(1, 1.0));
        for y in expected {
            assert!((x[0] - y).abs() < 1e-12);
            x = system.next(&x, &u);
        }
    }

    #[test]
    fn feedback_moves_the_poles() {
        let gain = matrix("K", &[vec![-0.5, 1.0]]).unwrap(); // deadbeat
        let closed = oscillator().with_feedback(&gain).unwrap();
        assert!(spectral_radius(&closed.poles().unwrap()) < 1e-12);
        assert!(oscillator().with_feedback(&Matrix::zeros(2, 2)).is_err());
    }

    #[test]
    fn shapes_are_checked_and_named() {
        let a = Matrix::zeros(2, 3);
        let error = StateSpace::new(a, Matrix::zeros(2, 1)).unwrap_err();
        assert_eq!(error.to_string(), "A is 2 x 3, but must be square");
        let error = StateSpace::new(Matrix::zeros(2, 2), Matrix::zeros(1, 1)).unwrap_err();
        assert!(error.to_string().starts_with("B is 1 x 1, but must be 2 x"));
        assert!(oscillator().with_output(Matrix::zeros(1, 3)).is_err());
    }
}
