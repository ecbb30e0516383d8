//! The smallest rectangle around points, turned as it may be: `cv2.convexHull` and `cv2.minAreaRect`, in the same
//! order and precision, which decide between rectangles of the same size.

/// A point of whole pixels, with its place in the outline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OutlinePoint {
    pub(super) x: i64,
    pub(super) y: i64,
    pub(super) index: usize,
}

/// A rectangle: its corners from the top left clockwise, and its shorter side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rectangle {
    pub(super) corners: [[f32; 2]; 4],
    pub(super) shorter: f32,
}

/// The smallest rectangle around the points; none around no point.
pub(super) fn smallest(points: &mut Vec<OutlinePoint>) -> Option<Rectangle> {
    let hull = hull(points);
    let hull: Vec<[f32; 2]> = hull.iter().map(|point| [point.x as f32, point.y as f32]).collect();
    let [center, size, angle] = match hull.as_slice() {
        [] => return None,
        [point] => [*point, [0.0, 0.0], [0.0, 0.0]],
        [one, other] => {
            let [dx, dy] = [f64::from(other[0] - one[0]), f64::from(other[1] - one[1])];
            let center = [(one[0] + other[0]) * 0.5, (one[1] + other[1]) * 0.5];
            upright(center, [dx.hypot(dy) as f32, 0.0], dy.atan2(dx))
        }
        hull => calipers(hull),
    };
    Some(Rectangle { corners: in_order(corners(center, size, angle[0])), shorter: size[0].min(size[1]) })
}

/// The convex hull, from the corner and in the direction that OpenCV takes.
fn hull(points: &mut Vec<OutlinePoint>) -> Vec<OutlinePoint> {
    points.sort_unstable();
    points.dedup_by_key(|point| (point.x, point.y));
    if points.len() < 3 {
        return points.clone();
    }
    let mut hull: Vec<OutlinePoint> = Vec::new();
    let is_right_of =
        |a: OutlinePoint, b: OutlinePoint, c: OutlinePoint| (b.x - a.x) * (c.y - b.y) - (b.y - a.y) * (c.x - b.x) <= 0;
    let mut extend = |chain: &mut dyn Iterator<Item = OutlinePoint>| {
        let first = hull.len();
        for point in chain {
            while hull.len() >= first + 2 && is_right_of(hull[hull.len() - 2], hull[hull.len() - 1], point) {
                hull.pop();
            }
            hull.push(point);
        }
        // It is where the other half begins.
        hull.pop();
    };
    extend(&mut points.iter().rev().copied());
    extend(&mut points.iter().copied());
    let shift = first_of_outline(&hull);
    hull.rotate_left(shift);
    hull
}

/// Where the hull begins if its points follow each other in the outline: at the first of these, or at the last if they
/// go backwards.
fn first_of_outline(hull: &[OutlinePoint]) -> usize {
    let count = hull.len();
    if count < 3 {
        return 0;
    }
    let (mut least, mut most, mut rises) = (0, 0, 0);
    for at in 1..count {
        rises += usize::from(hull[at - 1].index < hull[at].index);
        if rises > 1 && rises + 2 <= at {
            break;
        }
        if hull[at].index < hull[least].index {
            least = at;
        }
        if hull[at].index > hull[most].index {
            most = at;
        }
    }
    let apart = most.abs_diff(least);
    let is_cyclic = (apart == 1 || apart == count - 1) && (rises <= 1 || rises + 2 >= count);
    match is_cyclic {
        true if (most + 1) % count == least => least,
        true => most,
        false => 0,
    }
}

/// Centre, sides and angle in degrees of the smallest rectangle around a hull of three points or more.
fn calipers(hull: &[[f32; 2]]) -> [[f32; 2]; 3] {
    let count = hull.len();
    let edges: Vec<[f32; 2]> = (0..count)
        .map(|at| {
            let ([x0, y0], [x1, y1]) = (hull[at], hull[(at + 1) % count]);
            [x1 - x0, y1 - y0]
        })
        .collect();
    let extreme = |is_beyond: fn([f32; 2], [f32; 2]) -> bool| {
        (1..count).fold(0, |best, at| if is_beyond(hull[at], hull[best]) { at } else { best })
    };
    // The corners that lie lowest, rightmost, highest and leftmost, where y points up.
    let mut sides = [
        extreme(|a, b| a[1] < b[1]),
        extreme(|a, b| a[0] > b[0]),
        extreme(|a, b| a[1] > b[1]),
        extreme(|a, b| a[0] < b[0]),
    ];

    let mut smallest = f32::MAX;
    let mut found = [[0.0; 2]; 3];
    for _ in 0..count {
        let turned = [
            edges[sides[0]],
            [edges[sides[1]][1], -edges[sides[1]][0]],
            edges[sides[2]].map(|number| -number),
            [-edges[sides[3]][1], edges[sides[3]][0]],
        ];
        let is_right = |one: [f32; 2], other: [f32; 2]| one[1] * other[0] - one[0] * other[1] < 0.0;
        let next = (1..4).fold(0, |best, at| if is_right(turned[at], turned[best]) { at } else { best });
        let edge = edges[sides[next]];
        let inverse = (1.0 / (f64::from(edge[0]).powi(2) + f64::from(edge[1]).powi(2)).sqrt()) as f32;
        let [lead_x, lead_y] = edge.map(|number| number * inverse);
        let [a, b] = match next {
            0 => [lead_x, lead_y],
            1 => [lead_y, -lead_x],
            2 => [-lead_x, -lead_y],
            _ => [-lead_y, lead_x],
        };
        sides[next] = (sides[next] + 1) % count;

        let [bottom, right, top, left] = sides.map(|at| hull[at]);
        let width = (right[0] - left[0]) * a + (right[1] - left[1]) * b;
        let height = -(top[0] - bottom[0]) * b + (top[1] - bottom[1]) * a;
        let area = width * height;
        if area <= smallest {
            smallest = area;
            // Where the lines through the leftmost and the lowest corner meet.
            let (c1, c2) = (a * left[0] + left[1] * b, -b * bottom[0] + bottom[1] * a);
            let scale = 1.0 / (a * a + b * b);
            let corner = [(c1 * a - c2 * b) * scale, (a * c2 + b * c1) * scale];
            let (across, up) = ([a * width, b * width], [-b * height, a * height]);
            let center = [0, 1].map(|axis| corner[axis] + (across[axis] + up[axis]) * 0.5);
            let length = |[x, y]: [f32; 2]| (f64::from(x).powi(2) + f64::from(y).powi(2)).sqrt() as f32;
            let angle = f64::from(across[1]).atan2(f64::from(across[0]));
            found = upright(center, [length(across), length(up)], angle);
        }
    }
    found
}

/// Centre, sides and angle in degrees, which OpenCV 5 has from -90 to 0, with the sides changed to that.
fn upright(center: [f32; 2], [mut width, mut height]: [f32; 2], radians: f64) -> [[f32; 2]; 3] {
    let mut degrees = radians * 180.0 / std::f64::consts::PI;
    while degrees >= 0.0 {
        degrees -= 90.0;
        (width, height) = (height, width);
    }
    while degrees < -90.0 {
        degrees += 90.0;
        (width, height) = (height, width);
    }
    [center, [width, height], [degrees as f32, 0.0]]
}

/// The corners of a rectangle, as `cv2.boxPoints` computes them.
fn corners([x, y]: [f32; 2], [width, height]: [f32; 2], degrees: f32) -> [[f32; 2]; 4] {
    let radians = f64::from(degrees) * std::f64::consts::PI / 180.0;
    let (a, b) = (radians.sin() as f32 * 0.5, radians.cos() as f32 * 0.5);
    let one = [x - a * height - b * width, y + b * height - a * width];
    let other = [x + a * height - b * width, y - b * height - a * width];
    let across_one = [x + a * height + b * width, y - b * height + a * width];
    let across_other = [x - a * height + b * width, y + b * height + a * width];
    [one, other, across_one, across_other]
}

/// The corners from the top left clockwise: of the two on the left the upper one first.
fn in_order(mut corners: [[f32; 2]; 4]) -> [[f32; 2]; 4] {
    corners.sort_by(|a, b| a[0].total_cmp(&b[0]));
    let [a, b, c, d] = corners;
    let (top_left, bottom_left) = if b[1] > a[1] { (a, b) } else { (b, a) };
    let (top_right, bottom_right) = if d[1] > c[1] { (c, d) } else { (d, c) };
    [top_left, top_right, bottom_right, bottom_left]
}
