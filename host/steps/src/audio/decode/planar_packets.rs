//! Packets that symphonia decoded.

use symphonia::core::audio::{Audio, GenericAudioBufferRef};

use super::sample_sink::{SampleSink, damaged};
use gpux_core::StepFailure;

/// A buffer for the float32 samples of a packet, reused by all packets.
#[derive(Default)]
pub(super) struct PlanarBuffer(Vec<Vec<f32>>);

/// Adds the decoded samples of a packet.
pub(super) fn read(
    decoded: &GenericAudioBufferRef<'_>,
    scratch: &mut PlanarBuffer,
    sink: &mut SampleSink,
) -> Result<(), StepFailure> {
    if decoded.num_planes() != sink.channels() {
        return Err(damaged("sound", &"the number of its channels changes on the way"));
    }
    if let GenericAudioBufferRef::F32(buffer) = decoded {
        let planes: Vec<_> = buffer.iter_planes().collect();
        return sink.planar(&planes);
    }
    decoded.copy_to_vecs_planar(&mut scratch.0);
    let planes: Vec<_> = scratch.0.iter().map(Vec::as_slice).collect();
    sink.planar(&planes)
}
