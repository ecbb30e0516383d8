//! The scans of a file, one after the other, into the planes of its components.

use super::Stop;
use super::bits::Bits;
use super::head::{Component, Head, Segments};
use super::huffman::Huffman;
use super::idct;
use super::planes::Plane;
use super::scan::{self, Band, Coded};
use super::tables::Tables;
use crate::pacing::Deadline;
use crate::wide::with_vectors;

/// A progressive file has about ten scans; each costs a pass over the whole picture, so a small file
/// with thousands of them is an attack.
const MAX_SCANS: usize = 100;

/// Most blocks of a unit.
const MAX_UNIT: usize = 10;

/// What becomes of one component.
struct Channel {
    component: Component,
    /// blocks across and down that the picture needs
    blocks: [usize; 2],
    /// and that whole units have
    padded: [usize; 2],
    /// quantization, as it was when the first one came
    steps: Option<[i16; 64]>,
    /// of a progressive file, block after block
    coefficients: Vec<[i16; 64]>,
    /// of a sequential one
    samples: Vec<u8>,
}

/// A scan that is about to be read.
struct Scan<'a> {
    band: Band,
    /// which channels it holds, and the tables of each
    parts: Vec<(usize, [Option<&'a Huffman>; 2])>,
    restart: usize,
    coded: Coded,
}

/// What goes on from block to block, until a scan starts anew.
#[derive(Default)]
struct State {
    means: [i32; 4],
    run: u32,
}

pub(super) struct Decoder<'a> {
    bytes: &'a [u8],
    head: &'a Head<'a>,
    watch: &'a Deadline,
    /// units of blocks across and down
    units: [usize; 2],
    channels: Vec<Channel>,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(bytes: &'a [u8], head: &'a Head<'a>, watch: &'a Deadline) -> Self {
        let (h, v) = head.unit();
        let units = [head.width.div_ceil(8 * h), head.height.div_ceil(8 * v)];
        let channels = head.components.iter().map(|component| {
            let padded = [units[0] * component.h, units[1] * component.v];
            let [width, height] = head.sides(component);
            let count = padded[0] * padded[1];
            let (coefficients, samples) =
                if head.progressive { (vec![[0; 64]; count], Vec::new()) } else { (Vec::new(), vec![0; count * 64]) };
            let blocks = [width.div_ceil(8), height.div_ceil(8)];
            Channel { component: *component, blocks, padded, steps: None, coefficients, samples }
        });
        Self { bytes, head, watch, units, channels: channels.collect() }
    }

    /// Decodes everything.
    pub(super) fn planes(mut self) -> Result<Vec<Plane>, Stop> {
        let mut segments = Segments::new(self.bytes);
        let mut tables = Tables::default();
        let mut scans = 0;
        loop {
            // A segment may hold thousands of tables.
            self.watch.check()?;
            match segments.next()? {
                (0xd9, _) => break,
                (0xda, body) => {
                    scans += 1;
                    if scans > MAX_SCANS {
                        return Err(Stop::damaged(format!("it has more than {MAX_SCANS} scans")));
                    }
                    let (coded, end) = Coded::read(self.bytes, segments.at)?;
                    let scan = self.scan(body, coded, &tables)?;
                    self.read(&scan)?;
                    segments.at = end;
                }
                (kind, body) => tables.read(kind, body)?,
            }
        }
        let (h, v) = self.head.unit();
        let mut planes = Vec::with_capacity(self.channels.len());
        for mut channel in self.channels {
            channel.transform(self.watch)?;
            let [width, height] = self.head.sides(&channel.component);
            let (across, down) = (h / channel.component.h, v / channel.component.v);
            planes.push(Plane { samples: channel.samples, stride: channel.padded[0] * 8, width, height, across, down });
        }
        Ok(planes)
    }

    /// Checks the head of a scan, and finds its tables.
    fn scan<'t>(&mut self, body: &[u8], coded: Coded, tables: &'t Tables) -> Result<Scan<'t>, Stop> {
        let bad = || Stop::damaged("the head of a scan cannot be");
        let (count, rest) = body.split_first().ok_or_else(bad)?;
        let (entries, bounds) = rest.split_at_checked(usize::from(*count) * 2).ok_or_else(bad)?;
        let [first, last, bits, ..] = *bounds else { return Err(bad()) };
        let whole = !self.head.progressive;
        let band = if whole { Band::WHOLE } else { Band::new(first, last, bits).ok_or_else(bad)? };
        let (means, others) = (band.first == 0 && !band.refines, whole || band.first > 0);
        if !(1..=4).contains(count) || (*count > 1 && band.first > 0) {
            return Err(bad());
        }
        let (mut parts, mut unit) = (Vec::with_capacity(4), 0);
        for [id, names] in entries.as_chunks::<2>().0 {
            let at = self.channels.iter().position(|channel| channel.component.id == *id).ok_or_else(bad)?;
            let channel = &mut self.channels[at];
            if parts.iter().any(|(other, _)| *other == at) {
                return Err(bad());
            }
            unit += channel.component.h * channel.component.v;
            if channel.steps.is_none() {
                let steps = tables.quantization[channel.component.table];
                channel.steps = Some(steps.ok_or_else(|| Stop::damaged("a quantization table is missing"))?);
            }
            let find = |tables: &'t [Option<Huffman>; 4], name: u8, needed: bool| {
                let found = tables.get(usize::from(name)).and_then(Option::as_ref);
                if needed && found.is_none() { Err(Stop::damaged("a Huffman table is missing")) } else { Ok(found) }
            };
            let dc = find(&tables.dc, names >> 4, means)?.filter(|_| means);
            parts.push((at, [dc, find(&tables.ac, names & 15, others)?]));
        }
        if parts.len() > 1 && unit > MAX_UNIT {
            return Err(bad());
        }
        Ok(Scan { band, parts, restart: tables.restart, coded })
    }

    fn read(&mut self, scan: &Scan<'_>) -> Result<(), Stop> {
        let band = scan.band;
        let missing = || Stop::damaged("a Huffman table is missing");
        if !self.head.progressive {
            let mut pairs = Vec::with_capacity(4);
            for (at, [_, ac]) in &scan.parts {
                let [across, down] = self.channels[*at].padded;
                pairs.push(ac.ok_or_else(missing)?.pairs(across * down));
            }
            // All of it, for the shifts of the newer processors as well.
            return with_vectors(
                #[inline(always)]
                |wide| {
                    let mut room = [[0; 64]; 4];
                    self.each(
                        scan,
                        #[inline(always)]
                        |bits, state, channel, tables, part, [x, y]| {
                            let [Some(dc), Some(ac)] = tables else { return Err(missing()) };
                            let Some(steps) = &channel.steps else { return Err(missing()) };
                            room[0] = [0; 64];
                            let mean = &mut state.means[part];
                            let held = scan::sequential(bits, [dc, ac], &pairs[part], mean, &mut room)?;
                            let stride = channel.padded[0] * 8;
                            let samples = &mut channel.samples[y * 8 * stride + x * 8..];
                            idct::write(wide, &room[0], steps, held, samples, stride);
                            Ok(())
                        },
                    )
                },
            );
        }
        self.each(scan, |bits, state, channel, [dc, ac], part, [x, y]| {
            let block = &mut channel.coefficients[y * channel.padded[0] + x];
            if band.first == 0 {
                scan::mean(bits, dc, &mut state.means[part], band, block)
            } else if band.refines {
                scan::refine(bits, ac.ok_or_else(missing)?, &mut state.run, band, block)
            } else {
                scan::first(bits, ac.ok_or_else(missing)?, &mut state.run, band, block)
            }
        })
    }

    /// Every block of a scan, in its order.
    #[inline(always)]
    fn each(
        &mut self,
        scan: &Scan<'_>,
        mut block: impl FnMut(
            &mut Bits<'_>,
            &mut State,
            &mut Channel,
            [Option<&Huffman>; 2],
            usize,
            [usize; 2],
        ) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        // A scan of one component has no units, and no blocks that only fill one up.
        let alone = scan.parts.len() == 1;
        let [across, down] = if alone { self.channels[scan.parts[0].0].blocks } else { self.units };
        let (mut bits, mut state) = (scan.coded.part(0)?, State::default());
        for y in 0..down {
            self.watch.check()?;
            for x in 0..across {
                let done = y * across + x;
                if scan.restart > 0 && done > 0 && done.is_multiple_of(scan.restart) {
                    bits = scan.coded.part(done / scan.restart)?;
                    state = State::default();
                }
                for (part, (at, tables)) in scan.parts.iter().enumerate() {
                    let channel = &mut self.channels[*at];
                    let (h, v) = if alone { (1, 1) } else { (channel.component.h, channel.component.v) };
                    for row in 0..v {
                        for column in 0..h {
                            block(&mut bits, &mut state, channel, *tables, part, [x * h + column, y * v + row])?;
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

impl Channel {
    /// The samples of a component whose coefficients were collected.
    fn transform(&mut self, watch: &Deadline) -> Result<(), Stop> {
        let Some(steps) = self.steps else { return Err(Stop::damaged("a component has no scan")) };
        let coefficients = std::mem::take(&mut self.coefficients);
        if coefficients.is_empty() {
            return Ok(());
        }
        self.samples = vec![0; coefficients.len() * 64];
        let stride = self.padded[0] * 8;
        for (y, row) in coefficients.chunks_exact(self.padded[0]).enumerate() {
            watch.check()?;
            with_vectors(
                #[inline(always)]
                |wide| {
                    for (x, block) in row.iter().enumerate() {
                        let held = if block[1..].iter().any(|value| *value != 0) { 64 } else { 1 };
                        let samples = &mut self.samples[y * 8 * stride + x * 8..];
                        idct::write(wide, block, &steps, held, samples, stride);
                    }
                },
            );
        }
        Ok(())
    }
}

/// Bytes that decoding a file with this head takes, beside the file and the pixels.
pub(super) fn memory(head: &Head<'_>) -> u64 {
    let (h, v) = head.unit();
    let units = head.width.div_ceil(8 * h) * head.height.div_ceil(8 * v);
    let blocks: usize = head.components.iter().map(|component| units * component.h * component.v).sum();
    // A sample is a byte; of a progressive file, its coefficient two more.
    (blocks * 64 * if head.progressive { 3 } else { 1 }) as u64
}
