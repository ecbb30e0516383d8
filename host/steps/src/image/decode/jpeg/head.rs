//! What a JPEG file says before its scans.

use super::Stop;

/// The parts of a file that begin with a marker, in their order: the marker, what belongs to it, and
/// where the file goes on behind it.
pub(super) struct Segments<'a> {
    bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Segments<'a> {
    /// Of a whole file, behind its first marker.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 2 }
    }

    /// The next marker with its body; those without one are passed over, but for the end.
    pub(super) fn next(&mut self) -> Result<(u8, &'a [u8]), Stop> {
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let start = marker(rest).ok_or_else(Stop::cut)?;
            self.at += start + 1;
            match rest.get(start + 1).ok_or_else(Stop::cut)? {
                // Fill, and what has no body.
                0xff => {}
                0x00 | 0x01 | 0xd0..=0xd8 => self.at += 1,
                0xd9 => return Ok((0xd9, &[])),
                kind => {
                    let length = rest.get(start + 2..start + 4).ok_or_else(Stop::cut)?;
                    let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
                    if length < 2 {
                        return Err(Stop::damaged("a segment is shorter than its own length"));
                    }
                    let body = rest.get(start + 4..start + 2 + length).ok_or_else(Stop::cut)?;
                    self.at += 1 + length;
                    return Ok((*kind, body));
                }
            }
        }
    }
}

/// Where the next 0xff is. In blocks, which are searched many bytes at a time.
pub(super) fn marker(bytes: &[u8]) -> Option<usize> {
    const BLOCK: usize = 32;
    let holds = |block: &[u8]| block.iter().fold(0, |found, byte| found | u8::from(*byte == 0xff)) > 0;
    let (blocks, _) = bytes.as_chunks::<BLOCK>();
    let start = blocks.iter().position(|block| holds(block)).unwrap_or(blocks.len()) * BLOCK;
    bytes[start..].iter().position(|byte| *byte == 0xff).map(|at| start + at)
}

/// What the three or four components of a pixel are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colors {
    Gray,
    Rgb,
    YCbCr,
    Cmyk,
    Ycck,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Component {
    pub(super) id: u8,
    /// blocks of it in a unit, across and down
    pub(super) h: usize,
    pub(super) v: usize,
    /// which quantization table
    pub(super) table: usize,
}

/// The head of a file.
pub(super) struct Head<'a> {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) progressive: bool,
    pub(super) components: Vec<Component>,
    pub(super) colors: Colors,
    pub(super) exif: Option<&'a [u8]>,
}

impl<'a> Head<'a> {
    /// Reads up to the first scan.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, Stop> {
        let mut segments = Segments::new(bytes);
        let (mut frame, mut jfif, mut adobe, mut exif) = (None, false, None, None);
        loop {
            match segments.next()? {
                (0xda, _) => break,
                (0xd9, _) => return Err(Stop::damaged("it ends before its first scan")),
                (0xc0..=0xc2, _) if frame.is_some() => return Err(Stop::damaged("it has two frames")),
                (kind @ 0xc0..=0xc2, body) => frame = Some((kind == 0xc2, body)),
                (kind @ (0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf), _) => {
                    let how = match kind {
                        0xc3 => "lossless",
                        0xc9 | 0xca => "arithmetic coding",
                        _ => "a hierarchy of pictures",
                    };
                    return Err(Stop::damaged(format!("it is of a kind that is not decoded ({how})")));
                }
                (0xe0, body) => jfif |= body.starts_with(b"JFIF\0"),
                (0xe1, body) => exif = exif.or(body.strip_prefix(b"Exif\0\0")),
                (0xee, body) if body.len() >= 12 && body.starts_with(b"Adobe") => adobe = Some(body[11]),
                _ => {}
            }
        }
        let (progressive, body) = frame.ok_or_else(|| Stop::damaged("its first scan comes before its size"))?;
        let mut head = Self::frame(body)?;
        head.progressive = progressive;
        head.exif = exif;
        head.colors = colors(&head.components, jfif, adobe)?;
        Ok(head)
    }

    fn frame(body: &[u8]) -> Result<Self, Stop> {
        let [depth, h0, h1, w0, w1, count, rest @ ..] = body else {
            return Err(Stop::damaged("its frame is too short"));
        };
        if *depth != 8 {
            return Err(Stop::damaged(format!("its samples have {depth} bits; 8 are decoded")));
        }
        let side = |high: &u8, low: &u8| usize::from(u16::from_be_bytes([*high, *low]));
        let (width, height) = (side(w0, w1), side(h0, h1));
        if width == 0 || height == 0 {
            return Err(Stop::damaged(format!("it is {width} × {height} pixels")));
        }
        let (parts, _) = rest.as_chunks::<3>();
        if !matches!(count, 1 | 3 | 4) || parts.len() != usize::from(*count) {
            return Err(Stop::damaged(format!("it has {count} components, not 1, 3 or 4")));
        }
        let components: Vec<_> = parts
            .iter()
            .map(|[id, sampling, table]| Component {
                id: *id,
                h: usize::from(sampling >> 4),
                v: usize::from(sampling & 15),
                table: usize::from(*table),
            })
            .collect();
        let most = |side: fn(&Component) -> usize| components.iter().map(side).max().unwrap_or(1);
        let (h, v) = (most(|component| component.h), most(|component| component.v));
        for component in &components {
            if !(1..=4).contains(&component.h) || !(1..=4).contains(&component.v) || component.table > 3 {
                return Err(Stop::damaged("a component has a sampling or a table that cannot be"));
            }
            if h % component.h != 0 || v % component.v != 0 {
                let ratio = format!("{} × {} of {h} × {v}", component.h, component.v);
                return Err(Stop::damaged(format!("a component is sampled by a fraction ({ratio})")));
            }
        }
        Ok(Self { width, height, progressive: false, components, colors: Colors::Gray, exif: None })
    }

    /// Most blocks of a component in a unit, across and down.
    pub(super) fn unit(&self) -> (usize, usize) {
        let most = |side: fn(&Component) -> usize| self.components.iter().map(side).max().unwrap_or(1);
        (most(|component| component.h), most(|component| component.v))
    }

    /// Columns and rows of a component.
    pub(super) fn sides(&self, component: &Component) -> [usize; 2] {
        let (h, v) = self.unit();
        [(self.width * component.h).div_ceil(h), (self.height * component.v).div_ceil(v)]
    }
}

/// By libjpeg's rules: JFIF is always YCbCr, Adobe says what it is, and otherwise the names tell.
fn colors(components: &[Component], jfif: bool, adobe: Option<u8>) -> Result<Colors, Stop> {
    let ids: Vec<_> = components.iter().map(|component| component.id).collect();
    Ok(match (components.len(), jfif, adobe) {
        (1, ..) => Colors::Gray,
        (3, true, _) => Colors::YCbCr,
        (3, false, Some(0)) => Colors::Rgb,
        (3, false, None) if ids == *b"RGB" => Colors::Rgb,
        (3, ..) => Colors::YCbCr,
        (4, _, None | Some(0)) => Colors::Cmyk,
        (4, ..) => Colors::Ycck,
        (count, ..) => return Err(Stop::damaged(format!("it has {count} components, not 1, 3 or 4"))),
    })
}
