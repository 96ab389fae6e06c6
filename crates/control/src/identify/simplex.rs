//! Downhill simplex in the plane (Nelder and Mead 1965): no derivatives, follows an askew valley.

type Point = [f64; 2];

/// Contractions of the simplex at most.
const STEPS_MAX: usize = 400;
/// Size of the simplex, in units of its first, at which it has arrived.
const ARRIVED: f64 = 1e-10;

/// A local minimum of `f` near `start`, first looked for at distance `scale`. `f` may return
/// infinity outside its domain, not NaN.
pub(super) fn minimise(f: impl Fn(Point) -> f64, start: Point, scale: Point) -> Point {
    let corner = |point: Point| (point, f(point));
    let mut simplex = [
        corner(start),
        corner([start[0] + scale[0], start[1]]),
        corner([start[0], start[1] + scale[1]]),
    ];
    for _ in 0..STEPS_MAX {
        simplex.sort_by(|a, b| a.1.total_cmp(&b.1));
        if extent(&simplex, scale) < ARRIVED {
            break;
        }
        simplex = step(simplex, &corner);
    }
    simplex.sort_by(|a, b| a.1.total_cmp(&b.1));
    simplex[0].0
}

type Corner = (Point, f64);

/// Replaces the worst corner, or draws all corners towards the best.
fn step([best, middle, worst]: [Corner; 3], corner: &impl Fn(Point) -> Corner) -> [Corner; 3] {
    let centre = along(best.0, middle.0, 0.5);
    let beyond = |share: f64| corner(along(worst.0, centre, share));
    let reflected = beyond(2.0);
    if reflected.1 < best.1 {
        let expanded = beyond(3.0);
        let better = if expanded.1 < reflected.1 {
            expanded
        } else {
            reflected
        };
        return [best, middle, better];
    }
    if reflected.1 < middle.1 {
        return [best, middle, reflected];
    }
    let contracted = if reflected.1 < worst.1 {
        beyond(1.5)
    } else {
        beyond(0.5)
    };
    if contracted.1 < worst.1.min(reflected.1) {
        return [best, middle, contracted];
    }
    let shrunk = |from: Corner| corner(along(from.0, best.0, 0.5));
    [best, shrunk(middle), shrunk(worst)]
}

/// `from + share (to - from)`.
fn along(from: Point, to: Point, share: f64) -> Point {
    [0, 1].map(|i| from[i] + share * (to[i] - from[i]))
}

fn extent(simplex: &[Corner; 3], scale: Point) -> f64 {
    let [best, others @ ..] = simplex;
    others
        .iter()
        .flat_map(|other| [0, 1].map(|i| ((other.0[i] - best.0[i]) / scale[i]).abs()))
        .fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curved_valley_is_followed_to_its_end() {
        let rosenbrock = |[x, y]: Point| (1.0 - x).powi(2) + 100.0 * (y - x * x).powi(2);
        let [x, y] = minimise(rosenbrock, [-1.2, 1.0], [0.5, 0.5]);
        assert!((x - 1.0).abs() < 1e-6 && (y - 1.0).abs() < 1e-6, "{x} {y}");
    }

    #[test]
    fn wall_is_not_passed() {
        let walled = |[x, y]: Point| if x < 1.0 { f64::INFINITY } else { x + y * y };
        let [x, y] = minimise(walled, [3.0, 2.0], [0.5, 0.5]);
        assert!((x - 1.0).abs() < 1e-6 && y.abs() < 1e-3, "{x} {y}");
    }
}
