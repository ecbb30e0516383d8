//! The header of a file: everything before its first scan.

use crate::error::Error;
use crate::marker_segments::Segments;

/// The color space that the components encode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColorSpace {
    Gray,
    Rgb,
    YCbCr,
    Cmyk,
    Ycck,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Component {
    pub(crate) id: u8,
    /// sampling factors: blocks in an MCU, across and down
    pub(crate) h: usize,
    pub(crate) v: usize,
    pub(crate) quantization_table: usize,
}

pub(crate) struct Header<'a> {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) progressive: bool,
    pub(crate) components: Vec<Component>,
    pub(crate) color_space: ColorSpace,
    pub(crate) exif: Option<&'a [u8]>,
    pub(crate) xmp: Option<&'a [u8]>,
}

impl<'a> Header<'a> {
    /// Reads up to the first scan.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        if !bytes.starts_with(&[0xff, 0xd8]) {
            return Err(Error::damaged("it does not begin as a JPEG file does"));
        }
        let mut segments = Segments::new(bytes);
        let (mut frame, mut jfif, mut adobe, mut exif, mut xmp) = (None, false, None, None, None);
        loop {
            match segments.next()? {
                (0xda, _) => break,
                (0xd9, _) => return Err(Error::damaged("it ends before its first scan")),
                (0xc0..=0xc2, _) if frame.is_some() => return Err(Error::damaged("it has two frames")),
                (kind @ 0xc0..=0xc2, body) => frame = Some((kind == 0xc2, body)),
                (kind @ (0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf), _) => {
                    let process = match kind {
                        0xc3 => "lossless",
                        0xc9 | 0xca => "arithmetic coding",
                        _ => "hierarchical",
                    };
                    return Err(Error::unsupported(format!("it is of a kind that is not decoded ({process})")));
                }
                (0xe0, body) => jfif |= body.starts_with(b"JFIF\0"),
                (0xe1, body) => {
                    exif = exif.or(body.strip_prefix(b"Exif\0\0"));
                    xmp = body.strip_prefix(b"http://ns.adobe.com/xap/1.0/\0").or(xmp);
                }
                (0xee, body) if body.len() >= 12 && body.starts_with(b"Adobe") => adobe = Some(body[11]),
                _ => {}
            }
        }
        let (progressive, body) = frame.ok_or_else(|| Error::damaged("its first scan comes before its size"))?;
        let mut header = Self::parse_frame(body)?;
        header.progressive = progressive;
        (header.exif, header.xmp) = (exif, xmp);
        header.color_space = color_space(&header.components, jfif, adobe)?;
        Ok(header)
    }

    fn parse_frame(body: &[u8]) -> Result<Self, Error> {
        let [depth, h0, h1, w0, w1, count, rest @ ..] = body else {
            return Err(Error::damaged("its frame is too short"));
        };
        if *depth != 8 {
            return Err(Error::unsupported(format!("its samples have {depth} bits; 8 are decoded")));
        }
        let side = |high: &u8, low: &u8| usize::from(u16::from_be_bytes([*high, *low]));
        let (width, height) = (side(w0, w1), side(h0, h1));
        if width == 0 || height == 0 {
            return Err(Error::damaged(format!("it is {width} × {height} pixels")));
        }
        let (parts, _) = rest.as_chunks::<3>();
        if !matches!(count, 1 | 3 | 4) || parts.len() != usize::from(*count) {
            return Err(Error::damaged(format!("it has {count} components, not 1, 3 or 4")));
        }
        let components: Vec<_> = parts
            .iter()
            .map(|[id, sampling, table]| Component {
                id: *id,
                h: usize::from(sampling >> 4),
                v: usize::from(sampling & 15),
                quantization_table: usize::from(*table),
            })
            .collect();
        let (h, v) = max_sampling(&components);
        for component in &components {
            if !(1..=4).contains(&component.h) || !(1..=4).contains(&component.v) || component.quantization_table > 3 {
                return Err(Error::damaged("a component has an invalid sampling factor or quantization table"));
            }
            if h % component.h != 0 || v % component.v != 0 {
                let ratio = format!("{} × {} of {h} × {v}", component.h, component.v);
                return Err(Error::unsupported(format!("a component is sampled by a fraction ({ratio})")));
            }
        }
        let color_space = ColorSpace::Gray;
        Ok(Self { width, height, progressive: false, components, color_space, exif: None, xmp: None })
    }

    /// The largest sampling factors, across and down.
    pub(crate) fn max_sampling(&self) -> (usize, usize) {
        max_sampling(&self.components)
    }

    /// Columns and rows of a component.
    pub(crate) fn component_size(&self, component: &Component) -> [usize; 2] {
        let (h, v) = self.max_sampling();
        [(self.width * component.h).div_ceil(h), (self.height * component.v).div_ceil(v)]
    }
}

fn max_sampling(components: &[Component]) -> (usize, usize) {
    let max = |factor: fn(&Component) -> usize| components.iter().map(factor).max().unwrap_or(1);
    (max(|component| component.h), max(|component| component.v))
}

/// By libjpeg's rules: JFIF is YCbCr, then the Adobe marker decides, then the components' ids.
fn color_space(components: &[Component], jfif: bool, adobe: Option<u8>) -> Result<ColorSpace, Error> {
    let ids: Vec<_> = components.iter().map(|component| component.id).collect();
    Ok(match (components.len(), jfif, adobe) {
        (1, ..) => ColorSpace::Gray,
        (3, true, _) => ColorSpace::YCbCr,
        (3, false, Some(0)) => ColorSpace::Rgb,
        (3, false, None) if ids == *b"RGB" => ColorSpace::Rgb,
        (3, ..) => ColorSpace::YCbCr,
        (4, _, None | Some(0)) => ColorSpace::Cmyk,
        (4, ..) => ColorSpace::Ycck,
        (count, ..) => return Err(Error::damaged(format!("it has {count} components, not 1, 3 or 4"))),
    })
}
