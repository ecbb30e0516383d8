//! The frame of a file: its scans, decoded one after the other into the planes of its components.

use crate::bit_reader::BitReader;
use crate::coefficients::{self, SpectralBand};
use crate::entropy_coded::EntropyCodedData;
use crate::error::{CancelCheck, Error};
use crate::header::{Component, Header};
use crate::huffman::HuffmanTable;
use crate::idct;
use crate::marker_segments::Segments;
use crate::simd::with_vectors;
use crate::smoothing::{self, Smoother};
use crate::tables::Tables;
use crate::upsample::Plane;

/// A progressive file has about ten scans. Each costs a pass over the whole image, so a small file with
/// thousands of them is an attack.
const MAX_SCANS: usize = 100;

/// Most blocks of an MCU, by the standard.
const MAX_MCU_BLOCKS: usize = 10;

/// A component while it is decoded.
struct Channel {
    component: Component,
    /// blocks across and down that the image needs
    blocks: [usize; 2],
    /// blocks across and down, with those that fill the last MCUs
    padded_blocks: [usize; 2],
    /// the table in force at the component's first scan
    quantization: Option<[i16; 64]>,
    /// the lowest bit that is known of the first coefficients of a progressive file; -1 before their first scan
    low_bits: smoothing::LowBits,
    /// blocks of a progressive file
    coefficients: Vec<[i16; 64]>,
    /// rows of samples; of a progressive file, empty until the last scan
    samples: Vec<u8>,
}

/// The parsed header of a scan, and its data.
struct Scan<'a> {
    band: SpectralBand,
    components: Vec<ScanComponent<'a>>,
    restart_interval: usize,
    data: EntropyCodedData,
}

struct ScanComponent<'a> {
    /// index among the channels
    channel: usize,
    /// Huffman tables of the DC and the AC coefficients
    tables: [Option<&'a HuffmanTable>; 2],
}

/// Entropy decoder state, which a restart resets.
#[derive(Default)]
struct EntropyState {
    dc_predictors: [i32; 4],
    end_of_band_run: u32,
}

pub(crate) struct FrameDecoder<'a> {
    bytes: &'a [u8],
    header: &'a Header<'a>,
    cancel: CancelCheck<'a>,
    /// MCUs across and down
    mcus: [usize; 2],
    channels: Vec<Channel>,
}

impl<'a> FrameDecoder<'a> {
    pub(crate) fn new(bytes: &'a [u8], header: &'a Header<'a>, cancel: CancelCheck<'a>) -> Self {
        let (h, v) = header.max_sampling();
        let mcus = [header.width.div_ceil(8 * h), header.height.div_ceil(8 * v)];
        let channels = header.components.iter().map(|component| {
            let padded_blocks = [mcus[0] * component.h, mcus[1] * component.v];
            let [width, height] = header.component_size(component);
            let count = padded_blocks[0] * padded_blocks[1];
            let (coefficients, samples) =
                if header.progressive { (vec![[0; 64]; count], Vec::new()) } else { (Vec::new(), vec![0; count * 64]) };
            let blocks = [width.div_ceil(8), height.div_ceil(8)];
            let low_bits = smoothing::UNKNOWN;
            Channel {
                component: *component,
                blocks,
                padded_blocks,
                quantization: None,
                low_bits,
                coefficients,
                samples,
            }
        });
        Self { bytes, header, cancel, mcus, channels: channels.collect() }
    }

    pub(crate) fn decode(mut self) -> Result<Vec<Plane>, Error> {
        let mut segments = Segments::new(self.bytes);
        let mut tables = Tables::default();
        let mut scans = 0;
        loop {
            // A segment may hold thousands of tables.
            self.cancel.check()?;
            match segments.next()? {
                (0xd9, _) => break,
                (0xda, body) => {
                    scans += 1;
                    if scans > MAX_SCANS {
                        return Err(Error::unsupported(format!("it has more than {MAX_SCANS} scans")));
                    }
                    if scans == 1 && !self.header.progressive {
                        tables.add_standard_huffman()?;
                    }
                    let (data, end) = EntropyCodedData::read(self.bytes, segments.at)?;
                    let scan = self.parse_scan(body, data, &tables)?;
                    self.decode_scan(&scan)?;
                    segments.at = end;
                }
                (kind, body) => tables.read(kind, body)?,
            }
        }
        let known = self.channels.iter().map(|channel| (&channel.low_bits, channel.quantization.as_ref()));
        let smooths = self.header.progressive && smoothing::is_applicable(known);
        let (h, v) = self.header.max_sampling();
        let mut planes = Vec::with_capacity(self.channels.len());
        for mut channel in self.channels {
            channel.transform(smooths, self.cancel)?;
            let [width, height] = self.header.component_size(&channel.component);
            planes.push(Plane {
                samples: channel.samples,
                stride: channel.padded_blocks[0] * 8,
                width,
                height,
                horizontal_ratio: h / channel.component.h,
                vertical_ratio: v / channel.component.v,
            });
        }
        Ok(planes)
    }

    /// Checks the header of a scan, and finds its tables.
    fn parse_scan<'t>(&mut self, body: &[u8], data: EntropyCodedData, tables: &'t Tables) -> Result<Scan<'t>, Error> {
        let invalid = || Error::damaged("the header of a scan is invalid");
        let (count, rest) = body.split_first().ok_or_else(invalid)?;
        let (entries, bounds) = rest.split_at_checked(usize::from(*count) * 2).ok_or_else(invalid)?;
        let [first, last, bits, ..] = *bounds else { return Err(invalid()) };
        let sequential = !self.header.progressive;
        let band =
            if sequential { SpectralBand::WHOLE } else { SpectralBand::new(first, last, bits).ok_or_else(invalid)? };
        let (needs_dc, needs_ac) = (band.first == 0 && !band.is_refinement, sequential || band.first > 0);
        if !(1..=4).contains(count) || (*count > 1 && band.first > 0) {
            return Err(invalid());
        }
        let (mut components, mut mcu_blocks) = (Vec::<ScanComponent<'t>>::with_capacity(4), 0);
        for [id, table_ids] in entries.as_chunks::<2>().0 {
            let at = self.channels.iter().position(|channel| channel.component.id == *id).ok_or_else(invalid)?;
            let channel = &mut self.channels[at];
            if components.iter().any(|other| other.channel == at) {
                return Err(invalid());
            }
            mcu_blocks += channel.component.h * channel.component.v;
            if channel.quantization.is_none() {
                let table = tables.quantization[channel.component.quantization_table];
                channel.quantization = Some(table.ok_or_else(|| Error::damaged("a quantization table is missing"))?);
            }
            for low_bit in channel.low_bits.iter_mut().take(band.last + 1).skip(band.first) {
                *low_bit = band.low_bit.cast_signed();
            }
            let find = |tables: &'t [Option<HuffmanTable>; 4], id: u8, needed: bool| {
                let found = tables.get(usize::from(id)).and_then(Option::as_ref);
                if needed && found.is_none() { Err(Error::damaged("a Huffman table is missing")) } else { Ok(found) }
            };
            let dc = find(&tables.dc, table_ids >> 4, needs_dc)?.filter(|_| needs_dc);
            let ac = find(&tables.ac, table_ids & 15, needs_ac)?;
            components.push(ScanComponent { channel: at, tables: [dc, ac] });
        }
        if components.len() > 1 && mcu_blocks > MAX_MCU_BLOCKS {
            return Err(invalid());
        }
        Ok(Scan { band, components, restart_interval: tables.restart_interval, data })
    }

    fn decode_scan(&mut self, scan: &Scan<'_>) -> Result<(), Error> {
        let band = scan.band;
        let missing = || Error::damaged("a Huffman table is missing");
        if !self.header.progressive {
            let mut pair_tables = Vec::with_capacity(4);
            for ScanComponent { channel, tables: [_, ac] } in &scan.components {
                let [across, down] = self.channels[*channel].padded_blocks;
                pair_tables.push(ac.ok_or_else(missing)?.pair_table(across * down));
            }
            // The whole scan: the bit reader gains from the shifts of BMI2.
            return with_vectors(
                #[inline(always)]
                |wide| {
                    let mut padded = [[0; 64]; 4];
                    self.for_each_block(
                        scan,
                        #[inline(always)]
                        |bits, state, channel, tables, component, [x, y]| {
                            let [Some(dc), Some(ac)] = tables else { return Err(missing()) };
                            let Some(quantization) = &channel.quantization else { return Err(missing()) };
                            padded[0] = [0; 64];
                            let predictor = &mut state.dc_predictors[component];
                            let pairs = &pair_tables[component];
                            let count = coefficients::decode_sequential(bits, [dc, ac], pairs, predictor, &mut padded)?;
                            let stride = channel.padded_blocks[0] * 8;
                            let samples = &mut channel.samples[y * 8 * stride + x * 8..];
                            idct::write_samples(wide, &padded[0], quantization, count, samples, stride);
                            Ok(())
                        },
                    )
                },
            );
        }
        self.for_each_block(scan, |bits, state, channel, [dc, ac], component, [x, y]| {
            let block = &mut channel.coefficients[y * channel.padded_blocks[0] + x];
            if band.first == 0 {
                coefficients::decode_dc(bits, dc, &mut state.dc_predictors[component], band, block)
            } else if band.is_refinement {
                coefficients::decode_ac_refinement(
                    bits,
                    ac.ok_or_else(missing)?,
                    &mut state.end_of_band_run,
                    band,
                    block,
                )
            } else {
                coefficients::decode_ac_first(bits, ac.ok_or_else(missing)?, &mut state.end_of_band_run, band, block)
            }
        })
    }

    /// Calls `block` for every block of a scan, in the order of its data.
    #[inline(always)]
    fn for_each_block(
        &mut self,
        scan: &Scan<'_>,
        mut block: impl FnMut(
            &mut BitReader<'_>,
            &mut EntropyState,
            &mut Channel,
            [Option<&HuffmanTable>; 2],
            usize,
            [usize; 2],
        ) -> Result<(), Error>,
    ) -> Result<(), Error> {
        // A scan of one component is not interleaved, and holds no blocks that only fill an MCU.
        let interleaved = scan.components.len() > 1;
        let [across, down] = if interleaved { self.mcus } else { self.channels[scan.components[0].channel].blocks };
        let (mut bits, mut state) = (scan.data.interval(0)?, EntropyState::default());
        for y in 0..down {
            self.cancel.check()?;
            for x in 0..across {
                let done = y * across + x;
                let interval = scan.restart_interval;
                if interval > 0 && done > 0 && done.is_multiple_of(interval) {
                    bits = scan.data.interval(done / interval)?;
                    state = EntropyState::default();
                }
                for (component, ScanComponent { channel, tables }) in scan.components.iter().enumerate() {
                    let channel = &mut self.channels[*channel];
                    let Component { h, v, .. } = channel.component;
                    let (h, v) = if interleaved { (h, v) } else { (1, 1) };
                    for row in 0..v {
                        for column in 0..h {
                            block(&mut bits, &mut state, channel, *tables, component, [x * h + column, y * v + row])?;
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

impl Channel {
    /// Computes the samples of a progressive file from its coefficients; `smooths` estimates those that no scan held.
    fn transform(&mut self, smooths: bool, cancel: CancelCheck<'_>) -> Result<(), Error> {
        let Some(quantization) = self.quantization else { return Err(Error::damaged("a component has no scan")) };
        let coefficients = std::mem::take(&mut self.coefficients);
        if coefficients.is_empty() {
            return Ok(());
        }
        self.samples = vec![0; coefficients.len() * 64];
        let stride = self.padded_blocks[0] * 8;
        if smooths {
            let smoother = Smoother::new(&coefficients, self.blocks, self.padded_blocks, &quantization, &self.low_bits);
            for y in 0..self.blocks[1] {
                cancel.check()?;
                let rows = smoother.window_rows(y, self.component.v);
                for x in 0..self.blocks[0] {
                    let samples = &mut self.samples[y * 8 * stride + x * 8..];
                    idct::write_samples(None, &smoother.block(rows, x), &quantization, 64, samples, stride);
                }
            }
            return Ok(());
        }
        for (y, row) in coefficients.chunks_exact(self.padded_blocks[0]).enumerate() {
            cancel.check()?;
            with_vectors(
                #[inline(always)]
                |wide| {
                    for (x, block) in row.iter().enumerate() {
                        let count = if block[1..].iter().any(|value| *value != 0) { 64 } else { 1 };
                        let samples = &mut self.samples[y * 8 * stride + x * 8..];
                        idct::write_samples(wide, block, &quantization, count, samples, stride);
                    }
                },
            );
        }
        Ok(())
    }
}

/// Bytes of the planes and coefficients of a file with this header.
pub(crate) fn memory(header: &Header<'_>) -> u64 {
    let (h, v) = header.max_sampling();
    let mcus = header.width.div_ceil(8 * h) as u64 * header.height.div_ceil(8 * v) as u64;
    let mcu_blocks: usize = header.components.iter().map(|component| component.h * component.v).sum();
    // A sample is a byte; of a progressive file, its coefficient two more.
    mcus * mcu_blocks as u64 * 64 * if header.progressive { 3 } else { 1 }
}
