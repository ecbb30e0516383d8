//! Oriented boxes, with the arithmetic of Ultralytics' `batch_probiou` and `xywhr2xyxyxyxy`.

/// A box that is turned around its centre.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct OrientedBox {
    centre: [f32; 2],
    size: [f32; 2],
    angle: f32,
    /// of the normal distribution that stands for the box: the variances in x and y, and their covariance
    covariance: [f32; 3],
}

/// What keeps divisions from zero.
const EPSILON: f32 = 1e-7;

impl OrientedBox {
    /// From centre, width, height, and the angle in radians.
    pub(super) fn new([x, y, width, height]: [f32; 4], angle: f32) -> Self {
        let [a, b] = [width, height].map(|side| side * side / 12.0);
        let (sin, cos) = angle.sin_cos();
        let (sin2, cos2) = (sin * sin, cos * cos);
        let covariance = [a * cos2 + b * sin2, a * sin2 + b * cos2, (a - b) * cos * sin];
        Self { centre: [x, y], size: [width, height], angle, covariance }
    }

    /// The four corners, each beside the next.
    pub(super) fn corners(&self) -> [[f32; 2]; 4] {
        let ([x, y], [width, height]) = (self.centre, self.size);
        let (sin, cos) = self.angle.sin_cos();
        let [across, along] = [[width / 2.0 * cos, width / 2.0 * sin], [-height / 2.0 * sin, height / 2.0 * cos]];
        [(1.0, 1.0), (1.0, -1.0), (-1.0, -1.0), (-1.0, 1.0)]
            .map(|(one, other)| [x + one * across[0] + other * along[0], y + one * across[1] + other * along[1]])
    }

    /// The upright box around it.
    pub(super) fn enclosing(&self) -> [f32; 4] {
        let none = [f32::INFINITY, f32::INFINITY, f32::NEG_INFINITY, f32::NEG_INFINITY];
        self.corners()
            .into_iter()
            .fold(none, |[left, top, right, bottom], [x, y]| [left.min(x), top.min(y), right.max(x), bottom.max(y)])
    }

    /// How alike two boxes are, 0 to 1: 1 less the Hellinger distance of their normal distributions
    /// (<https://arxiv.org/abs/2106.06072>).
    pub(super) fn overlap(&self, other: &Self) -> f32 {
        let ([x1, y1], [x2, y2]) = (self.centre, other.centre);
        let ([a1, b1, c1], [a2, b2, c2]) = (self.covariance, other.covariance);
        let square = |x: f32| x * x;
        let determinant = (a1 + a2) * (b1 + b2) - square(c1 + c2);
        let apart = ((a1 + a2) * square(y1 - y2) + (b1 + b2) * square(x1 - x2)) / (determinant + EPSILON) * 0.25;
        let across = (c1 + c2) * (x2 - x1) * (y1 - y2) / (determinant + EPSILON) * 0.5;
        let both = ((a1 * b1 - square(c1)).max(0.0) * (a2 * b2 - square(c2)).max(0.0)).sqrt();
        let unlike = (determinant / (4.0 * both + EPSILON) + EPSILON).ln() * 0.5;
        let distance = (apart + across + unlike).clamp(EPSILON, 100.0);
        1.0 - (1.0 - (-distance).exp() + EPSILON).sqrt()
    }
}
