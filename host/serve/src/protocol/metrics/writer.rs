//! Writes metric families.

use std::fmt::Error;

use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use crate::engine::metrics::histogram::HistogramSnapshot;

/// Writes metrics family by family.
pub(crate) struct Writer<'a, 'b>(&'a mut DescriptorEncoder<'b>);

impl<'a, 'b> Writer<'a, 'b> {
    pub(crate) const fn new(encoder: &'a mut DescriptorEncoder<'b>) -> Self {
        Self(encoder)
    }

    pub(crate) fn family<'s>(
        &'s mut self,
        name: &'s str,
        help: &str,
        unit: Option<&'s Unit>,
        kind: MetricType,
    ) -> Result<MetricEncoder<'s>, Error> {
        self.0.encode_descriptor(name, help, unit, kind)
    }

    /// Writes a family of counters.
    pub(crate) fn counters<'l>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Vec<(&'l str, &'l str)>, u64)>,
    ) -> Result<(), Error> {
        let mut family = self.family(name, help, None, MetricType::Counter)?;
        for (labels, count) in samples {
            if labels.is_empty() {
                family.encode_counter::<[(&str, &str); 0], _, u64>(&count, None)?;
            } else {
                family.encode_family(&labels)?.encode_counter::<[(&str, &str); 0], _, u64>(&count, None)?;
            }
        }
        Ok(())
    }

    /// Writes counters whose names lack the suffix `_total`, which OpenMetrics requires of counters: as type `unknown`.
    pub(crate) fn counters_as_named<'l>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Vec<(&'l str, &'l str)>, u64)>,
    ) -> Result<(), Error> {
        let mut family = self.family(name, help, None, MetricType::Unknown)?;
        for (labels, count) in samples {
            family.encode_family(&labels)?.encode_gauge(&count)?;
        }
        Ok(())
    }

    /// Writes a family of gauges.
    pub(crate) fn gauges<'l, N: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        samples: impl IntoIterator<Item = (Vec<(&'l str, &'l str)>, N)>,
    ) -> Result<(), Error> {
        let mut family = self.family(name, help, unit, MetricType::Gauge)?;
        for (labels, value) in samples {
            if labels.is_empty() {
                family.encode_gauge(&value)?;
            } else {
                family.encode_family(&labels)?.encode_gauge(&value)?;
            }
        }
        Ok(())
    }

    pub(crate) fn histograms<'l>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        samples: impl IntoIterator<Item = (Vec<(&'l str, &'l str)>, HistogramSnapshot)>,
    ) -> Result<(), Error> {
        let mut family = self.family(name, help, unit, MetricType::Histogram)?;
        for (labels, HistogramSnapshot { buckets, count, sum }) in samples {
            family.encode_family(&labels)?.encode_histogram::<[(&str, &str); 0]>(sum, count, &buckets, None)?;
        }
        Ok(())
    }

    pub(crate) fn gauge<N: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        value: N,
    ) -> Result<(), Error> {
        self.gauges(name, help, unit, [(Vec::new(), value)])
    }
}
