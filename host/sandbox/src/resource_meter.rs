//! Counts the resources of a sandbox, and stops it at its limits.

use wasmtime::ResourceLimiter;

use super::failure::StopReason;
use super::limits::{Limits, bytes, exceeded};

/// Bytes of all memories of one sandbox and of the tensors it made, with their limit.
///
/// An error from here traps the guest and records the limit; returning `false` would
/// let the guest abort without the reason.
pub(super) struct ResourceMeter {
    memory: usize,
    used: usize,
    peak: usize,
    elements: usize,
    elements_used: usize,
    instances: usize,
    tables: usize,
    memories: usize,
}

impl ResourceMeter {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            memory: limits.memory,
            used: 0,
            peak: 0,
            elements: limits.table_elements,
            elements_used: 0,
            instances: limits.instances,
            tables: limits.tables,
            memories: limits.memories,
        }
    }

    /// Counts `size` more bytes, to be called before they are allocated.
    pub(super) fn charge(&mut self, size: usize) -> Result<(), StopReason> {
        let used = self.used.saturating_add(size);
        if used > self.memory {
            return Err(StopReason::limit(exceeded("memory", bytes(self.memory))));
        }
        self.used = used;
        self.peak = self.peak.max(used);
        Ok(())
    }

    /// Whether `size` more bytes would fit.
    pub(super) fn check_fits(&self, size: usize) -> Result<(), StopReason> {
        if self.used.saturating_add(size) > self.memory {
            return Err(StopReason::limit(exceeded("memory", bytes(self.memory))));
        }
        Ok(())
    }

    /// Bytes that still fit.
    pub(super) fn left(&self) -> usize {
        self.memory - self.used
    }

    pub(super) fn release(&mut self, size: usize) {
        self.used = self.used.saturating_sub(size);
    }

    /// Lets the host grow the sandbox's memories by this many bytes, for a snapshot.
    pub(super) fn give(&mut self, memory: usize) {
        self.memory = self.memory.saturating_add(memory);
    }

    /// Starts the count of the most bytes again.
    pub(super) fn reset_peak(&mut self) {
        self.peak = self.used;
    }

    /// The most bytes that were held at a time.
    pub(super) fn peak(&self) -> u64 {
        self.peak as u64
    }
}

impl ResourceLimiter for ResourceMeter {
    // Growth beyond the guest's own maximum is asked for here and then fails, so it is not counted.
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let size = desired.saturating_sub(current);
        if maximum.is_some_and(|most| desired > most) {
            self.check_fits(size)?;
            return Ok(false);
        }
        self.charge(size)?;
        Ok(true)
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let used = self.elements_used.saturating_add(desired.saturating_sub(current));
        if used > self.elements {
            return Err(StopReason::limit(exceeded("table_elements", self.elements.to_string())).into());
        }
        if maximum.is_some_and(|most| desired > most) {
            return Ok(false);
        }
        self.elements_used = used;
        Ok(true)
    }

    fn instances(&self) -> usize {
        self.instances
    }

    fn tables(&self) -> usize {
        self.tables
    }

    fn memories(&self) -> usize {
        self.memories
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpux_core::StepFailure;

    fn name(error: &wasmtime::Error) -> &str {
        match error.downcast_ref() {
            Some(StopReason(StepFailure::Limit(limit))) => &limit.limit,
            _ => "none",
        }
    }

    #[test]
    fn memory_limit_covers_all_memories() {
        let mut meter = ResourceMeter::new(&Limits { memory: 100, ..Limits::default() });
        assert!(meter.memory_growing(0, 60, None).unwrap());
        assert_eq!(name(&meter.memory_growing(0, 60, None).unwrap_err()), "memory");
        meter.charge(40).unwrap();
        assert!(meter.charge(1).is_err() && meter.charge(usize::MAX).is_err());
        meter.release(40);
        assert!(meter.memory_growing(60, 100, None).unwrap());
        assert_eq!(meter.peak(), 100);
    }

    #[test]
    fn does_not_count_failed_growth() {
        let mut meter = ResourceMeter::new(&Limits { memory: 100, table_elements: 100, ..Limits::default() });
        for _ in 0..10 {
            assert!(!meter.memory_growing(0, 60, Some(50)).unwrap());
            assert!(!meter.table_growing(0, 60, Some(50)).unwrap());
        }
        assert_eq!(name(&meter.memory_growing(0, 101, Some(50)).unwrap_err()), "memory");
        assert!(meter.memory_growing(0, 100, Some(100)).unwrap());
        assert!(meter.table_growing(0, 100, Some(100)).unwrap());
    }

    #[test]
    fn table_limit_covers_all_tables() {
        let mut meter = ResourceMeter::new(&Limits { table_elements: 100, ..Limits::default() });
        assert!(meter.table_growing(0, 60, None).unwrap());
        assert_eq!(name(&meter.table_growing(0, 60, None).unwrap_err()), "table_elements");
        assert_eq!(name(&meter.table_growing(60, usize::MAX, None).unwrap_err()), "table_elements");
        assert!(meter.table_growing(60, 100, None).unwrap());
    }
}
