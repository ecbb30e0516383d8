use super::*;

/// A disc of ink on a slope of light, with noise and one speck.
fn photo(width: usize, height: usize, middle: (f32, f32), radius: f32, dark: bool) -> Vec<u8> {
    let mut seed = 1_u32;
    let mut gray = Vec::with_capacity(width * height);
    for y in 0..height {
        for x in 0..width {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let noise = (seed >> 28) as f32 - 8.0;
            let light = 60.0 * (x as f32 / width as f32) + 20.0 * (y as f32 / height as f32);
            let inside = (x as f32 - middle.0).hypot(y as f32 - middle.1) <= radius;
            let speck = x.abs_diff(3) < 2 && y.abs_diff(3) < 2;
            let level = match (inside || speck, dark) {
                (true, true) | (false, false) => 40.0,
                _ => 160.0,
            };
            gray.push((level + light + noise) as u8);
        }
    }
    gray
}

fn default_crop(gray: &[u8], width: usize, height: usize) -> Result<Centered, NoInk> {
    center(gray, width, height, &Options::default())
}

#[test]
fn ink_is_cropped_and_bright_whatever_its_polarity_and_place() {
    for (width, height) in [(160, 160), (640, 480), (480, 641), (100, 90)] {
        for dark in [true, false] {
            let radius = width.min(height) as f32 / 6.0;
            for middle in [(radius * 2.0, radius * 2.5), (radius * 3.5, radius * 4.0)] {
                let gray = photo(width, height, middle, radius, dark);
                let crop = center(&gray, width, height, &Options { margin: 0.25 }).unwrap();
                let expected = radius * 2.0 * 1.5;
                let side = crop.side as f32;
                assert!((side - expected).abs() <= expected * 0.1 + 3.0, "{side} for {expected}");
                assert_eq!(crop.pixels.len(), crop.side * crop.side);
                let at = |x: f32, y: f32| crop.pixels[(y * side) as usize * crop.side + (x * side) as usize];
                assert!(at(0.5, 0.5) > 200);
                for (x, y) in [(0.05, 0.05), (0.95, 0.05), (0.05, 0.95), (0.95, 0.95)] {
                    assert_eq!(at(x, y), 0);
                }
                for (x, y) in [(0.25, 0.5), (0.75, 0.5), (0.5, 0.25), (0.5, 0.75)] {
                    assert!(at(x, y) > 200);
                }
            }
        }
    }
}

#[test]
fn the_margin_is_free_space_on_each_side() {
    let gray = photo(160, 160, (60.0, 90.0), 25.0, true);
    let side = |margin| center(&gray, 160, 160, &Options { margin }).unwrap().side;
    let tight = side(0.0);
    assert_eq!(side(0.5), tight + 2 * (tight as f32 * 0.5).round() as usize);
    assert_eq!(side(f32::NAN), tight);
    assert_eq!(side(-1.0), tight);
    assert_eq!(side(f32::INFINITY), tight * 9);
}

#[test]
fn only_the_character_and_what_is_close_to_it_stays() {
    let mut gray = vec![200_u8; 160 * 160];
    let mut draw = |left: usize, top: usize, right: usize, bottom: usize| {
        for y in top..bottom {
            gray[y * 160 + left..y * 160 + right].fill(30);
        }
    };
    // A stroke, and its bar apart from it.
    draw(60, 60, 72, 120);
    draw(80, 60, 100, 72);
    // A heavy blot far away, a speck close by, and a hair on the bar.
    draw(140, 4, 156, 20);
    draw(84, 104, 88, 108);
    draw(100, 66, 103, 67);
    let crop = center(&gray, 160, 160, &Options { margin: 0.0 }).unwrap();
    assert_eq!(crop.side, 60);
    let at = |x: usize, y: usize| crop.pixels[x + y * crop.side];
    assert_eq!([9, 10, 21, 25, 30, 49, 50].map(|x| at(x, 3)), [0, 255, 255, 0, 255, 255, 0]);
    assert_eq!([9, 10, 21, 22, 36].map(|x| at(x, 46)), [0, 255, 255, 0, 0]);
}

#[test]
fn light_may_vary_more_than_the_ink_stands_out() {
    for ink in [40_usize, 50] {
        let gray: Vec<u8> = (0..160 * 160)
            .map(|i| {
                let (x, y) = (i % 160, i / 160);
                let inside = (100..120).contains(&x) && (40..80).contains(&y);
                (60 + x - if inside { ink } else { 0 }) as u8
            })
            .collect();
        let crop = center(&gray, 160, 160, &Options { margin: 0.0 }).unwrap();
        assert_eq!(crop.side, 40);
        assert_eq!(crop.pixels.iter().filter(|&&pixel| pixel > 128).count(), 20 * 40);
    }
}

#[test]
fn a_plain_image_has_no_ink() {
    for level in [0, 1, 128, 255] {
        for (width, height) in [(1, 1), (2, 1), (8, 8), (160, 160), (33, 257)] {
            assert_eq!(default_crop(&vec![level; width * height], width, height), Err(NoInk));
        }
    }
    let slope: Vec<u8> = (0..160 * 160).map(|i| (i % 160) as u8).collect();
    assert_eq!(default_crop(&slope, 160, 160), Err(NoInk));
    let noise = photo(160, 160, (-500.0, -500.0), 1.0, true);
    let paper: Vec<u8> = noise.chunks_exact(160).skip(8).flatten().copied().collect();
    assert_eq!(default_crop(&paper, 160, 152), Err(NoInk));
}

#[test]
fn impossible_sizes_are_refused() {
    assert_eq!(default_crop(&[], 0, 0), Err(NoInk));
    assert_eq!(default_crop(&[], 0, 7), Err(NoInk));
    assert_eq!(default_crop(&[], 7, 0), Err(NoInk));
    assert_eq!(default_crop(&[1, 2, 3], 2, 2), Err(NoInk));
    assert_eq!(default_crop(&[1, 2, 3], usize::MAX, 2), Err(NoInk));
}

#[test]
fn no_image_panics() {
    let mut seed = 7_u32;
    let mut random = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        seed >> 8
    };
    for _ in 0..3000 {
        let (width, height) = (random() as usize % 90 + 1, random() as usize % 90 + 1);
        let scatter = random() % 255 + 1;
        let gray: Vec<u8> =
            (0..width * height).map(|_| if random() % scatter == 0 { random() as u8 } else { 200 }).collect();
        let margin = random() as f32 / 1e7;
        if let Ok(crop) = center(&gray, width, height, &Options { margin }) {
            assert_eq!(crop.pixels.len(), crop.side * crop.side);
            assert!(crop.pixels.iter().any(|&pixel| pixel > 0));
        }
    }
    for (width, height) in [(9000, 3), (3, 9000), (20000, 1), (1, 20000)] {
        let gray: Vec<u8> = (0..width * height).map(|_| random() as u8).collect();
        let _ = default_crop(&gray, width, height);
    }
}
